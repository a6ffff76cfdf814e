"""HLO text of 2018 is a program, as XLA.jl and TensorFlow of that time printed it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.file_kinds import is_hlo_text
from hlotune.hlo.frontends.old_hlo import in_todays_syntax
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError

pytestmark = pytest.mark.smoke

DENSE = """c1 {
  x.0 = f32[] parameter(0)
  zero = f32[] constant(0)
  ROOT m = f32[] maximum(x.0,
      zero)
}

ENTRY dense {
  W = f32[10,20]{1,0} parameter(0)
  x = f32[20]{0} parameter(1)
  b = f32[10]{0, 1} parameter(2)
  d = f32[10]{0} dot(W, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  a = f32[10]{0} add(d, b)
  ROOT r = f32[10]{0} map(a), dimensions={0}, to_apply=c1
}
"""
"""As in the listing of arXiv 1810.09868: no first line, and a layout of too many dimensions."""
SOFTMAX = """HloModule softmax:

larger { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY softmax {
  x = f32[4,6]{1,0} parameter(0)
  least = f32[] constant(-inf)
  m = f32[4]{0} reduce(x, least), dimensions={1}, to_apply=larger
  ms = f32[4,6]{1,0} broadcast(m), dimensions={0}
  d = f32[4,6]{1,0} subtract(x, ms)
  e = f32[4,6]{1,0} exponential(d)
  zero = f32[] constant(0)
  s = f32[4]{0} reduce(e, zero), dimensions={1}, to_apply=sum
  ss = f32[4,6]{1,0} broadcast(s), dimensions={0}
  ROOT r = f32[4,6]{1,0} divide(e, ss)
}
"""
X = np.arange(16, dtype=np.float32).reshape(4, 4)[::-1].copy()


def program(text: str, folder: Path) -> Program:
    path = folder / "old.txt"
    path.write_text(text)
    return load(path)


def results(text: str, folder: Path, *arguments: Any) -> list[Any]:
    return list(map(np.asarray, jax.tree.leaves(jitted(program(text, folder))(*arguments))))


def entry(lines: str) -> str:
    return f"HloModule a:\n\nENTRY e {{\n  x = f32[4,4]{{1,0}} parameter(0)\n  {lines}\n}}\n"


def test_the_dense_layer_of_the_paper_loads_and_has_a_kernel(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w, x, b = (rng.standard_normal(s).astype(np.float32) for s in ((10, 20), (20,), (10,)))
    (got,) = results(DENSE, tmp_path, w, x, b)
    np.testing.assert_allclose(got, np.maximum(w @ x + b, 0), rtol=1e-5, atol=1e-5)
    assert "dot" in next(iter(sites(program(DENSE, tmp_path)))).label


def test_its_softmax_is_one_kernel(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    (got,) = results(SOFTMAX, tmp_path, x)
    np.testing.assert_allclose(got, jax.nn.softmax(x), rtol=1e-6)
    assert any("softmax" in site.label for site in sites(program(SOFTMAX, tmp_path)))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("ROOT y = pred[4,4]{1,0} less-than(f32[4,4]{1,0} x, f32[4,4]{1,0} x)", X < X),
        ("ROOT y = pred[4,4] greater-than-or-equal-to(x, x), metadata={op_name=\"a\"}", X >= X),
        ("ROOT %y = pred[4,4] not-equal-to(%x, %x)", X != X),
        ("c = f32[2] constant(f32[2] {1, 2})  ROOT y = f32[4,2] broadcast(c), dimensions={1}",
         np.broadcast_to([1, 2], (4, 2))),
        ("ROOT y = s32[4]{0} iota()", np.arange(4)),
        ("y=f32[4,4]{1,0} add(x, x)\n  ROOT z=f32[4,4]{1,0} add(y, x)", 3 * X),
        ("ROOT y = f32[4,4] cross-replica-sum(x)", X),
        ("ROOT y = f32[4,4] sort(x), dimensions={0}", np.sort(X, axis=0)),
        ("i = s32[2]{0} constant({1, 2})\n  ROOT y = f32[2,1]{1,0} dynamic-slice(f32[4,4]{1,0} x, "
         "s32[2]{0} i), dynamic_slice_sizes={2,1}", X[1:3, 2:3]),
        ("i = s32[2] constant({1, 0})  u = f32[1,4] slice(x), slice={[0:1], [0:4]}\n"
         "  ROOT y = f32[4,4] dynamic-update-slice(x, u, i)", X[[0, 0, 2, 3]]),
        ("i = s32[3] constant({2, 0, 2})  ROOT y = f32[3,4] gather(x, i), output_window_dims={1}, "
         "elided_window_dims={0}, gather_dims_to_operand_dims={0}, index_vector_dim=1, "
         "window_bounds={1,4}", X[[2, 0, 2]]),
    ],
)  # fmt: skip
def test_an_operation_of_2018_means_what_it_meant(
    lines: str, expected: Any, tmp_path: Path
) -> None:
    (got,) = results(entry(lines), tmp_path, X)
    np.testing.assert_array_equal(got, expected)


def test_a_text_of_today_is_left_as_it_is() -> None:
    def some(x: Any) -> Any:
        return jax.lax.dynamic_slice(jnp.sort(x), (1,), (2,)) < jax.lax.iota("float32", 2)

    lowered = jax.jit(some).lower(X[0])
    text = lowered.as_text("hlo")
    assert in_todays_syntax(text) == text


def test_an_operation_that_is_gone_is_refused_by_its_name(tmp_path: Path) -> None:
    gone = entry(
        "t = (f32[4,4]) tuple(x)  p = pred[] constant(true)\n  s = (f32[4,4]) tuple-select(p, t, t)"
        "  ROOT y = f32[4,4] get-tuple-element(s), index=0"
    )
    with pytest.raises(ProgramError, match=r"expected HLO text, .*Unknown opcode: tuple-select"):
        program(gone, tmp_path)


HLO_TEXTS = (
    "c1 {\n x = f32[] parameter(0)", "ENTRY e {", "%f (p: f32[]) -> f32[] {", "// a\nHloModule m",
)  # fmt: skip
MLIR_TEXTS = ("module {\n}", "module @a {", "func.func @main() {", "#loc = loc(unknown)\n")


def test_hlo_is_told_from_mlir_by_how_it_begins() -> None:
    assert all(is_hlo_text(text.encode()) for text in HLO_TEXTS)
    assert not any(is_hlo_text(text.encode()) for text in MLIR_TEXTS)
