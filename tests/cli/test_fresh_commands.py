"""Commands that begin from nothing, as a user's do: they import what they need, and end themselves.

Most tests of commands fork a process that has imported much already: `tests/support/commands.py`.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from hlotune.deploy.artifact import load_artifact
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.maintenance import check
from tests.support.libraries import tune_without
from tests.support.tree import ROOT

CONVOLUTION = """
func.func @main(%x: tensor<1x32x32x64xf32>, %w: tensor<3x3x1x64xf32>) -> tensor<1x30x30x64xf32> {
  %y = stablehlo.convolution(%x, %w)
    dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {}
    {batch_group_count = 1 : i64, feature_group_count = 64 : i64}
    : (tensor<1x32x32x64xf32>, tensor<3x3x1x64xf32>) -> tensor<1x30x30x64xf32>
  return %y : tensor<1x30x30x64xf32>
}
"""
"""One of single channels, for which XLA takes many times as long as any schedule."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program that two runs have tuned, one after the other."""

    folder: Path
    options: tuple[str, ...]
    """The program and its database, as commands take them."""
    said: tuple[list[str], list[str]]
    """What each run said while it went."""


def fresh(*arguments: str) -> str:
    """What a command that ends well prints."""
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def progress(without: str, *arguments: str) -> list[str]:
    """What a run that ends well says while it goes, but for that others run beside it."""
    done = tune_without(without, "run", *arguments)
    assert done.returncode == 0, done.stderr
    assert "whole program: " in done.stdout
    return [x for x in done.stderr.splitlines() if "another tuner is at work" not in x]


@pytest.fixture(scope="module")
def tuned_twice(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """The default model needs no torch, and the roofline no xgboost either."""
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "convolution.mlir").write_text(CONVOLUTION, encoding="utf-8")
    options = (str(folder / "convolution.mlir"), "--database", str(folder / "tuning.db"))
    run = (*options, "--trials", "2")
    first = progress("torch", *run)
    second = progress("torch,xgboost", *run, "--model", "roofline")
    return Tuned(folder, options, (first, second))


def test_a_second_run_starts_from_what_is_known_and_repeats_none_of_it(tuned_twice: Tuned) -> None:
    first, second = tuned_twice.said
    assert first[0].startswith("1 kernel, 0 trials known")
    assert second[0].startswith("1 kernel, 2 trials known")
    assert first[-1].startswith("2 trials in ") and second[-1].startswith("2 trials in ")
    with Database(tuned_twice.folder / "tuning.db", create=False) as database:
        ours = "select schedule from trials where schedule not like '%\"xla\"%'"
        tried = [row["schedule"] for row in database.query(ours)]
        assert len(tried) == len(set(tried)) == 4
        assert len(database.query("select * from finals")) == 2
        assert check(database).problems == ()


def test_a_program_file_that_was_tuned_is_benchmarked_and_applied(tuned_twice: Tuned) -> None:
    artifact = tuned_twice.folder / "convolution.hlotune"
    assert "conv" in fresh("bench", *tuned_twice.options, "--pairs", "6")
    assert str(artifact) in fresh("apply", *tuned_twice.options, "-o", str(artifact))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 32, 32, 64), dtype=np.float32)
    w = rng.standard_normal((3, 3, 1, 64), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    exact = np.einsum("bhwcij,ijc->bhwc", windows, w[:, :, 0])
    np.testing.assert_allclose(load_artifact(artifact)(x, w)[0], exact, rtol=1e-4, atol=1e-4)
