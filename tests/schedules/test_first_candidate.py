"""The first candidate: legal, built and right for any shape, by a formula that knows no shape."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.spaces.cpu_contraction.sketch import Tiling, packs_at_load, streams_of
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import (
    REAL,
    Case,
    batched,
    conv,
    depthwise,
    gemm,
    named,
    planes,
    sized,
    whole,
)

SHAPES = 100


@cache
def random_case(seed: int, largest: int) -> Case:
    """A product, a batch of them or a convolution; any extents, some ones and powers of two."""
    rng = np.random.default_rng(seed)

    def extent(most: int = largest) -> int:
        choices = (
            1,
            int(rng.integers(1, most + 1)),
            2 ** int(rng.integers(0, int(np.log2(most)) + 1)),
        )
        return choices[rng.integers(1, 3) if rng.random() < 0.9 else 0]

    if seed % 4 == 0:
        return gemm(extent(), extent(), extent(), frozen=bool(seed % 8))
    if seed % 4 == 1:
        return batched(extent(6), extent(), extent(), extent())
    if seed % 4 == 2:
        return depthwise(2 + extent(largest // 4), 2 + extent(largest // 4), extent())
    window, stride = int(rng.choice([1, 3, 5, 7])), int(rng.integers(1, 3))
    height, width = (window + extent(largest // 4) for _ in range(2))
    return conv(
        height, width, extent(64), extent(), window=window, stride=stride, pad=window // 2
    )  # fmt: skip


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_the_first_candidate_of_any_shape_is_legal(target: CpuTarget, half: int) -> None:
    for seed in range(half * SHAPES // 2, (half + 1) * SHAPES // 2):
        case = random_case(seed, 256)
        space = case.space(target)
        config = space.heuristic()
        assert space.legal(config[None])[0], case
        replay(case.compute, space.schedule(config), target)


@pytest.mark.parametrize("seed", range(0, SHAPES, 5))
def test_the_first_candidate_is_right(seed: int) -> None:
    case = random_case(seed, 40)
    _, built = case.heuristic(host_target())
    verdict = verify(case.kernel, built, references=References(case.kernel))
    assert isinstance(verdict, Verdict), (case, verdict)


MANY: dict[str, Callable[[], Case]] = {
    "products": lambda: batched(65_536, 3, 4, 5),
    "products of one row": lambda: batched(65_536, 1, 8, 16),
    "images": lambda: conv(6, 5, 3, 8, images=1024),
    "images of one channel": lambda: conv(7, 7, 8, 8, groups=8, images=1024),
}
"""Kernels of huge batches whose members are tiny."""


@pytest.mark.parametrize("name", MANY)
def test_the_first_candidate_of_a_huge_batch_is_right_and_uses_all_threads(name: str) -> None:
    case = MANY[name]()
    for target in TARGETS.values():
        space = case.space(target)
        assert space.legal(space.heuristic()[None])[0], target.name
        assert tasks_of(case, target) >= target.threads, target.name
    _, built = case.heuristic(host_target())
    verdict = verify(case.kernel, built, references=References(case.kernel))
    assert isinstance(verdict, Verdict), (case, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SHAPES))
def test_every_first_candidate_is_right(seed: int) -> None:
    case = random_case(seed, 96)
    _, built = case.heuristic(host_target())
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), (case, verdict)


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_the_first_candidate_of_a_real_kernel_uses_the_machine(
    name: str, target: CpuTarget
) -> None:
    """Most registers hold results, vectors are full, and each thread has work."""
    case = named(name)
    space = case.space(target)
    config = space.heuristic()
    tiling, sketch = space.tiling(config), space.sketches[config[0]]
    accumulators = np.prod(list(tiling.register.values()))
    assert accumulators >= target.vector_registers * 0.35
    assert case.compute.stage("out").extents[sketch.vector] >= space.lanes
    text = str(replay(case.compute, space.schedule(config), target))
    tasks = np.prod(
        [int(x.split()[2][1:]) for x in text.splitlines() if x.lstrip().startswith("parallel")]
    )
    assert tasks >= target.threads


def test_the_first_candidate_depends_on_nothing_but_compute_and_target() -> None:
    spaces = [conv(9, 11, 5, 19).space(host_target()) for _ in range(2)]
    np.testing.assert_array_equal(spaces[0].heuristic(), spaces[1].heuristic())


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize("steps", [3_000, 70_000, 150_000, 1 << 20])
@pytest.mark.parametrize("columns", [512, 4096])
def test_a_long_reduction_leaves_the_register_tile_whole(
    target: CpuTarget, steps: int, columns: int
) -> None:
    """What is too long to be packed is read where it lies."""
    space = sized(f"f32[768,{steps}]", f"f32[{steps},{columns}]").space(target)
    config = space.heuristic()
    assert space.legal(config[None])[0]
    assert np.prod(list(space.tiling(config).register.values())) >= 0.4 * target.vector_registers


def test_a_large_shape_costs_no_time() -> None:
    space = sized("f32[65536,16384]", "f32[16384,50257]").space(TARGETS["znver4"])
    assert space.legal(space.heuristic()[None])[0]


def tasks_of(case: Case, target: CpuTarget) -> int:
    space = case.space(target)
    nest = replay(case.compute, space.schedule(space.heuristic()), target)
    out = nest.stage("out")
    pairs = zip(out.loops, out.trips(out.stage.extents), strict=True)
    return int(np.prod([n for loop, n in pairs if loop.kind == "parallel"]))


@pytest.mark.parametrize(("size", "tasks"), [(16, 1), (40, 1), (256, 2)])
def test_a_thread_is_woken_where_it_saves_more_than_that_takes(size: int, tasks: int) -> None:
    assert tasks_of(gemm(size, size, size), TARGETS["znver4"]) == tasks


def test_much_memory_is_work_for_all_threads_even_with_little_arithmetic() -> None:
    assert tasks_of(gemm(1, 256, 512), TARGETS["znver4"]) == 2


@pytest.mark.parametrize("shape", [(1, 4096, 4096), (4, 10007, 1000), (16, 3000, 3000)])
def test_what_comes_from_memory_is_read_by_rows_that_lie_together(
    shape: tuple[int, int, int],
) -> None:
    """A task reads at least 4 KB of a row before it goes on to other rows."""
    m, n, k = shape
    case, target = gemm(m, n, k), TARGETS["znver4"]
    space = case.space(target)
    nest = replay(case.compute, space.schedule(space.heuristic()), target)
    core, out = nest.stage("contract"), nest.stage("out")
    outermost, columns = core.loops[0], out.stage.parallel[-1].name
    assert outermost.root == "r0"
    assert outermost.step <= 64
    assert next(x for x in core.loops if x.root == columns).step < n
    assert core.at is not None
    around = out.loops[: 1 + [x.axis for x in out.loops].index(core.at[1])]
    assert 4 * min(x.step for x in around if x.root == columns) >= 4096
    assert tasks_of(case, target) >= target.threads


def tiling_of(case: Case, target: CpuTarget) -> Tiling:
    space = case.space(target)
    return space.tiling(space.heuristic())


def test_one_row_reads_four_panels_of_packed_weights_side_by_side() -> None:
    case = named("frozen row")
    space = case.space(TARGETS["x86-64-v3"])
    tiling = space.tiling(space.heuristic())
    assert (tiling.register["i0"], tiling.streams) == (4, 4)
    nest = replay(case.compute, space.schedule(space.heuristic()), space.target)
    assert nest.stage("a1.packed").layout[0] == (1, 8)  # panels of one vector


@pytest.mark.parametrize(("vectors", "streams"), [(6, 2), (6, 3), (4, 4), (2, 2), (5, 4)])
def test_panels_side_by_side_give_what_the_oracle_gives(vectors: int, streams: int) -> None:
    """Whatever the caches and threads of the host: its weights lie beyond the second cache of this
    target, whose two threads each have some vectors of every stream.  Five vectors are not four
    equal panels: they are read as one stream.
    """
    case, target = named("frozen row"), replace(host_target(), l2_bytes=512 << 10, threads=2)
    space = case.space(target)
    config = space.heuristic()
    space.knobs.put(config, "register", np.array([1, vectors][-len(space.contraction.parallel) :]))
    space.knobs.put(config, "streams", np.array([streams]))
    tiling, sketch = space.tiling(config), space.sketches[config[0]]
    assert packs_at_load(sketch)
    assert (tiling.register[sketch.vector], tiling.streams) == (vectors, streams)
    assert streams_of(sketch, tiling) == (streams if vectors % streams == 0 else 1)
    built = build(case.compute, space.schedule(config), target)
    references = References(case.site.kernel)
    assert isinstance(verify(references.kernel, built, references=references), Verdict)
    again = space.locate(space.schedule(config))
    assert again is not None
    assert space.schedule(again) == space.schedule(config)


def test_few_rows_of_results_share_what_is_read_and_more_of_them_in_equal_parts() -> None:
    tiles = [tiling_of(gemm(m, 4096, 4096), TARGETS["znver4"]).register for m in (4, 8, 12, 16)]
    assert [(t["i0"], t["i1"]) for t in tiles] == [(4, 6), (8, 3), (6, 4), (8, 3)]


def test_the_next_rows_are_asked_for_while_there_is_time_and_room() -> None:
    target = TARGETS["znver4"]
    assert tiling_of(gemm(2, 1024, 1024), target).prefetch == 2
    assert tiling_of(gemm(1, 1024, 1024), target).prefetch == 0
    assert tiling_of(gemm(1, 4096, 4096), target).prefetch == 2
    wide = tiling_of(gemm(16, 8192, 4096), target)
    rows = wide.steps["r0"] * wide.unroll["r0"]
    row_bytes = wide.block["i1"] * wide.register["i1"] * target.vector_bytes
    assert rows * row_bytes <= target.l2_bytes // 2


@pytest.mark.parametrize(
    ("reduction", "steps"), [(768, 8), (896, 8), (3084, 4), (770, 2), (771, 3), (769, 1)]
)
def test_a_pass_of_a_product_has_eight_short_steps_or_the_next_power_of_two(
    reduction: int, steps: int
) -> None:
    tiling = tiling_of(gemm(128, 768, reduction, frozen=True), TARGETS["x86-64-v3"])
    assert (tiling.register["i0"], tiling.register["i1"]) == (4, 3)
    assert tiling.unroll["r0"] == steps


def test_a_pass_of_long_steps_has_one_and_windows_keep_two_short_ones() -> None:
    assert tiling_of(gemm(128, 768, 768, frozen=True), TARGETS["znver4"]).unroll["r0"] == 1
    window = tiling_of(conv(28, 28, 64, 96, frozen=True), TARGETS["x86-64-v3"])
    assert 2 in window.unroll.values() and 8 not in window.unroll.values()


def test_weights_are_packed_by_tasks_where_multiplying_would_wait_for_them() -> None:
    """A row of weights has 2 KB: one multiply-add a cycle leaves time to read them in place."""
    case, slow = conv(7, 7, 512, 512), TARGETS["znver4"]
    for target, level in ((slow, "none"), (replace(slow, isa="znver5"), "task")):
        space = case.space(target)
        assert dict(space.sketches[space.heuristic()[0]].packs)["a1"] == level


def test_operands_that_stay_in_a_cache_are_read_by_register_tiles() -> None:
    case, target = gemm(8, 256, 256), TARGETS["znver4"]
    space = case.space(target)
    assert not space.sketches[space.heuristic()[0]].chunked


def test_large_kernels_have_no_knob_for_one_thread() -> None:
    kinds = {k.kind for k in gemm(1024, 1024, 1024).space(TARGETS["znver4"]).knobs.knobs}
    assert "serial" not in kinds
    space = gemm(64, 64, 64).space(TARGETS["znver4"])
    config = space.sample(1, np.random.default_rng(0))[0]
    config[1 + space.knobs.columns("serial")[0]] = 1
    assert "Parallel" not in space.schedule(config).to_json().partition("ComputeAt")[0]


def test_what_would_be_read_from_far_for_each_tile_is_read_in_chunks() -> None:
    """On a machine of a small second cache, whose tiles wait for it as those of AVX2 do: five tiles
    of five rows use the same panel.
    """
    target = replace(TARGETS["x86-64-v3"], l2_bytes=12 << 10)
    case = conv(5, 5, 40, 128)
    space = case.space(target)
    config = space.heuristic()
    tiling, sketch = space.tiling(config), space.sketches[config[0]]
    assert sketch.chunked
    assert tiling.block["i0"] * tiling.block["i1"] > 1 and tiling.block["i2"] == 1
    steps = np.prod([tiling.steps[r] * tiling.unroll[r] for r in ("r0", "r1", "r2")])
    assert steps * tiling.register["i2"] * target.vector_bytes < target.l2_bytes
    built = build(case.compute, space.schedule(config), target)
    verdict = verify(case.kernel, built, thorough=True, references=References(case.kernel))
    assert isinstance(verdict, Verdict), verdict


def test_what_the_second_cache_holds_is_not_cut_into_chunks() -> None:
    space = conv(5, 5, 40, 128).space(host_target())
    assert not space.sketches[space.heuristic()[0]].chunked


def test_what_a_call_would_pack_beyond_the_second_cache_is_packed_by_chunks() -> None:
    """Where tasks share the features alone: each packs its own, and reads them at once."""
    large, small = (planes(7, 7, n, n).space(TARGETS["znver4"]) for n in (512, 64))
    sketches = [s.sketches[int(s.heuristic()[0])] for s in (large, small)]
    assert [s.chunked for s in sketches] == [True, False]
    assert [dict(s.packs)["a1"] for s in sketches] == ["chunk", "call"]
    t = large.tiling(large.heuristic())
    assert t.block["i1"] * t.register["i1"] >= 7 and t.block[sketches[0].vector] == 1
    assert 512 % t.steps["r2"] == 0
    prime = planes(7, 7, 509, 512).space(TARGETS["znver4"])
    assert not prime.sketches[int(prime.heuristic()[0])].chunked


def test_rows_that_lie_pages_apart_are_read_a_page_at_a_time() -> None:
    """All features go over a page of each of 64 rows; of rows that the cache holds over its own."""
    space = sized("f32[64,64]", "f32[64,50176]").space(TARGETS["znver4"])
    t = space.tiling(space.heuristic())
    page_bytes = t.block["i1"] * t.register["i1"] * 64
    assert 2048 < page_bytes <= 4096
    assert t.block["i0"] * t.register["i0"] == 64
    assert t.tile_order == ("i0", "i1")
    tasks = -(-50176 // (16 * t.register["i1"] * t.block["i1"] * t.group["i1"]))
    assert tasks == 2
    near = sized("f32[64,64]", "f32[64,1024]").space(TARGETS["znver4"])
    assert set(near.tiling(near.heuristic()).block.values()) == {1}


def test_borders_are_checked_in_no_tile_inside() -> None:
    """Lines are clipped, which takes the check of all rows; rows of a line are peeled."""
    space = conv(28, 28, 32, 64).space(TARGETS["znver4"])
    tiling = space.tiling(space.heuristic())
    assert tiling.register["i0"] == 1 and 1 < tiling.register["i1"] < 28
    assert tiling.clip == {"r0"} and tiling.peel == {"i1"}


def test_a_copy_that_brings_nothing_together_is_not_made() -> None:
    """A copy of planes that are read in strides of two would be read in strides of two as well."""
    x, w = whole(1, 8, 40, 40), whole(8, 1, 3, 3, seed=1)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (2, 2), [(1, 1)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"), feature_group_count=8,
        )  # fmt: skip

    space = Case("strided planes", function, (x, w)).space(TARGETS["znver4"])
    assert dict(space.sketches[space.heuristic()[0]].packs)["a0"] == "none"


def test_taps_that_are_written_out_are_checked_in_no_tile_inside() -> None:
    """The first and the last tile of one row, whose window has no loop, are written apart."""
    tiling = tiling_of(depthwise(14, 14, 384), TARGETS["znver4"])
    assert tiling.register["i0"] == 1 and tiling.unroll == {"r0": 3, "r1": 3}
    assert "i0" in tiling.peel and not tiling.clip


def test_long_vectors_taken_in_halves_are_shared_by_rows_and_columns_of_a_window() -> None:
    """A tile loads at most two vectors for five multiply-adds, and has no more code than is legal;
    other cores have a column less to load for nothing, and keep to one row."""
    case, target = depthwise(56, 56, 144), TARGETS["znver4"]
    t = tiling_of(case, target)
    rows, columns = t.register["i0"], t.register["i1"]
    assert rows > 1 and columns > 1 and t.peel == {"i0", "i1"}
    assert ((rows + 2) * (columns + 2) + 9) / (9 * rows * columns) <= 0.4
    assert tiling_of(case, replace(target, isa="znver5")).register["i0"] == 1


def test_threads_have_equally_many_rows_of_tiles() -> None:
    """Tiles of four rows and six vectors would leave 25 of 49 to one thread."""
    t = tiling_of(gemm(196, 576, 96, frozen=True), TARGETS["znver4"])
    assert -(-196 // t.register["i0"]) % 2 == 0


def test_rows_stay_with_their_threads_where_shares_are_nearly_equal() -> None:
    """Tiles of three rows are ten and nine of 19, which is worth no cut along the columns."""
    t = tiling_of(depthwise(56, 56, 144), TARGETS["znver4"])
    assert t.group["i0"] == -(-56 // (2 * t.register["i0"]))
    assert t.group["i1"] * t.register["i1"] >= 56
