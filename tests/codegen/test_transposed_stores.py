"""Results whose vectors lie across them: blocks of rows turned in registers, and no scatters."""

import re
from typing import Any

import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.spaces.cpu_contraction.vector_axes import neighbours, scatter_cycles
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.machine_rates import COMMON
from tests.support.computes import Case, planes, whole

AVX512 = TARGETS["znver4"]
MOST_ROWS = host_target().vector_registers - 4
"""So many rows of one vector fit into a register tile on this processor."""


def across(case: Case, target: CpuTarget = AVX512, **rows: int) -> Schedule:
    """Vectors along the features, `i0`, with so many rows of the image in a register tile."""
    space = case.space(target)
    config = space.heuristic().copy()
    config[0] = next(
        k
        for k, s in enumerate(space.sketches)
        if s.vector == "i0" and not s.chunked and dict(s.packs) == {"a0": "none", "a1": "call"}
    )
    for k, knob in enumerate(space.knobs.knobs, 1):
        if knob.kind in ("register", "unroll"):
            wanted = rows.get(knob.axis, 1) if knob.kind == "register" else 1
            config[k] = knob.values.index(min(wanted, knob.values[-1]))
        elif knob.kind in ("clip", "peel"):
            config[k] = 0
    assert space.legal(config[None])[0]
    return space.schedule(config)


def text(case: Case, schedule: Schedule, target: CpuTarget = AVX512) -> str:
    return emit(replay(case.compute, schedule, target)).text


def is_right(case: Case, schedule: Schedule) -> None:
    built = build(case.compute, schedule, host_target())
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


@pytest.mark.parametrize("features", [16, 19, 40])
@pytest.mark.parametrize("rows", [2, 3, 7, 8, 14, 16, 21])
def test_rows_that_are_neighbours_are_stored_together(rows: int, features: int) -> None:
    """Blocks of a power of two and not, longer than a vector, and a ragged last one."""
    case = planes(3, 21 + rows // 2, 2, features)
    written = text(case, across(case, i2=rows))
    assert "masked.scatter" not in written or (21 + rows // 2) % rows == 1
    is_right(case, across(case, host_target(), i2=min(rows, MOST_ROWS)))


def test_rows_of_several_lines_of_the_image_are_blocks_of_their_own() -> None:
    case = planes(6, 12, 3, 24)
    assert "masked.scatter" not in text(case, across(case, i1=3, i2=6))
    is_right(case, across(case, host_target(), i1=3, i2=MOST_ROWS // 3))


def test_one_row_alone_is_scattered() -> None:
    case = planes(6, 12, 3, 24)
    assert "masked.scatter" in text(case, across(case))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64"])
def test_vectors_of_other_lengths_are_turned_too(target: str) -> None:
    case = planes(3, 12, 2, 16)
    schedule = across(case, TARGETS[target], i2=6)
    assert "masked.scatter" not in text(case, schedule, TARGETS[target])


def residual(dtype: Any) -> Case:
    """Two results of one reduction, one with what is added from an image of the same layout."""
    x, w = whole(1, 3, 5, 14, dtype=dtype), whole(20, 3, 3, 3, seed=1, dtype=dtype)
    skip = whole(1, 20, 5, 14, seed=2, dtype=dtype)

    def function(x: Any, w: Any, skip: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), [(1, 1)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        return y + skip

    return Case(f"residual {np.dtype(dtype)}", function, (x, w, skip))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_an_epilogue_and_other_elements_are_right(dtype: Any) -> None:
    case = residual(dtype)
    is_right(case, across(case, i2=7))


def upsampled() -> Case:
    """A transposed convolution: the phases of a row lie between one another."""
    x, w = whole(1, 5, 4, 6), whole(20, 5, 4, 4, seed=1)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), [(2, 2)] * 2, lhs_dilation=(2, 2),
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )  # fmt: skip

    return Case("upsampled", function, (x, w))


def test_phases_that_lie_between_one_another_are_one_block() -> None:
    """Axes: phases of the width and the height, features, height, width."""
    case = upsampled()
    space = case.space(AVX512)
    names = [a.name for a in space.contraction.parallel]
    features = next(a.name for a in space.contraction.parallel if a.extent == 20)
    config = space.heuristic().copy()
    config[0] = next(
        k
        for k, s in enumerate(space.sketches)
        if s.vector == features and not s.chunked and dict(s.packs)["a1"] == "call"
    )
    rows = {names[0]: 2, names[-1]: 6}
    for k, knob in enumerate(space.knobs.knobs, 1):
        if knob.kind in ("register", "unroll"):
            wanted = rows.get(knob.axis, 1) if knob.kind == "register" else 1
            config[k] = knob.values.index(wanted)
    schedule = space.schedule(config)
    assert "masked.scatter" not in text(case, schedule)
    is_right(case, schedule)


def test_rows_that_are_checked_alike_share_the_choice_of_their_pointer() -> None:
    """Planes so large that the choice stands inside the loop over them."""
    case = planes(130, 130, 16, 32)
    chosen = re.findall(r"select i1 .*@zeros", text(case, across(case, i2=8)))
    assert 0 < len(chosen) <= 4


def test_rows_of_a_tile_that_lie_together_are_counted_along_whole_axes() -> None:
    """In an image of 5 lines of 14, two lines lie together in a tile only where it takes whole
    lines.
    """
    c = residual(np.float32).space(AVX512).contraction
    tiles = np.array([[1, 1, 7], [1, 2, 7], [1, 2, 14], [1, 1, 1]])
    assert neighbours(c, "i0", tiles).tolist() == [7, 7, 28, 1]


def test_the_more_rows_lie_together_the_less_a_vector_costs() -> None:
    costs = scatter_cycles(np.array([1, 2, 4, 8, 16, 100]), 16, COMMON).tolist()
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == costs[-2]
