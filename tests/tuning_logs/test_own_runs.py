"""A database never chooses which Python code `tune resume` runs."""

import json
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.own_runs import forget, is_own, remember
from tests.support.recorded import TARGET, TOOLCHAIN, NamedProgram

RUN = "5f0c" * 8


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_is_own_from_its_beginning_to_its_end() -> None:
    assert not is_own(RUN, "mlp.py:model")
    remember(RUN, "mlp.py:model")
    assert is_own(RUN, "mlp.py:model")
    forget(RUN)
    assert not is_own(RUN, "mlp.py:model")
    forget(RUN)


def test_other_code_is_not_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(RUN, "mlp.py:model")
    assert not is_own(RUN, "mlp.py:other")
    assert not is_own("ab" * 16, "mlp.py:model")
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    assert not is_own(RUN, "mlp.py:model"), "a relative path means another file here"


def test_another_machine_with_the_same_home_has_not_begun_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember(RUN, "mlp.py:model")
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    assert not is_own(RUN, "mlp.py:model")


def test_an_id_that_is_a_path_leads_nowhere(home: Path) -> None:
    (home / "cache" / "hlotune").mkdir(parents=True)
    remember("../../note", "mlp.py:model")
    assert not is_own("../../note", "mlp.py:model")
    assert list(home.rglob("*.json")) == []


def test_where_nothing_can_be_noted_no_run_is_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    remember(RUN, "mlp.py:model")
    assert not is_own(RUN, "mlp.py:model")


def strangers(folder: Path, source: str) -> str:
    """A database with an unfinished run of a program; returns the run's id."""
    options = {"searcher": "random", "model": "", "model_digest": None, "trials": 4}
    with Database(folder / "tuning.db") as database:
        return database.start_run(
            NamedProgram("ab" * 16, "evil", source), TARGET, TOOLCHAIN,
            options={**options, "budget_s": None},
        )  # fmt: skip


EVIL = 'import pathlib\n\npathlib.Path("ran").touch()\n\n\ndef model():\n    raise SystemExit(3)\n'


@pytest.mark.parametrize("source", ["evil.py:model", "evil:model"])
def test_resume_does_not_run_the_code_that_a_strangers_database_names(
    source: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "evil.py").write_text(EVIL)
    run = strangers(home, source)
    assert run_command(["resume", run, "--database", "tuning.db"]) == 2
    said = capsys.readouterr().err
    assert f"expected a run that this user began here, got {run}" in said
    assert f"name it: tune resume {run[:12]} {source}" in said
    assert said.count("\n") == 1
    assert not (home / "ran").exists()


@pytest.mark.parametrize("named", [False, True])
def test_resume_runs_code_that_is_named_or_own(
    named: bool, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "evil.py").write_text(EVIL)
    run = strangers(home, "evil.py:model")
    if not named:
        remember(run, "evil.py:model")
    words = ["resume", run, *(["evil.py:model"] if named else []), "--database", "tuning.db"]
    run_command(words)
    assert (home / "ran").exists()
    assert "that this user began" not in capsys.readouterr().err


def test_a_file_that_is_no_code_needs_no_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = strangers(home, "missing.mlir")
    assert run_command(["resume", run, "--database", "tuning.db"]) == 2
    assert "missing.mlir" in capsys.readouterr().err


def test_a_note_has_nothing_of_the_program_but_its_name(home: Path) -> None:
    remember(RUN, "mlp.py:model")
    (note,) = home.rglob("*.json")
    assert json.loads(note.read_text()).keys() == {"machine", "source", "folder"}
