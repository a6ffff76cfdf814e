"""Steps: what each makes of a nest, as printed text, and what each refuses."""

from dataclasses import replace

import jax.numpy as jnp
import pytest

from hlotune.measure.targets import TARGETS
from hlotune.schedules.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.limits import check
from hlotune.schedules.nest import LoopNest, initial
from hlotune.schedules.replay import replay
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.steps import (
    Accumulate,
    Clip,
    ComputeAt,
    Pack,
    Parallel,
    Peel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from tests.computes import Case, backwards, conv, gemm, whole

TARGET = TARGETS["x86-64-v3"]
GEMM = gemm(37, 45, 29, frozen=True).compute
CONV = conv(9, 11, 5, 19).compute


def nest(*steps: Step, compute: Compute = GEMM) -> LoopNest:
    result = initial(compute, TARGET)
    for step in steps:
        result = step.apply(result)
    return result


def finished(*steps: Step, compute: Compute = GEMM) -> LoopNest:
    return replay(compute, Schedule("direct", steps), TARGET)


def blur(combine: str = "max", before: int = 1) -> Compute:
    """A stage, its neighbours combined in a window, and a last stage that reads both.

    The window starts some elements before the place where it stands.
    """
    a, i, r = Affine.axis, Axis("i0", 20), Axis("r0", 3)
    tensors = [Tensor("x", (22,), "f32", "argument"), Tensor("y", (20,), "f32", "result")]
    tensors += [Tensor("p", (22,), "f32", "temporary"), Tensor("q", (20,), "f32", "temporary")]
    here = (a("i0"),)
    double = Apply("add", (Load("x", here, "f32"), Load("x", here, "f32")), "f32")
    window = Load("p", (a("i0") + a("r0") + (-before),), "f32")
    last = Apply("add", (Load("q", here, "f32"), Load("p", here, "f32")), "f32")
    return Compute(
        tuple(tensors),
        (
            Stage("double", (Axis("i0", 22),), (), (Store("p", here),), (double,)),
            Stage("window", (i,), (r,), (Store("q", here),), (window,), combine),  # type: ignore[arg-type]
            Stage("out", (i,), (), (Store("y", here),), (last,)),
        ),
    )


def test_the_nest_before_any_step_is_the_definition(golden: str) -> None:
    assert str(nest(compute=CONV)) == golden


def test_split_cuts_an_axis_into_nested_loops(golden: str) -> None:
    assert str(nest(Split("out", "i1", (2, 3, 8)))) == golden


def test_split_takes_factors_larger_than_the_axis(golden: str) -> None:
    assert str(nest(Split("contract", "r0", (64, 4)))) == golden


def test_reorder_moves_loops(golden: str) -> None:
    assert (
        str(nest(Split("contract", "i1", (8,)), Reorder("contract", ("i1.0", "r0", "i0", "i1.1"))))
        == golden
    )


def test_parallel_makes_tasks_of_all_loops_down_to_the_one_named(golden: str) -> None:
    assert str(nest(Split("out", "i1", (8,)), Parallel("out", "i1.0"))) == golden


def test_vectorize_makes_lanes_of_the_innermost_loop(golden: str) -> None:
    assert str(nest(Split("out", "i1", (8,)), Vectorize("out", "i1.1"))) == golden


def test_unroll_writes_iterations_out(golden: str) -> None:
    steps = Split("out", "i1", (2, 8)), Vectorize("out", "i1.2"), Unroll("out", "i1.1")
    assert str(nest(*steps)) == golden


def test_compute_at_computes_what_the_body_reads(golden: str) -> None:
    steps = Split("out", "i0", (4,)), ComputeAt("contract", "out", "i0.0")
    assert str(nest(*steps)) == golden


def test_compute_at_widens_the_region_by_the_window_of_its_reader() -> None:
    compute = blur("sum", before=0)
    compute = Compute(compute.tensors, compute.stages[:2])
    found = nest(
        Split("window", "i0", (4,)), ComputeAt("double", "window", "i0.0"), compute=compute
    )
    assert "serial i0 x6" in str(found)  # four positions and one neighbour on each side


def test_accumulate_holds_results_in_registers(golden: str) -> None:
    steps = Split("contract", "i1", (8,)), Reorder("contract", ("i0", "i1.0", "r0", "i1.1"))
    assert (
        str(nest(*steps, Vectorize("contract", "i1.1"), Accumulate("contract", "i1.0"))) == golden
    )


def test_accumulate_over_all_loops_hands_registers_to_the_consumer(golden: str) -> None:
    steps: list[Step] = [ComputeAt("contract", "out", "i1")]
    steps += [
        Reorder("contract", ("r0", "i0", "i1")),
        Unroll("contract", "i1"),
        Unroll("contract", "i0"),
    ]
    assert str(nest(*steps, Accumulate("contract", ""))) == golden


def test_clip_marks_a_reduction_at_a_border(golden: str) -> None:
    steps = Accumulate("contract", "i2"), Clip("contract", "r0"), Clip("contract", "r1")
    assert str(finished(*steps, compute=CONV)) == golden


def test_peel_marks_a_loop_at_a_border(golden: str) -> None:
    assert str(nest(Peel("contract", "i0"), Peel("contract", "i1"), compute=CONV)) == golden


def test_pack_copies_panels_before_a_call(golden: str) -> None:
    pack = Pack("contract", "a1", "", "call", ((1, 16), (0, 1), (1, 1)), 8)
    assert str(nest(pack)) == golden


def test_pack_copies_a_constant_when_it_is_loaded(golden: str) -> None:
    pack = Pack("contract", "a1", "", "load", ((1, 16), (0, 1), (1, 1)), 8)
    assert str(nest(pack)) == golden


def test_pack_inside_a_loop_copies_the_region_that_the_body_reads_padding_included(
    golden: str,
) -> None:
    steps: list[Step] = [Split("contract", "i0", (3,))]
    steps += [Pack("contract", "a0", "contract", "i0.0", ((0, 1), (1, 1), (2, 1)), 8)]
    assert str(nest(*steps, compute=CONV)) == golden


SPLIT = Split("out", "i1", (8,))
AT = ComputeAt("contract", "out", "i1")
PACK = Pack("contract", "a1", "", "call", ((0, 1), (1, 1)), 8)
REFUSED: dict[str, tuple[tuple[Step, ...], str]] = {
    "split without factors": ((Split("out", "i0", ()),), "split: needs at least one factor"),
    "split by zero": (
        (Split("out", "i0", (2, 0)),),
        r"split: factors must be positive, got \(2, 0\)",
    ),
    "split twice": ((SPLIT, Split("out", "i1.0", (2,))), "split: i1.0 is split already"),
    "split the inner part": ((SPLIT, Split("out", "i1.1", (2,))), "split: i1.1 is split already"),
    "an unknown stage": (
        (Split("middle", "i0", (2,)),),
        "no stage 'middle'; the stages are contract out",
    ),
    "an unknown loop": (
        (Split("out", "r0", (2,)),),
        "stage out has no loop 'r0'; its loops are i0 i1",
    ),
    "reorder some": (
        (Reorder("out", ("i1",)),),
        r"reorder: expected all of \['i0', 'i1'\], got \['i1'\]",
    ),
    "reorder one twice": (
        (Reorder("out", ("i1", "i1")),),
        r"reorder: expected all of \['i0', 'i1'\], got \['i1', 'i1'\]",
    ),
    "reorder inside out": (
        (SPLIT, Reorder("out", ("i1.1", "i0", "i1.0"))),
        r"reorder: loops of i1 must go from outer to inner, got steps \[1, 8\]",
    ),
    "parallel inside": (
        (AT, Parallel("contract", "i0")),
        "parallel: stage contract stands inside another stage",
    ),
    "parallel reductions": (
        (Reorder("contract", ("r0", "i0", "i1")), Parallel("contract", "i0")),
        "parallel: r0 is a reduction: tasks would race",
    ),
    "parallel vectors": (
        (Vectorize("out", "i1"), Parallel("out", "i1")),
        "parallel: i1 is vectorize",
    ),
    "vectorize outside": ((Vectorize("out", "i0"),), "vectorize: i0 is not innermost"),
    "vectorize a reduction": ((Vectorize("contract", "r0"),), "vectorize: r0 is a reduction"),
    "unroll around a loop": (
        (SPLIT, Unroll("out", "i0")),
        r"unroll: i0 encloses loops that are not unrolled: i1.0 i1.1",
    ),
    "compute at a stranger": (
        (ComputeAt("out", "contract", "i0"),),
        "compute_at: contract reads nothing of out",
    ),
    "compute at lanes": (
        (Vectorize("out", "i1"), AT),
        "compute_at: i1 is vectorize",
    ),
    "accumulate around a loop": (
        (Accumulate("contract", "i0"),),
        "accumulate: i1 is neither a reduction nor unrolled",
    ),
    "accumulate for nobody": (
        (
            Unroll("contract", "r0"),
            Unroll("contract", "i1"),
            Unroll("contract", "i0"),
            Accumulate("contract", ""),
        ),
        "accumulate: a stage at the root has no consumer to hold for",
    ),
    "clip a parallel axis": ((Clip("contract", "i0"),), "clip: i0 is no reduction"),
    "clip without a border": (
        (Clip("contract", "r0"),),
        "clip: no load leaves its tensor along r0",
    ),
    "clip what is unrolled": (
        (Unroll("contract", "r0"), Clip("contract", "r0")),
        "clip: r0 is unroll",
    ),
    "clip steps": (
        (Split("contract", "r0", (4,)), Clip("contract", "r0.0")),
        "clip: r0.0 goes in steps of 4, which clipping would break",
    ),
    "peel what is vectorized": (
        (Vectorize("out", "i1"), Peel("out", "i1")),
        "peel: i1 is vectorize",
    ),
    "pack a stranger": (
        (Pack("contract", "y0", "", "call", ((0, 1), (1, 1)), 8),),
        "pack: expected one load of y0, found 0",
    ),
    "pack half": (
        (Pack("contract", "a1", "", "call", ((1, 1),), 8),),
        r"pack: layout \(\(1, 1\),\) leaves a dimension out, or has one that is none",
    ),
    "pack a dimension that is none": (
        (Pack("contract", "a1", "", "call", ((0, 1), (1, 1), (2, 1)), 8),),
        r"pack: layout \S+ 1\), .* leaves a dimension out, or has one that is none",
    ),
    "pack blocks of a dimension that is none": (
        (Pack("contract", "a1", "", "call", ((2, 8), (0, 1), (1, 1)), 8),),
        "pack: dimension 2 cannot have blocks of 8",
    ),
    "pack blocks of nothing": (
        (Pack("contract", "a1", "", "call", ((1, 0), (0, 1), (1, 1)), 8),),
        "pack: dimension 1 cannot have blocks of 0",
    ),
    "pack blocks twice": (
        (Pack("contract", "a1", "", "call", ((1, 16), (1, 8), (0, 1), (1, 1)), 8),),
        "pack: the blocks of dimension 1 must stand once, before it",
    ),
    "pack blocks inside out": (
        (Pack("contract", "a1", "", "call", ((1, 1), (1, 8), (0, 1)), 8),),
        "pack: the blocks of dimension 1 must stand once, before it",
    ),
    "pack parts of vectors": (
        (Pack("contract", "a1", "", "call", ((1, 12), (0, 1), (1, 1)), 8),),
        "pack: blocks of 12 are no whole vectors",
    ),
    "pack without lanes": (
        (Pack("contract", "a1", "", "call", ((0, 1), (1, 1)), 0),),
        "pack: expected at least one lane, got 0",
    ),
    "pack inside a loop that is elsewhere": (
        (Pack("contract", "a1", "out", "i0", ((0, 1), (1, 1)), 8),),
        "pack: i0 of out does not enclose contract",
    ),
    "pack inside a loop further inside": (
        (
            ComputeAt("contract", "out", "i0"),
            Pack("contract", "a1", "out", "i1", ((0, 1), (1, 1)), 8),
        ),
        "pack: i1 of out does not enclose contract",
    ),
    "pack twice": (
        (PACK, Pack("a1.packed", "a1", "", "call", ((0, 1), (1, 1)), 8)),
        "pack: a1 is packed already",
    ),
    "pack nowhere": (
        (Pack("contract", "a1", "", "night", ((0, 1), (1, 1)), 8),),
        "pack: expected 'call' or 'load', got 'night'",
    ),
    "pack an argument at load": (
        (Pack("contract", "a0", "", "load", ((0, 1), (1, 1)), 8),),
        "pack: a0 is no constant",
    ),
    "pack inside lanes": (
        (Vectorize("out", "i1"), Pack("contract", "a1", "out", "i1", ((0, 1), (1, 1)), 8)),
        "pack: i1 is vectorize",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_step_that_does_not_apply_says_why(name: str) -> None:
    steps, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=f"^{message}$"):
        nest(*steps)


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
        nest(Clip("window", "r0"), compute=blur("max"))


def test_a_step_leaves_the_nest_that_it_was_applied_to_alone() -> None:
    before = nest()
    text = str(before)
    Split("out", "i0", (4,)).apply(before)
    assert str(before) == text


def test_a_constant_needs_no_stage() -> None:
    out = Stage(
        "out", (Axis("i0", 4),), (), (Store("y", (Affine.axis("i0"),)),), (Const(1.0, "f32"),)
    )
    compute = Compute((Tensor("y", (4,), "f32", "result"),), (out,))
    assert str(nest(Vectorize("out", "i0"), compute=compute)) == "vectorize i0 x4\n  y[i0] = 1.0"


def test_the_loops_of_a_pack_can_be_put_in_another_order() -> None:
    order = Reorder("a1.packed", ("p1.v", "p0", "p1.l"))
    assert str(finished(PACK, order)).startswith("serial p1.v x6 step 8\n  serial p0 x29")


def test_the_loops_of_a_pack_keep_their_order_within_an_axis() -> None:
    with pytest.raises(ScheduleError, match=r"^reorder: loops of p1 must go from outer to inner"):
        nest(PACK, Reorder("a1.packed", ("p0", "p1.l", "p1.v")))


def test_pack_refuses_what_is_computed_inside_another_stage() -> None:
    compute = blur("sum", before=0)
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
    compute = blur("sum")
    compute = Compute(compute.tensors, compute.stages[:2])
    wanted = r"^compute_at: p\[i0 \+ r0 - 1\] leaves what double stores, or skips in it$"
    with pytest.raises(ScheduleError, match=wanted):
        nest(ComputeAt("double", "window", "i0"), compute=compute)


def test_compute_at_refuses_a_consumer_that_reads_several_places() -> None:
    double, *_ = blur("sum", before=0).stages
    a = Affine.axis("i0")
    ends = Apply("add", (Load("p", (a,), "f32"), Load("p", (a + 2,), "f32")), "f32")
    both = Stage("both", (Axis("i0", 20),), (), (Store("y", (a,)),), (ends,))
    compute = Compute(blur().tensors, (double, both))
    with pytest.raises(ScheduleError, match=r"^compute_at: double is read at several places"):
        nest(ComputeAt("double", "both", "i0"), compute=compute)


def clipped(value: Expr) -> LoopNest:
    contract, out = CONV.stages
    changed = Compute(CONV.tensors, (replace(contract, values=(value,)), out))
    return finished(Accumulate("contract", "i2"), Clip("contract", "r0"), compute=changed)


def test_clip_takes_a_factor_behind_conversions() -> None:
    (product,) = CONV.stages[0].values
    assert isinstance(product, Apply)
    clipped(Apply("convert", (product,), "f32"))


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
