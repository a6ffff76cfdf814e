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

PRODUCT = """
func.func @main(%x: tensor<32x24xf32>, %w: tensor<24x40xf32>) -> tensor<32x40xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
    : (tensor<32x24xf32>, tensor<24x40xf32>) -> tensor<32x40xf32>
  return %y : tensor<32x40xf32>
}
"""


def fresh(*arguments: str) -> str:
    """What a command that ends well prints."""
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_file_is_tuned_benchmarked_and_applied_by_fresh_processes(tmp_path: Path) -> None:
    program, artifact = tmp_path / "product.mlir", tmp_path / "product.hlotune"
    program.write_text(PRODUCT, encoding="utf-8")
    options = [str(program), "--database", str(tmp_path / "tuning.db")]
    assert "whole program: " in fresh("run", *options, "--trials", "1")
    assert "dot 32x24x40" in fresh("bench", *options, "--pairs", "6")
    assert str(artifact) in fresh("apply", *options, "-o", str(artifact))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((32, 24), (24, 40)))
    np.testing.assert_allclose(load_artifact(artifact)(x, w)[0], x @ w, rtol=1e-4, atol=1e-5)
