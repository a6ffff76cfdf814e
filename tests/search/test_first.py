"""`tune run --first`: the first candidates of all kernels, without a search."""

from pathlib import Path

import numpy as np
import pytest

import hlotune
from hlotune.cli.main import run_command
from hlotune.search.first import CANDIDATES, first
from hlotune.tuning_logs.database import Database
from tests.support.tree import ROOT


def test_first_candidates_are_compared_recorded_and_applied(tmp_path: Path) -> None:
    database = tmp_path / "first.db"
    program = hlotune.load(f"{ROOT}/examples/mlp.py:model")
    result = first(program, database=database)
    assert len(result.kernels) == 3
    assert all(k.schedule is not None and not k.failures for k in result.kernels)
    assert 3 <= result.trials <= 3 * CANDIDATES
    tuned = hlotune.apply(program, database=database)
    assert len(tuned.replacements) <= 3
    params, x = program.example_args or ()
    assert np.isfinite(np.asarray(tuned(params, x))).all()
    with Database(database, read_only=True) as records:
        assert records.query("select finished from runs")[0]["finished"]


def test_it_has_no_limits(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["run", f"{ROOT}/examples/mlp.py:model", "--first", "--trials", "3"])
    assert code == 2
    assert "expected --first alone, got --trials too" in " ".join(capsys.readouterr().err.split())
