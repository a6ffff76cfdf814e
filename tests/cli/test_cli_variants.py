"""Several sizes of a dimension from the command line: variants of a program, in one file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from hlotune.deploy.artifact import load_artifact
from tests.support.tree import ROOT

pytestmark = pytest.mark.slow
WEIGHTS = np.random.default_rng(0).standard_normal((256, 512), dtype=np.float32)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def layer(x: Any) -> Any:
    return jax.nn.relu(x @ jnp.asarray(WEIGHTS))


def test_variants_are_tuned_and_one_file_has_them(tmp_path: Path) -> None:
    (b,) = export.symbolic_shape("b")
    symbolic: Any = jax.ShapeDtypeStruct
    made = export.export(jax.jit(layer), platforms=["cpu"])(symbolic((b, 256), jnp.float32))
    program, artifact = tmp_path / "layer.stablehlo", tmp_path / "layer.hlotune"
    program.write_bytes(made.mlir_module_serialized)
    options = [str(program), "--dim", "b=16,64", "--database", str(tmp_path / "tuning.db")]
    tuned = run("run", *options, "--trials", "4", "--quiet")
    assert tuned.returncode == 0, tuned.stderr
    assert "b=16:" in tuned.stderr and "b=64:" in tuned.stderr
    timed = run("bench", *options, "--pairs", "6")
    assert timed.returncode == 0, timed.stderr
    written = run("apply", *options, "-o", str(artifact), "--json")
    assert written.returncode == 0, written.stderr
    assert json.loads(written.stdout)["program"] == "2 variants"
    fast = load_artifact(artifact)
    for rows in (64, 16):
        x = np.random.default_rng(rows).standard_normal((rows, 256), dtype=np.float32)
        np.testing.assert_allclose(fast(x)[0], layer(x), rtol=1e-3, atol=1e-3)
    with pytest.raises(TypeError, match=r"\(16x256\) or \(64x256\), got \(5x256\)"):
        fast(np.zeros((5, 256), np.float32))
