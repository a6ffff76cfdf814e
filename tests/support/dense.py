"""A small layer with records of its kernels, for what jits it."""

from pathlib import Path
from typing import Any

import jax
import numpy as np

from hlotune.hlo.frontends.program import load
from tests.support.applied import DIRECT, final, first_sites, normal, recorded

X, W = normal(8, 16), normal(16, 32)


def dense(x: Any, w: Any, *, scale: float = 1.0, relu: bool = False) -> Any:
    """A product that may be clipped."""
    y = x @ w * scale
    return jax.nn.relu(y) if relu else y


def recorded_dense(folder: Path) -> Path:
    """A database in which the kernels of `dense` have records, clipped or not."""
    programs = [load(lambda x, w, r=relu: dense(x, w, relu=r), X, W) for relu in (False, True)]
    programs.append(load(lambda x, w, s: dense(x, w, scale=s), X, W, 2.0))
    found = [first_sites(program)["dot0"] for program in programs]
    return recorded(folder / "tuning.db", {site: final(DIRECT) for site in found})


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
