"""JAX imports SciPy for programs that call LAPACK, and for no others."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

RUN = """
import sys
import numpy as np
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
for path in sys.argv[1:]:
    (result,) = jitted(load(path))(np.diag(np.float32([1, 4, 9])))
    print(*np.asarray(result).ravel(), "scipy" in sys.modules)
"""


def printed(*paths: Path) -> list[str]:
    """What a process that has lowered nothing else prints of programs of files, one by one."""
    command = [sys.executable, "-c", RUN, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_lapack_is_there_for_a_program_that_calls_it_and_not_before(tmp_path: Path) -> None:
    plain, calling = tmp_path / "plain.mlir", tmp_path / "calling.mlir"
    functions: dict[Path, Callable[..., Any]] = {
        plain: lambda x: jnp.sqrt(x).sum(0),
        calling: jnp.linalg.eigvalsh,
    }
    for path, function in functions.items():
        text = jax.jit(function).lower(np.eye(3, dtype=np.float32)).as_text()
        assert ("@lapack_" in text) == (path == calling)
        path.write_text(text, encoding="utf-8")
    assert printed(plain, calling) == ["1.0 2.0 3.0 False", "1.0 4.0 9.0 True"]
