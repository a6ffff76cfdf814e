"""Operations are counted before XLA optimizes a program, and behind that in steps and fusions."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.calling.operation_counts import counts_of, counts_of_hlo
from hlotune.hlo.frontends.program import argument, load

MODULE = """HloModule jit_f, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

%fused (p: f32[4,8]) -> f32[4] {
  %p = f32[4,8]{1,0} parameter(0)
  %c = f32[] constant(0)
  ROOT %r = f32[4]{0} reduce(%p, %c), dimensions={1}, to_apply=%sum
}

%body (t: (s32[], f32[4])) -> (s32[], f32[4]) {
  %t = (s32[], f32[4]{0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %v = f32[4]{0} get-tuple-element(%t), index=1
  %again = f32[4]{0} call(%v), to_apply=%part
  ROOT %out = (s32[], f32[4]{0}) tuple(%i, %again)
}

%part (q: f32[4]) -> f32[4] {
  %q = f32[4]{0} parameter(0)
  ROOT %e = f32[4]{0} exponential(%q), metadata={op_name="jit(f)/exp = x"}
}

%more (s: (s32[], f32[4])) -> pred[] {
  %s = (s32[], f32[4]{0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (x: f32[4,8]) -> (s32[], f32[4]) {
  %x = f32[4,8]{1,0} parameter(0)
  %f = f32[4]{0} fusion(%x), kind=kLoop, calls=%fused
  %n = s32[] constant(0)
  %begin = (s32[], /*index=1*/f32[4]{0}) tuple(%n, %f)
  ROOT %w = (s32[], f32[4]{0}) while(%begin), condition=%more, body=%body
}
"""


def test_calls_and_loops_are_steps_and_functions_of_scalars_are_not_counted() -> None:
    after, fused = counts_of_hlo(MODULE)
    assert after == {
        "parameter": 4, "fusion": 1, "constant": 2, "tuple": 2, "while": 1,
        "get-tuple-element": 2, "call": 1, "exponential": 1,
    }  # fmt: skip
    assert fused == {"parameter": 1, "constant": 1, "reduce": 1}


def test_a_text_that_is_no_module_has_no_operations() -> None:
    assert counts_of_hlo("") == ({}, {})


def test_a_program_is_counted_by_the_names_of_hlo() -> None:
    def f(x: jax.Array) -> Any:
        return lax.fori_loop(0, 9, lambda _, v: jnp.tanh(v @ v) + v.sum(), x)

    counts = counts_of(load(f, argument("f32[8,8]")))
    assert counts.before["dot"] == counts.before["while"] == counts.before["parameter"] == 1
    assert counts.before["tanh"] == 1 and "broadcast" in counts.before
    assert counts.after["while"] == 1
    assert counts.after.get("dot", 0) + counts.fused.get("dot", 0) == 1
    assert set(counts.names) == {*counts.before, *counts.after, *counts.fused}
