"""Steps about what a stage stores: where it lies, when it is computed, how far, what is fetched."""

import pytest

from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.winograd.rewriting import winograd
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest, initial, region, stored_bytes, strides
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.steps import (
    Accumulate,
    ComputeAt,
    LayOut,
    Overrun,
    Preload,
    Reorder,
    Split,
    Spread,
    Step,
    Stream,
    Unroll,
)
from tests.support.computes import conv
from tests.support.winograd_cases import windowed

TARGET = TARGETS["znver4"]
FROZEN = winograd(2)(windowed(frozen=True).compute)
PLAIN = winograd(2)(windowed().compute)
BLOCK = (
    Split("out", "t", (7,)),
    Reorder("out", ("t.0", "t.1", "i2")),
    ComputeAt("products", "out", "t.0"),
    ComputeAt("tiles", "out", "t.0"),
)
PANELS = ((2, 16), (0, 1), (1, 1), (2, 1))


def nest(*steps: Step, compute: Compute = FROZEN) -> LoopNest:
    made = initial(compute, TARGET)
    for step in steps:
        made = step.apply(made)
    return made


def refused(message: str, *steps: Step, compute: Compute = FROZEN) -> None:
    with pytest.raises(ScheduleError, match=message):
        nest(*steps, compute=compute)


def test_the_stages_of_a_block_are_computed_for_its_tiles_alone() -> None:
    made = nest(*BLOCK)
    tiles, products = made.stage("tiles"), made.stage("products")
    assert region(made, products) == {"f": 16, "t": 7, "i2": 19, "r2": 5}
    assert region(made, tiles) == {"t": 7, "r2": 5}


def test_a_stage_goes_only_where_its_reader_stands() -> None:
    refused(
        r"^compute_at: out reads nothing of tiles$",
        *BLOCK[:2],
        ComputeAt("tiles", "out", "t.0"),
    )


def test_layouts_are_checked() -> None:
    refused(r"^lay_out: out stores a result$", LayOut("out", ((0, 1), (1, 1))))
    refused(r"leaves a dimension out, or has one too many$", LayOut("weights", ((0, 1), (2, 1))))
    twice = ((2, 16), (2, 8), (0, 1), (1, 1), (2, 1))
    refused(r"^lay_out: the blocks of dimension 2 must stand once", LayOut("weights", twice))
    late = ((0, 1), (1, 1), (2, 1), (2, 16))
    refused(r"^lay_out: the blocks of dimension 2 must stand once", LayOut("weights", late))


def test_slices_are_spaced_apart_along_the_slowest_dimension() -> None:
    plain, spaced = nest(*BLOCK), nest(*BLOCK, Spread("tiles", 16))
    tiles = spaced.stage("tiles")
    free_bytes = stored_bytes(spaced, tiles) - stored_bytes(plain, plain.stage("tiles"))
    assert free_bytes == 16 * 16 * 4  # points * elements * bytes
    shape, lines = (16, 7, 5), {(0, 1): 35 + 16, (1, 1): 5, (2, 1): 1}
    assert strides(tiles.layout, shape, tiles.spacing) == lines
    assert strides(PANELS, (16, 5, 40), 8) == {
        (2, 1): 1, (1, 1): 16, (0, 1): 80, (2, 16): 1280 + 8
    }  # fmt: skip


def test_only_what_is_stored_in_order_is_spaced() -> None:
    refused(r"^spread: out stores a result$", Spread("out", 16))
    refused(r"^spread: expected 0 or more elements, got -1$", Spread("tiles", -1))


def test_only_constants_are_loaded_ahead() -> None:
    assert nest(LayOut("weights", PANELS), Preload("weights")).stage("weights").scope == "load"
    refused(r"^preload: a1 is no constant$", Preload("weights"), compute=PLAIN)
    refused(r"^preload: products loads 2 tensors, not 1$", Preload("products"))
    refused(r"^preload: tiles stands inside another stage$", *BLOCK, Preload("tiles"))
    refused(r"^preload: a1 is no constant$|^preload: out loads", Preload("out"))


def test_a_constant_that_is_read_twice_is_not_preloaded() -> None:
    weights = FROZEN.stage("weights")
    twice = Compute(FROZEN.tensors, (weights, *FROZEN.stages))
    refused(r"^preload: a1 is read elsewhere too", Preload("weights"), compute=twice)


def test_overrun_blocks_have_one_size_and_others_are_told_apart() -> None:
    """Without, the last block's registers are fewer: that has no code, and is said."""
    loops = (
        Split("products", "t", (4,)),
        Reorder("products", ("f", "t.0", "i2", "r2", "t.1")),
        Unroll("products", "t.1"),
        Accumulate("products", "i2"),
    )
    made = nest(*BLOCK, *loops, Overrun("products", "t"))
    check(made)
    assert emit(made).text
    with pytest.raises(BuildError, match=r"known size|multiple of 4"):
        emit(nest(*BLOCK, *loops))


def test_requests_go_along_a_loop_that_the_tensor_varies_with() -> None:
    refused(r"^stream: weights is the same all along t$", Stream("products", "weights", "t"))
    refused(r"^stream: out loads weights 0 times$", Stream("out", "weights", "t"))
    refused(
        r"^stream: r2 is unroll$", Unroll("products", "r2"), Stream("products", "weights", "r2")
    )
    refused(
        r"^stream: tiles is computed inside another stage$",
        *BLOCK,
        Stream("products", "tiles", "f"),
    )
    assert "prefetch weights along f" in str(nest(Stream("products", "weights", "f")))


def test_requests_are_part_of_the_code() -> None:
    streaming = emit(nest(*BLOCK, Stream("products", "weights", "f"))).text
    assert "llvm.prefetch" in streaming
    assert "llvm.prefetch" not in emit(nest(*BLOCK)).text


def test_the_stages_of_another_compute_are_not_there() -> None:
    refused(r"^no stage 'weights'", Preload("weights"), compute=conv(9, 9, 4, 4).compute)
