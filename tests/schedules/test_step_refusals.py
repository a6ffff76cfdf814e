"""What steps refuse where they meet a nest that they would break, or that would break later."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    Clip,
    ComputeAt,
    LayOut,
    Pack,
    Parallel,
    Peel,
    Preload,
    Reorder,
    Split,
    Spread,
    Step,
    Unroll,
    Vectorize,
)
from tests.schedules.test_result_steps import PLAIN
from tests.schedules.test_steps import CONV, GEMM, PACK, PIECES, blur, clipped, finished, nest
from tests.support.computes import Case, around_scratch, backwards, conv, whole


def test_vectorize_refuses_a_loop_that_takes_steps() -> None:
    made = nest(Split("out", "i1", (8,)))  # no step leaves such a loop innermost: made by hand
    out = made.stage("out")
    with pytest.raises(ScheduleError, match=r"^vectorize: i1.0 does not walk element by element$"):
        Vectorize("out", "i1.0").apply(made.put(replace(out, loops=out.loops[:-1])))


def test_pack_refuses_blocks_of_a_window() -> None:
    pack = Pack("contract", "a0", "", "call", ((0, 4), (1, 1), (2, 1), (0, 1)), 8)
    with pytest.raises(ScheduleError, match=r"^pack: dimension 0 is a window: no blocks$"):
        nest(pack, compute=CONV)


def test_compute_at_refuses_a_stage_that_another_reads_too() -> None:
    with pytest.raises(ScheduleError, match=r"^compute_at: double is read by out too$"):
        nest(ComputeAt("double", "window", "i0"), compute=blur())


def test_compute_at_refuses_a_stage_that_stores_a_result() -> None:
    """Blocks at the end of an axis reach over it, and beside a result lies what is not ours."""
    made = blur()
    tensors = tuple(replace(t, role="result") if t.role == "temporary" else t for t in made.tensors)
    with pytest.raises(ScheduleError, match=r"^compute_at: window stores the result \w+$"):
        nest(ComputeAt("window", "out", "i0"), compute=replace(made, tensors=tensors))


def test_compute_at_refuses_a_stage_that_stores_elsewhere_than_along_its_axes() -> None:
    out = conv(6, 6, 2, 4).compute
    moved = tuple(
        replace(s, stores=(Store("acc", s.stores[0].index[::-1]),)) if s.combine else s
        for s in out.stages
    )  # fmt: skip
    with pytest.raises(
        ScheduleError, match=r"^compute_at: contract does not store along its axes in order$"
    ):
        nest(ComputeAt("contract", "out", "i0"), compute=Compute(out.tensors, moved))


def test_clip_refuses_what_is_no_sum() -> None:
    with pytest.raises(
        ScheduleError, match=r"^clip: what lies outside adds nothing only to a sum$"
    ):
        nest(Clip("window", "r0"), compute=blur(MAX))


def test_the_loops_of_a_pack_can_be_put_in_another_order() -> None:
    order = Reorder("a1.packed", ("p1.v", "p0", "p1.l"))
    assert str(finished(PACK, order)).startswith("serial p1.v x6 step 8\n  serial p0 x29")


def test_the_loops_of_a_pack_keep_their_order_within_an_axis() -> None:
    with pytest.raises(ScheduleError, match=r"^reorder: loops of p1 must go from outer to inner"):
        nest(PACK, Reorder("a1.packed", ("p0", "p1.l", "p1.v")))


def test_pack_refuses_what_is_computed_inside_another_stage() -> None:
    compute = blur(SUM, before=0)
    compute = Compute(compute.tensors, compute.stages[:2])
    steps = ComputeAt("double", "window", "i0"), Pack("window", "p", "", "call", ((0, 1),), 8)
    with pytest.raises(ScheduleError, match=r"^pack: p is computed inside another stage$"):
        nest(*steps, compute=compute)


def test_pack_refuses_blocks_of_what_is_read_backwards() -> None:
    pack = Pack("contract", "a1", "", "call", ((1, 16), (0, 1), (1, 1)), 8)
    with pytest.raises(ScheduleError, match=r"^pack: dimension 1 is read backwards: no blocks$"):
        nest(pack, compute=backwards(GEMM))


def test_a_constant_that_is_read_twice_is_not_packed_when_it_is_loaded() -> None:
    """Its packed form would stand where the other reader looks for the values."""
    w = whole(32, 32, seed=1)
    case = Case("twice", lambda x: x @ jnp.asarray(w) + jnp.asarray(w), (whole(32, 32),))
    steps = [Pack("contract", "a1", "", "load", ((1, 16), (0, 1), (1, 1)), 8)]
    with pytest.raises(ScheduleError, match=r"^pack: a1 is read elsewhere too, where its values"):
        nest(*steps, compute=case.compute)


def test_compute_at_refuses_a_consumer_that_leaves_the_stage() -> None:
    compute = blur(SUM)
    compute = Compute(compute.tensors, compute.stages[:2])
    wanted = r"^compute_at: p\[i0 \+ r0 - 1\] leaves what double stores, or skips in it$"
    with pytest.raises(ScheduleError, match=wanted):
        nest(ComputeAt("double", "window", "i0"), compute=compute)


def test_compute_at_refuses_a_consumer_that_reads_several_places() -> None:
    double, *_ = blur(SUM, before=0).stages
    a = Affine.axis("i0")
    back = Load("p", (a * -1 + 19,), "f32")
    ends = Apply("add", (Load("p", (a,), "f32"), back), "f32")
    both = Stage("both", (Axis("i0", 20),), (), (Store("y", (a,)),), (ends,))
    compute = Compute(blur().tensors, (double, both))
    with pytest.raises(ScheduleError, match=r"^compute_at: double is read at several places"):
        nest(ComputeAt("double", "both", "i0"), compute=compute)


def test_clip_refuses_values_that_are_not_zero_outside() -> None:
    x, w = CONV.stages[0].loads
    wanted = "^clip: where a0.* lies outside, there are values to add all the same$"
    grown = Apply("multiply", (Apply("exponential", (x,), "f32"), w), "f32")
    padded = Apply("multiply", (replace(x, outside=1), w), "f32")
    for value in (grown, padded, Apply("add", (x, w), "f32")):
        with pytest.raises(ScheduleError, match=wanted):
            clipped(value)


BROKEN: dict[str, tuple[tuple[Step, ...], str]] = {
    "tasks moved inside": (
        (Parallel("out", "i0"), Reorder("out", ("i1", "i0"))),
        "out: a parallel loop stands inside a loop that is not: run the outer ones too",
    ),
    "tasks of one axis twice": (
        (Split("out", "i0", (4,)), Parallel("out", "i0.1")),
        "out: two parallel loops walk i0: run only the outer one in tasks",
    ),
    "tasks inside a stage": (
        (Parallel("contract", "i0"), ComputeAt("contract", "out", "i0")),
        "contract: parallel loops stand inside another stage",
    ),
    "borders of tasks": (
        (Peel("out", "i0"), Parallel("out", "i0")),
        "out: peel of i0: the loop is parallel",
    ),
    "vectors cut in two": (
        (Vectorize("out", "i1"), Split("out", "i1", (8,))),
        "out: i1.0 is vectorized and not innermost: split and reorder before",
    ),
    "vectors moved outside": (
        (Vectorize("out", "i1"), Reorder("out", ("i1", "i0"))),
        "out: i1 is vectorized and not innermost: split and reorder before",
    ),
    "a stage inside lanes": (
        (ComputeAt("contract", "out", "i1"), Vectorize("out", "i1")),
        "contract: it stands inside i1, which is vectorize",
    ),
    "a stage inside what is unrolled": (
        (ComputeAt("contract", "out", "i1"), Unroll("out", "i1")),
        "contract: it stands inside i1, which is unroll",
    ),
    "tiles beyond what is needed": (
        (
            Split("out", "i1", (12,)),
            Split("contract", "i1", (7,)),
            ComputeAt("contract", "out", "i1.0"),
        ),
        "contract: tiles of 7 along i1 do not fill the 12 needed",
    ),
    "a copy left behind": (
        (
            ComputeAt("contract", "out", "i1"),
            Pack("contract", "a1", "out", "i1", ((0, 1), (1, 1)), 8),
            ComputeAt("contract", "out", "i0"),
        ),
        "a1.packed: contract reads it outside of out i1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_steps_that_break_what_an_earlier_one_made_are_refused(name: str) -> None:
    steps, message = BROKEN[name]
    with pytest.raises(ScheduleError, match=f"^{message}$"):
        finished(*steps)


def test_a_clip_around_the_registers_is_refused() -> None:
    wanted = "^contract: clip of r0: results are not held in registers around it$"
    with pytest.raises(ScheduleError, match=wanted):
        finished(Clip("contract", "r0"), compute=CONV)
    outside = Reorder("contract", ("r0", "i0", "i1", "i2", "r1", "r2"))
    with pytest.raises(ScheduleError, match=wanted):
        finished(outside, Accumulate("contract", "i2"), Clip("contract", "r0"), compute=CONV)


def test_a_clipped_loop_that_is_split_is_refused() -> None:
    steps = Accumulate("contract", "i2"), Clip("contract", "r0"), Split("contract", "r0", (2,))
    wanted = "^contract: clip of r0.0: the loop goes in steps of 2$"
    with pytest.raises(ScheduleError, match=wanted):
        finished(*steps, compute=CONV)


def test_tiles_that_do_not_fit_into_one_another_are_refused() -> None:
    made = nest(Split("out", "i1", (4, 2)))  # no step makes such loops: made by hand
    out = made.stage("out")
    loops = tuple(replace(x, step=x.step + 1) if x.step == 8 else x for x in out.loops)
    wanted = r"^out: steps \[9, 2, 1\] of the loops of i1 do not divide one another to 1$"
    with pytest.raises(ScheduleError, match=wanted):
        check(made.put(replace(out, loops=loops)))


def test_accumulate_refuses_results_that_share_a_tensor() -> None:
    """Registers are told apart by tensor and point, and a point has 16 values there, or four."""
    for step in (Accumulate("tiles", "r2"), Accumulate("out", "i2")):
        wanted = f"^accumulate: {step.stage} stores several results of a point in one tensor"
        with pytest.raises(ScheduleError, match=wanted):
            nest(step, compute=PLAIN)


def test_registers_begin_around_a_vector() -> None:
    wanted = "^accumulate: i1 of out is vectorized: hold results in a loop around it$"
    both: tuple[Step, ...] = Vectorize("out", "i1"), Accumulate("out", "i1")
    for steps in (both, both[::-1]):
        with pytest.raises(ScheduleError, match=wanted):
            finished(*steps)


def test_vectorize_refuses_an_axis_that_is_read_by_its_digits() -> None:
    wanted = "^vectorize: t is read by its digits i0 i1, which lanes do not have$"
    with pytest.raises(ScheduleError, match=wanted):
        nest(Reorder("tiles", ("r2", "t")), Vectorize("tiles", "t"), compute=PLAIN)


def test_a_stage_that_is_read_beyond_its_borders_has_no_layout() -> None:
    wanted = r"^pre0: contract reads t0\[.*\] outside of it or skips in it, where a layout"
    for step in (Spread("pre0", 16), LayOut("pre0", ((0, 1), (1, 1), (2, 1)))):
        with pytest.raises(ScheduleError, match=wanted):
            finished(step, compute=around_scratch(5, 6, 3, 9).compute)


def test_pieces_that_later_steps_hold_elsewhere_are_refused() -> None:
    inside = ComputeAt("contract", "out", "i0"), Reorder("contract", ("r0.0", "r0.1", "i0", "i1"))
    wanted = "^add_up: no loop of contract has its results in registers inside$"
    with pytest.raises(ScheduleError, match=wanted):
        finished(
            *PIECES, AddUp("contract"), *inside, Unroll("contract", "i0"),
            Accumulate("contract", ""),
        )  # fmt: skip


def test_what_is_preloaded_reads_nothing_that_a_call_makes() -> None:
    compute = blur(SUM, before=0)
    tensors = [replace(t, role="constant") if t.name == "x" else t for t in compute.tensors]
    constant = Compute(tuple(tensors), compute.stages)
    finished(Preload("double"), compute=constant)
    for place in (("", "call"), ("double", "i0")):
        copy = Pack("double", "x", *place, ((0, 1),), 8)
        with pytest.raises(ScheduleError, match=r"^preload: x.packed is no constant$"):
            finished(Preload("double"), copy, compute=constant)
