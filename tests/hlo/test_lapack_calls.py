"""JAX imports SciPy for programs that call LAPACK, and for no others."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

RUN = """
import sys
import numpy as np
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
(result,) = jitted(load(sys.argv[1]))(np.diag(np.float32([1, 4, 9])))
print(*np.asarray(result).ravel(), "scipy" in sys.modules)
"""


def printed(path: Path) -> list[str]:
    """What a process that has lowered nothing else prints of a program of a file."""
    command = [sys.executable, "-c", RUN, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("function", "wanted"),
    [(lambda x: jnp.sqrt(x).sum(0), "1.0 2.0 3.0"), (jnp.linalg.eigvalsh, "1.0 4.0 9.0")],
)
def test_lapack_is_there_for_a_program_that_calls_it(
    tmp_path: Path, function: Callable[..., Any], wanted: str
) -> None:
    path, calls = tmp_path / "program.mlir", function is jnp.linalg.eigvalsh
    text = jax.jit(function).lower(np.eye(3, dtype=np.float32)).as_text()
    assert ("@lapack_" in text) == calls
    path.write_text(text, encoding="utf-8")
    assert printed(path) == [*wanted.split(), str(calls)]
