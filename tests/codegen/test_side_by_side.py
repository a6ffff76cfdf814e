"""Vectors of long expressions, computed beside each other where registers are few."""

from typing import Any

import numpy as np
import pytest

from hlotune.codegen.llvm import loops
from hlotune.codegen.llvm.idioms.side_by_side import MOST, has_long_chains, side_by_side
from hlotune.codegen.llvm.points import Lane
from hlotune.codegen.llvm.unrolled_copies import Copy
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.expr import Expr
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.elementwise import runs_here
from tests.support.maps import applied, of_each
from tests.support.reductions import called


def nest_of(value: Expr, target: str) -> LoopNest:
    compute = of_each(value, 4096)
    space = space_of(compute, TARGETS[target])
    return replay(compute, space.schedule(space.heuristic()), TARGETS[target])


def vectors(*starts: int, active: int = 8) -> list[Copy]:
    return [Copy({"i": k}, Lane("i", 8, active if k == starts[-1] else 8)) for k in starts]


def lanes(copies: tuple[Copy, ...]) -> list[tuple[int, int]]:
    return [(c.offsets["i"], c.lane.lanes) for c in copies if c.lane is not None]


def test_whole_vectors_behind_one_another_are_one_of_at_most_so_many_lanes() -> None:
    assert lanes(side_by_side(vectors(0, 8, 16))) == [(0, 24)]
    assert lanes(side_by_side(vectors(*range(0, 48, 8)))) == [(0, 8 * MOST), (8 * MOST, 16)]


def test_vectors_apart_and_those_that_end_early_stay_alone() -> None:
    assert lanes(side_by_side(vectors(0, 16))) == [(0, 8), (16, 8)]
    assert lanes(side_by_side(vectors(0, 8, active=5))) == [(0, 8), (8, 8)]


@pytest.mark.parametrize(
    ("names", "target", "beside"),
    [
        (("exponential",), "x86-64-v3", True),
        (("tanh", "exponential"), "x86-64", True),
        (("exponential",), "znver4", False),
        (("negate",), "x86-64-v3", False),
        (("exponential", "cbrt"), "x86-64-v3", False),
    ],
)
def test_only_long_chains_that_join_no_conditions_are_beside_each_other(
    names: tuple[str, ...], target: str, beside: bool
) -> None:
    nest = nest_of(applied(*names), target)
    assert has_long_chains(nest, nest.stage("out")) == beside


@pytest.mark.skipif(not runs_here("x86-64-v3"), reason="this processor has no AVX2")
@pytest.mark.parametrize("name", ["exponential", "erfc", "erf", "tanh", "logistic", "log"])
@pytest.mark.parametrize("elements", [4096, 1003, 21])
def test_results_are_those_of_vectors_one_behind_the_other(
    name: str, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, rng = of_each(applied(name), elements), np.random.default_rng(elements)
    target = TARGETS["x86-64-v3"]
    space = space_of(compute, target)
    schedule = space.schedule(space.heuristic())
    nest = replay(compute, schedule, target)
    assert has_long_chains(nest, nest.stage("out")), "nothing would be compared"
    x: Any = np.abs(3 * rng.standard_normal(elements)).astype(np.float32)
    (beside,) = called(compute, schedule.steps, [x], target=target)
    with monkeypatch.context() as patched:
        patched.setattr(loops, "has_long_chains", lambda *_: False)
        (apart,) = called(compute, schedule.steps, [x], target=target)
    np.testing.assert_array_equal(beside, apart)
