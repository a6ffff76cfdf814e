"""Vectors of which few lanes are in use: half as long, with the same results."""

import re
from collections import Counter

import pytest

from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.points import Lane, lane_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import Loop, StageNest
from tests.support.computes import conv, gemm

AVX512 = TARGETS["znver4"]


def in_vectors(lanes: int, *, along: str = "i") -> StageNest:
    """`y[i] = sum over r of x[i, r]` in vectors along an axis."""
    i, r = Affine.axis("i"), Affine.axis("r")
    stage = Stage(
        "s", (Axis("i", 64),), (Axis("r", 64),), (Store("y", (i,)),), (Load("x", (i, r), "f32"),),
        SUM,
    )  # fmt: skip
    outer = Loop(f"{along}.0", along, lanes, "serial")
    return StageNest(stage, (outer, Loop(f"{along}.1", along, 1, "vectorize")))


@pytest.mark.parametrize(
    ("lanes", "active", "wanted"),
    [(16, 16, 16), (16, 9, 16), (16, 8, 8), (16, 1, 8), (8, 4, 8), (4, 1, 4), (12, 3, 12)],
)
def test_a_vector_of_which_half_is_in_use_is_half_as_long(
    lanes: int, active: int, wanted: int
) -> None:
    assert lane_of(in_vectors(lanes), "i", active) == Lane("i", wanted, active)


def test_lanes_that_are_merged_in_the_end_stay_as_many() -> None:
    assert lane_of(in_vectors(16, along="r"), "r", 4) == Lane("r", 16, 4)


def multiply_adds(text: str) -> Counter[int]:
    """How many multiply-adds there are of so many lanes."""
    return Counter(int(n) for n in re.findall(r"call [^@\n]*@llvm\.fmuladd\.v(\d+)f32\(", text))


def test_half_a_vector_of_features_is_computed_in_half_of_one() -> None:
    """24 features are a vector of 16 lanes and one of 8, none of them masked."""
    case = gemm(196, 24, 36, frozen=True)
    space = case.space(AVX512)
    text = emit(replay(case.compute, space.schedule(space.heuristic()), AVX512)).text
    loops = text[text.index("@stage_0(") :]  # behind the entry that packs, whose rows are whole
    found = multiply_adds(loops)
    assert found[16] == found[8] > 0
    assert set(found) == {8, 16}
    assert not re.search(r"masked\.(load|store)\.v16f32", loops)


@pytest.mark.parametrize("features", [1, 3, 4, 8, 17, 20, 24, 25, 40, 56])
def test_results_are_right_whatever_is_left_for_the_last_vector(features: int) -> None:
    """With vectors of 64 bytes short ones are used for it; shorter vectors only have a mask."""
    for case in (gemm(9, features, 11, frozen=True), conv(5, 6, 7, features)):
        _, built = case.heuristic(host_target())
        verdict = verify(case.kernel, built, references=References(case.kernel))
        assert isinstance(verdict, Verdict), (case, verdict)
