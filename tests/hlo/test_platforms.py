"""Functions that JAX exports for several platforms take no number of one here."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.mlir.platform_index import platforms_of
from hlotune.schedules.errors import ProgramError

pytestmark = pytest.mark.smoke

X, N = argument("f32[4,8]"), argument("i32[]")


def plain(x: Any, n: Any) -> Any:
    return jnp.tanh(x) + n


def by_platform(x: Any, n: Any) -> Any:
    """Other numbers on each platform, also inside of a loop."""

    def one(_: Any, y: Any) -> Any:
        return lax.platform_dependent(y, cpu=lambda y: y + 2, default=jnp.cos)

    return lax.fori_loop(0, n, one, lax.platform_dependent(x, tpu=jnp.exp, default=jnp.sin))


def exported(function: Any, platforms: Sequence[str]) -> export.Exported:
    return export.export(jax.jit(function), platforms=platforms)(X, N)


def serialized(made: export.Exported) -> bytes:
    """A FlatBuffer with the names of platforms, as the package writes it that may not be here."""
    texts = [struct.pack("<I", len(p)) + p.encode() + bytes(4 - len(p) % 4) for p in made.platforms]
    names = struct.pack("<12H", 24, 8, *[0] * 9, 4)
    vector = 4 * len(texts) + 4
    ends = np.cumsum([vector, *map(len, texts)])
    offsets = [int(end) - 4 - 4 * k for k, end in enumerate(ends[:-1])]
    table = struct.pack("<iII", len(names), 4, len(texts)) + struct.pack(
        f"<{len(texts)}I", *offsets
    )
    module = made.mlir_module_serialized
    head = struct.pack("<I", 4 + len(names)) + names + table + b"".join(texts)
    return head + struct.pack("<I", len(module)) + module


@pytest.mark.parametrize("platforms", [("cpu", "cuda", "tpu"), ("tpu", "cuda", "cpu")])
def test_branches_are_those_of_the_host(tmp_path: Path, platforms: Sequence[str]) -> None:
    path = tmp_path / "by_platform.exported"
    data = serialized(exported(by_platform, platforms))
    assert platforms_of(data) == platforms
    path.write_bytes(data)
    program = load(path)
    assert [t.shape for t in program.graph.argument_types] == [(4, 8), ()]
    x = np.linspace(-2, 2, 32, dtype=np.float32).reshape(4, 8)
    (got,) = jitted(program)(x, np.int32(3))
    np.testing.assert_allclose(got, np.sin(x) + 6, rtol=1e-6)


@pytest.mark.parametrize("form", ["text", "bytecode"])
def test_a_number_that_changes_nothing_is_left_out(tmp_path: Path, form: str) -> None:
    path, made = tmp_path / "plain.mlir", exported(plain, ("cuda", "cpu"))
    if form == "text":
        path.write_text(made.mlir_module())
    else:
        path.write_bytes(made.mlir_module_serialized)
    assert "_platform_index" in made.mlir_module()
    x = np.ones((4, 8), np.float32)
    (got,) = jitted(load(path))(x, np.int32(3))
    np.testing.assert_allclose(got, np.tanh(x) + 3, rtol=1e-6)


def test_symbolic_dimensions_have_the_places_of_the_functions_own_arguments(tmp_path: Path) -> None:
    (rows,) = export.symbolic_shape("rows")
    shape: Any = jax.ShapeDtypeStruct
    made = export.export(jax.jit(by_platform), platforms=("cuda", "cpu"))(
        shape((rows, 8), jnp.float32), N
    )
    path = tmp_path / "rows.exported"
    path.write_bytes(serialized(made))
    with pytest.raises(ProgramError, match=r"got none for rows \(arg0 is rows x 8\)"):
        load(path)
    (got,) = jitted(load(path, dims={"rows": 2}))(np.zeros((2, 8), np.float32), np.int32(1))
    np.testing.assert_allclose(got, np.full((2, 8), 2.0))


def test_a_program_for_other_platforms_or_unknown_ones_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "by_platform.mlir"
    for content, what in (
        (serialized(exported(by_platform, ("cuda", "tpu"))), "one for cuda, tpu"),
        (
            exported(by_platform, ("cpu", "cuda")).mlir_module_serialized,
            "does not name them",
        ),
    ):
        path.write_bytes(content)
        with pytest.raises(
            ProgramError, match=rf"{what}, whose .*platforms=\['cpu'\], or save what"
        ):
            load(path)


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"module @m {}\n" * 9, b"\x04\0\0\0" * 99])
def test_other_data_names_no_platforms(data: bytes) -> None:
    assert platforms_of(data) == ()
