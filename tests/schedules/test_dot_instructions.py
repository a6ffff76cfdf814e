"""Sums of products by instructions that take neighbours of a reduction at once: the rewriting."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.idioms.dot_instructions import dot
from hlotune.codegen.llvm.math.values import literal
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.dot_instructions.rewriting import dots, grouping
from hlotune.schedules.algorithms.dot_instructions.space import dots_space
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.ir.flops import executed_flops
from hlotune.schedules.steps.schedule import Schedule
from tests.codegen.test_contractions import is_right
from tests.support.computes import NHWC, Case, whole
from tests.support.contraction_cases import Drawn

HOST = host_target()
BOTH = replace(
    TARGETS["znver4"], features=tuple(sorted({*TARGETS["znver4"].features, "avx512vnni"}))
)
KINDS = {
    "bf16": (ml_dtypes.bfloat16, np.float32),
    "i8": (np.int8, np.int32),
}


def product(
    m: int, n: int, k: int, kind: str, *, spec: str = "mk,kn", frozen: bool = False
) -> Case:
    """`y[m, n] = sum over k`, the operands' axes in the order of `spec`."""
    element, total = KINDS[kind]
    sizes = dict(zip("mnk", (m, n, k), strict=True))
    left, right = spec.split(",")
    x = whole(*(sizes[a] for a in left)).astype(element)
    w = whole(*(sizes[a] for a in right), seed=1).astype(element)
    numbers = (((left.index("k"),), (right.index("k"),)), ((), ()))

    def function(x: Any, w: Any) -> Any:
        return lax.dot_general(x, w, numbers, preferred_element_type=total)

    name = f"{kind} {m}x{n}x{k} {spec}" + " frozen" * frozen
    if frozen:
        return Case(name, lambda x: function(x, jnp.asarray(w)), (x,))
    return Case(name, function, (x, w))


def window(kind: str, *, channels: int = 8, frozen: bool = False) -> Case:
    """A padded convolution of 3 taps an axis."""
    element, total = KINDS[kind]
    x = whole(1, 7, 9, channels).astype(element)
    w = whole(3, 3, channels, 21, seed=1).astype(element)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=NHWC, preferred_element_type=total
        )

    name = f"{kind} window {channels}" + " frozen" * frozen
    if frozen:
        return Case(name, lambda x: function(x, jnp.asarray(w)), (x,))
    return Case(name, function, (x, w))


def transposed(kind: str) -> Case:
    """A transposed convolution of an odd window, by NWC and WIO."""
    element, total = KINDS[kind]
    x, w = whole(1, 16, 8).astype(element), whole(3, 8, 16, seed=1).astype(element)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1,), [(-3, -4)], lhs_dilation=(2,),
            dimension_numbers=("NWC", "WIO", "NWC"), preferred_element_type=total,
        )  # fmt: skip

    return Case(f"{kind} transposed", function, (x, w))


CASES = {
    case.name: case
    for kind in KINDS
    for case in (
        product(37, 45, 32, kind),
        product(37, 45, 29, kind),
        product(37, 45, 32, kind, spec="mk,nk"),
        product(37, 45, 32, kind, spec="km,kn"),
        product(37, 45, 32, kind, frozen=True),
        window(kind),
        window(kind, channels=7, frozen=True),
    )
}


# the rewriting --------------------------------------------------------------------------------


def test_groups_that_lie_together_are_seen_as_elements_and_others_are_gathered() -> None:
    text = str(dots(product(4, 5, 6, "bf16").compute))
    assert "argument a0: 4x3xbf16x2" in text
    assert "sum over r0 dot(a0[i0, r0], a1[2*r0 .. +2, i1])" in text


def test_one_operand_of_bytes_loses_its_sign_and_the_others_sums_are_taken_off() -> None:
    text = str(dots(product(4, 5, 8, "i8").compute))
    assert "offset[i1] = sum over r0 dot(-2139062144, a1[4*r0 .. +4, i1])" in text
    assert "dot(xor(a0[i0, r0], -2139062144), a1[4*r0 .. +4, i1])" in text
    assert "y0[i0, i1] = subtract(acc[i0, i1], offset[i1])" in text


def test_the_sums_are_of_what_lies_across_the_reduction_constant_or_not() -> None:
    def summed(spec: str, *, frozen: bool) -> int | None:
        found = grouping(product(16, 16, 16, "i8", spec=spec, frozen=frozen).compute)
        assert found is not None
        return found.summed

    assert summed("mk,kn", frozen=False) == 1
    assert summed("km,nk", frozen=False) == 0
    assert summed("km,nk", frozen=True) == 0


def test_of_few_rows_and_many_weights_the_rows_are_summed_frozen_or_not() -> None:
    """Few sums are little work; those of constants are not, where they are read as they lie."""
    found = [grouping(product(2, 512, 64, "i8", frozen=f).compute) for f in (False, True)]
    assert [g.summed for g in found if g] == [0, 0]


def test_what_is_real_only_beside_the_weights_is_not_summed_alone() -> None:
    case = transposed("i8")
    assert any(x.beside for x in case.compute.stage("contract").loads)
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    found = space_of(case.compute, HOST)
    for config in found.firsts():
        schedule = found.schedule(config)
        is_right(Drawn(case, wanted), schedule, build(case.compute, schedule, HOST))


def test_the_reduction_that_wastes_least_and_lies_together_is_grouped() -> None:
    found = grouping(window("bf16").compute)
    assert found is not None and found.axis.name == "r2"


def test_as_many_operations_are_counted_as_without_groups() -> None:
    case = product(16, 16, 32, "bf16")
    nest = replay(case.compute, Schedule("dots"), BOTH)
    assert executed_flops(nest) == executed_flops(replay(case.compute, Schedule("direct"), BOTH))


def of_types(x: Any, w: Any, total: Any) -> Case:
    def function(x: Any, w: Any) -> Any:
        return lax.dot_general(x, w, (((1,), (0,)), ((), ())), preferred_element_type=total)

    return Case("types", function, (x, w))


@pytest.mark.parametrize(
    "case",
    [
        of_types(whole(8, 8), whole(8, 8), np.float32),
        of_types(whole(8, 8, dtype=np.float16), whole(8, 8, dtype=np.float16), np.float32),
        of_types(whole(8, 8, dtype=np.int8), whole(8, 8, dtype=np.int8), np.int8),
        of_types(whole(8, 8, dtype=np.uint8), whole(8, 8, dtype=np.uint8), np.int32),
        product(8, 8, 3, "i8"),
        product(1, 8, 16, "i8"),
    ],
    ids=["f32", "f16", "bytes in bytes", "without signs", "too short", "one row of bytes"],
)
def test_other_sums_have_no_groups(case: Case) -> None:
    assert grouping(case.compute) is None
    with pytest.raises(ScheduleError, match="dots: expected a sum of products of bf16 in f32 or"):
        dots(case.compute)


def test_a_reduction_with_a_stride_is_not_grouped() -> None:
    x, w = whole(4, 9).astype(np.int8), whole(5, 8, seed=1).astype(np.int8)
    case = Case("strided", lambda x, w: x[:, ::2] @ w[:, :5].T, (x, w))
    assert grouping(case.compute) is None


# targets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_only_targets_with_the_instruction_have_the_algorithm(name: str, kind: str) -> None:
    case, target = product(16, 16, 16, kind), TARGETS[name]
    has = (name, kind) in {("znver4", "bf16"), *(("sapphirerapids", k) for k in KINDS)}
    assert (dots_space(case.compute, target) is not None) == has
    assert isinstance(space_of(case.compute, target), AlgorithmsSpace) == has


def test_a_schedule_for_an_instruction_that_a_target_lacks_is_refused() -> None:
    case = product(16, 16, 16, "i8")
    wanted = "dots: expected a target with an instruction for groups of i8x4, got x86-64-v3"
    with pytest.raises(ScheduleError, match=wanted):
        replay(case.compute, Schedule("dots"), TARGETS["x86-64-v3"])


def test_a_dot_of_single_lanes_is_refused_in_words() -> None:
    f = Function(Module(), "define void @f()")
    a, b = (literal(1, kind, 1) for kind in ("ui8x4", "i8x4"))
    with pytest.raises(BuildError, match=r"vectors of 4, 8 or 16 lanes .* got 1 of ui8x4 and i8x4"):
        dot(f, a, b, literal(0, "i32", 1))
