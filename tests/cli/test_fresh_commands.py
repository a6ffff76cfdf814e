"""Commands that begin from nothing, as a user's do: they import what they need, and end themselves.

Most tests of commands fork a process that has imported much already: `tests/support/commands.py`.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from hlotune.deploy.artifact import load_artifact
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


def fresh(*arguments: str) -> str:
    """What a command that ends well prints."""
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_file_is_tuned_benchmarked_and_applied_by_fresh_processes(tmp_path: Path) -> None:
    program, artifact = tmp_path / "convolution.mlir", tmp_path / "convolution.hlotune"
    program.write_text(CONVOLUTION, encoding="utf-8")
    options = [str(program), "--database", str(tmp_path / "tuning.db")]
    assert "whole program: " in fresh("run", *options, "--trials", "2")
    assert "conv" in fresh("bench", *options, "--pairs", "6")
    assert str(artifact) in fresh("apply", *options, "-o", str(artifact))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 32, 32, 64), dtype=np.float32)
    w = rng.standard_normal((3, 3, 1, 64), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    exact = np.einsum("bhwcij,ijc->bhwc", windows, w[:, :, 0])
    np.testing.assert_allclose(load_artifact(artifact)(x, w)[0], exact, rtol=1e-4, atol=1e-4)
