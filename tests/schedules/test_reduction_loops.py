"""How first candidates walk reductions: chunks, orders, rows that are asked for ahead."""

import re
from dataclasses import replace
from math import prod
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.steps.steps import Stream
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import NHWC, Case, conv, gemm, planes, whole

TARGET = TARGETS["znver4"]
FEW_THREADS = replace(TARGET, threads=2)


def weight_gradient(
    size: int, inputs: int, outputs: int, window: int = 3, images: int = 1, stride: int = 1
) -> Case:
    """The gradient of a convolution's weights, with padding that keeps the size of the image."""
    shape = jax.ShapeDtypeStruct((window, window, inputs, outputs), np.float32)  # type: ignore[no-untyped-call]
    y = whole(images, -(-size // stride), -(-size // stride), outputs, seed=1)
    x = whole(images, size, size, inputs)

    def function(x: Any, y: Any) -> Any:
        def forward(w: Any) -> Any:
            return lax.conv_general_dilated(x, w, (stride,) * 2, "SAME", dimension_numbers=NHWC)

        return jax.linear_transpose(forward, shape)(y)[0]

    return Case(f"weight gradient {size} {inputs} {outputs}", function, (x, y))


def over_rows(rows: int, m: int, n: int) -> Case:
    """`y[m, n] = sum over rows of x[row, m] * g[row, n]`, as gradients of dense layers are."""
    x, g = whole(rows, m), whole(rows, n, seed=1)
    return Case("over rows", lambda x, g: x.T @ g, (x, g))


def first(case: Case, target: CpuTarget = TARGET) -> tuple[CpuSpace, LoopNest]:
    space = case.space(target)
    return space, replay(case.compute, space.schedule(space.heuristic()), target)


def is_right(case: Case, target: CpuTarget) -> None:
    space = case.space(target)
    built = build(case.compute, space.schedule(space.heuristic()), target)
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


def test_an_operand_across_the_reduction_is_read_in_chunks_where_the_cache_is_small() -> None:
    """Each of its lines has parts for several tiles, which take them while the line is near."""
    small = replace(host_target(), l2_bytes=16 << 10)
    case = weight_gradient(14, 32, 32)
    space, _ = first(case, small)
    tiling = space.tiling(space.heuristic())
    assert space.sketches[space.heuristic()[0]].chunked
    steps = [tiling.steps[r] * tiling.unroll[r] for r in ("r0", "r1")]
    assert steps[1] == 14 and steps[0] < 14
    assert all(tiling.group[a.name] == 1 for a in space.contraction.parallel)
    is_right(case, small)


def test_an_operand_across_the_reduction_that_the_cache_holds_is_read_whole() -> None:
    space, _ = first(weight_gradient(14, 32, 32))
    assert not space.sketches[space.heuristic()[0]].chunked


@pytest.mark.parametrize(
    ("size", "inputs", "outputs", "window", "stride"),
    [(28, 64, 128, 3, 1), (14, 256, 256, 3, 1), (56, 3, 64, 7, 2)],
)
def test_gradients_of_weights_go_along_lines_and_take_images_one_after_the_other(
    size: int, inputs: int, outputs: int, window: int, stride: int
) -> None:
    """The same places of images lie in the same sets of the first cache, which has few ways."""
    space, _ = first(weight_gradient(size, inputs, outputs, window, 32, stride), FEW_THREADS)
    config = space.heuristic()
    tiling, sketch = space.tiling(config), space.sketches[config[0]]
    assert tiling.reduce_order == ("r2", "r0", "r1")
    assert sketch.chunked and {level for _, level in sketch.packs} == {"none"}
    chunk = {r: tiling.steps[r] * tiling.unroll[r] for r in tiling.reduce_order}
    assert chunk["r1"] >= -(-size // stride) and chunk["r2"] == 1
    assert prod(chunk.values()) <= 128


def test_convolutions_whose_weights_are_far_are_not_read_in_short_chunks() -> None:
    """Along their channels images are read in one stream."""
    space, _ = first(conv(28, 28, 128, 256, images=4), FEW_THREADS)
    tiling = space.tiling(space.heuristic())
    assert tiling.reduce_order == ("r0", "r1", "r2")
    assert not space.sketches[space.heuristic()[0]].chunked


def test_what_the_second_cache_holds_of_all_images_is_packed_by_a_task() -> None:
    """Lines of seven places, whose neighbours lie in pages of their own."""
    space, _ = first(weight_gradient(7, 64, 512, images=32), FEW_THREADS)
    assert [level for _, level in space.sketches[space.heuristic()[0]].packs] == ["none", "task"]
    space, _ = first(weight_gradient(7, 64, 512, images=128), FEW_THREADS)
    assert {level for _, level in space.sketches[space.heuristic()[0]].packs} == {"none"}


def test_gradients_of_weights_over_images_are_right() -> None:
    small = replace(host_target(), l2_bytes=16 << 10)
    is_right(weight_gradient(15, 8, 128, images=3, stride=2), small)
    is_right(weight_gradient(16, 3, 64, 5, images=2), small)


def test_tiles_of_what_lies_across_are_high_rather_than_wide() -> None:
    """A step has a line for up to 16 rows, and one for each vector, on a core that multiplies
    faster than its second cache gives lines."""
    space, _ = first(weight_gradient(28, 128, 128), replace(TARGET, isa="znver5"))
    tiling = space.tiling(space.heuristic())
    assert tiling.register["i2"] > tiling.register["i3"]


def test_neighbours_of_the_inner_reduction_decide_whether_copying_repays() -> None:
    """Rows of an image lie far apart, and its points side by side."""
    space, _ = first(weight_gradient(56, 64, 64))
    assert dict(space.sketches[space.heuristic()[0]].packs) == {"a0": "none", "a1": "none"}


def test_what_is_packed_ahead_is_read_in_the_order_in_which_it_lies() -> None:
    space, _ = first(planes(28, 28, 64, 64))
    tiling = space.tiling(space.heuristic())
    assert tiling.reduce_order == ("r2", "r0", "r1")
    assert tiling.unroll["r1"] == 3 and "r1" not in tiling.clip
    plain, _ = first(conv(28, 28, 64, 64))
    assert plain.tiling(plain.heuristic()).reduce_order == ("r0", "r1", "r2")


def test_tiles_as_long_as_a_row_are_preferred_for_the_padding_that_they_leave_out() -> None:
    space, _ = first(planes(7, 7, 64, 64))
    tiling = space.tiling(space.heuristic())
    assert 7 in (tiling.register["i1"], tiling.register["i2"])


@pytest.mark.parametrize("features", [1, 3, 7])
def test_few_features_are_right_along_other_axes(features: int) -> None:
    is_right(conv(9, 20, 8, features), host_target())


def requests(nest: LoopNest) -> int:
    return len(re.findall(r"call void @llvm.prefetch", emit(nest).text))


def streamed(case: Case, **tiling: dict[str, int]) -> LoopNest:
    """The nest of a chunked schedule that asks for rows, nothing packed."""
    space = case.space(TARGET)
    config = space.heuristic()
    plain = tuple((tensor, "none") for tensor, _ in space.sketches[config[0]].packs)
    sketch = next(s for s in space.sketches if s.chunked and s.packs == plain)
    config[0] = space.sketches.index(sketch)
    names = {k: [n.axis for n in space.knobs.knobs if n.kind == k] for k in tiling}
    for kind, values in tiling.items():
        space.knobs.put(config, kind, np.array([values[a] for a in names[kind]]))
    space.knobs.put(config, "prefetch", np.array([2]))
    return replay(case.compute, space.schedule(config), TARGET)


def even(rows: int) -> LoopNest:
    """Four rows of two vectors, four steps written out: no ragged end anywhere."""
    return streamed(
        gemm(rows, 512, 256), register={"i0": 4, "i1": 2}, block={"i0": rows // 4, "i1": 4},
        group={"i0": 1, "i1": 1}, unroll={"r0": 4}, steps={"r0": 4},
    )  # fmt: skip


def test_each_step_asks_for_its_own_line_of_the_next_chunk() -> None:
    """Four steps read two vectors each; the other operand lies along the reduction."""
    assert [s for s in even(4).stage("contract").stream] == [("a1", "r0.0")]
    assert requests(even(4)) == 4 * 2


def test_tiles_that_read_the_same_rows_share_the_requests() -> None:
    assert requests(even(8)) == 4 * 2 // 2
    assert requests(even(16)) == 4 * 2 // 4


def test_both_operands_are_asked_for_where_both_lie_across() -> None:
    nest = streamed(
        over_rows(256, 64, 64), register={"i0": 4, "i1": 2}, block={"i0": 16, "i1": 2},
        group={"i0": 1, "i1": 1}, unroll={"r0": 4}, steps={"r0": 4},
    )  # fmt: skip
    assert [tensor for tensor, _ in nest.stage("contract").stream] == ["a0", "a1"]


def test_long_sums_over_rows_ask_for_the_next_ones() -> None:
    case = over_rows(100_000, 64, 64)
    _, nest = first(case)
    assert nest.stage("contract").stream
    assert requests(nest) > 0
    is_right(over_rows(4099, 20, 33), replace(host_target(), l2_bytes=32 << 10))


def test_a_schedule_that_asks_for_rows_is_located() -> None:
    space, _ = first(over_rows(100_000, 64, 64))
    schedule = space.schedule(space.heuristic())
    assert any(isinstance(s, Stream) for s in schedule.steps)
    found = space.locate(schedule)
    assert found is not None and space.schedule(found) == schedule
