"""Programs without a contraction, tuned from the command line: their kernels are verified."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

pytestmark = pytest.mark.slow

FACTORIES = """
import jax, jax.numpy as jnp, numpy as np
X = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
ONES = np.ones(1024, np.float32)

def norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias

def softmax(): return jax.nn.softmax, (X,)
def layer_norm(): return norm, (X, ONES, ONES)
def gelu(): return (lambda x, bias: jax.nn.gelu(x + bias)), (X, ONES)
def rows(): return (lambda x: x.sum(1)), (X,)
def columns(): return (lambda x: x.sum(0)), (X,)
def argmax(): return (lambda x: jnp.argmax(x, -1)), (X,)
"""
LABELS = {
    "softmax": "softmax 256x1024",
    "layer_norm": "layer norm 256x1024",
    "gelu": "bias+mul+mul+scale+add+4 more 256x1024",
    "rows": "sum 256x1024->256",
    "columns": "sum 256x1024->1024",
    "argmax": "argmax 256x1024->256",
}


@pytest.mark.parametrize("name", LABELS)
def test_a_program_of_one_pattern_is_tuned_and_verified(name: str, tmp_path: Path) -> None:
    (tmp_path / "programs.py").write_text(FACTORIES)
    program = f"{tmp_path}/programs.py:{name}"
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", "run", program, "--trials", "4", "--json",
         "--database", str(tmp_path / "tuning.db")],
        cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kernels = {k["label"]: k for k in json.loads(done.stdout)["kernels"]}
    whole = kernels[LABELS[name]]
    assert whole["trials"] >= 4
    assert whole["failures"] == 0
    assert whole["decision"] in ("tuned", "kept xla")
