"""Trials as Optuna studies: Optuna reads what is written."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.optuna_study import parameters_of
from tests.support.mlp_records import said
from tests.support.recorded import fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Database(tmp_path / "tuning.db") as database:
        fill(database)
    return tmp_path / "tuning.db"


def test_optuna_opens_a_study_of_each_kernel(
    capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "studies.db"
    text = said(capsys, "db", "export", str(file), "--format", "optuna", "--db", str(path))
    assert "7 records in" in text
    with studies_in(file) as studies, Database(path, read_only=True) as database:
        rows = database.query("select * from trials")
        trials = [t for study in studies for t in study.trials]
        assert len(trials) == len(rows) == 7
        assert len(studies) == len({row["kernel"] for row in rows})
        times = {t.value for t in trials if t.value is not None}
        assert times == {row["time_s"] for row in rows if row["time_s"] is not None}
        failed = [t for t in trials if t.state.name == "FAIL"]
        assert len(failed) == len([row for row in rows if row["failure_kind"]]) > 0
        assert min(times) in [s.best_value for s in studies if any(t.value for t in s.trials)]


@contextmanager
def studies_in(file: Path) -> Iterator[list[optuna.Study]]:
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    names = optuna.get_all_study_names(storage)
    yield [optuna.load_study(study_name=name, storage=storage) for name in names]
    storage.remove_session()
    storage.engine.dispose()


def test_what_cannot_be_read_again_is_refused(
    capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    assert run_command(["db", "export", "/dev/null", "--format", "optuna", "--db", str(path)]) == 2
    assert "studies need one that can be read again" in capsys.readouterr().err


def test_a_step_is_a_parameter_with_what_it_is_told() -> None:
    steps = [
        ["Split", "out", "i0", [91, 2]], ["Split", "out", "i1", [4]], ["Unroll", "out", "i1.1"],
        ["Unroll", "out", "i1.1"], ["Reorder", "out", ["i0.0", "i1.0"]], ["Prefetch", "x", 3, True],
    ]  # fmt: skip
    assert parameters_of({"algorithm": "direct", "steps": steps}) == {
        "algorithm": "direct", "Split out i0": "91,2", "Split out i1": 4, "Unroll out i1.1": "yes",
        "Unroll out i1.1 #2": "yes", "Reorder out": "i0.0,i1.0", "Prefetch x": "3,true",
    }  # fmt: skip


def test_without_optuna_the_command_that_installs_it_is_named(
    capsys: pytest.CaptureFixture[str], path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    file = tmp_path / "studies.db"
    assert run_command(["db", "export", str(file), "--format", "optuna", "--db", str(path)]) == 2
    assert "pip install 'hlotune[optuna]'" in capsys.readouterr().err
    assert not file.exists()
