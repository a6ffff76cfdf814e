"""Sums of f16 whose operands are widened as they are packed."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlotune.codegen.build import build
from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.widen_f16.rewriting import can_widen, widened
from hlotune.schedules.algorithms.widen_f16.space import widened_space
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps.schedule import Schedule
from tests.codegen.test_contractions import is_right
from tests.schedules.test_dot_instructions_space import binds
from tests.support.computes import Case, whole
from tests.support.contraction_cases import Drawn, contractions

HOST, AVX512 = host_target(), TARGETS["znver4"]


def product(m: int, n: int, k: int) -> Case:
    arguments = whole(m, k, dtype=np.float16), whole(k, n, seed=1, dtype=np.float16)
    return Case(f"f16 {m}x{n}x{k}", lambda x, w: x @ w, arguments)


def tiles(text: str) -> list[str]:
    """The blocks that multiply and add."""
    blocks = re.split(r"\n(?=\w+:)", text)
    found = [b for b in blocks if re.search(r"call .*@llvm\.fmuladd", b)]
    assert found, text
    return found


def test_loads_widen_and_nothing_is_converted_where_they_are_multiplied() -> None:
    text = str(widened(product(4, 5, 6).compute))
    assert "sum over r0 multiply(a0[i0, r0], a1[r0, i1])" in text


def test_sums_of_other_types_are_not_widened() -> None:
    case = Case("f32", lambda x, w: x @ w, (whole(4, 6), whole(6, 5)))
    assert not can_widen(case.compute)
    with pytest.raises(ScheduleError, match="widened: expected a sum of products of f16 in f32"):
        replay(case.compute, Schedule("widened"), AVX512)


def test_operands_that_are_used_often_are_packed_and_the_tile_converts_nothing() -> None:
    case = product(64, 64, 64)
    found = space_of(case.compute, AVX512)
    schedule = found.schedule(found.heuristic())
    nest = replay(case.compute, schedule, AVX512)
    assert schedule.algorithm == "widened"
    assert {nest.compute.tensor(f"{x}.packed").dtype for x in ("a0", "a1")} == {"f32"}
    text = emit(nest).text
    assert "fpext" in text and not any("fpext" in tile for tile in tiles(text))
    assert "vcvtph2ps" in assembly(text, AVX512)


def test_without_widening_the_tile_converts_its_operands() -> None:
    case = product(64, 64, 64)
    space = case.space(AVX512)
    text = emit(replay(case.compute, space.schedule(space.heuristic()), AVX512)).text
    assert any("fpext" in tile for tile in tiles(text))


def test_arrays_and_nests_agree() -> None:
    case = product(37, 45, 29)
    found = widened_space(case.compute, AVX512)
    assert found is not None
    binds(case, found, found.sample(16, np.random.default_rng(0)))


def test_the_first_candidate_agrees_with_the_oracle() -> None:
    case = product(37, 45, 29)
    found = widened_space(case.compute, HOST)
    assert found is not None
    built = build(case.compute, found.schedule(found.heuristic()), HOST)
    assert isinstance(verify(case.kernel, built, thorough=True), Verdict)


widened_ones = contractions(st.just("f16")).filter(
    lambda drawn: widened_space(drawn.case.compute, HOST) is not None
)


@settings(max_examples=6)
@given(widened_ones, st.integers(0, 2**32))
def test_any_widened_sum_gives_its_numbers(drawn: Drawn, seed: int) -> None:
    found = widened_space(drawn.case.compute, HOST)
    assert found is not None
    for config in (found.heuristic(), *found.sample(2, np.random.default_rng(seed))):
        schedule = found.schedule(config)
        is_right(drawn, schedule, build(drawn.case.compute, schedule, HOST))
