"""Steps: what each makes of a nest, as printed text, and what each refuses."""

from dataclasses import replace

import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import MAX, SUM, Monoid
from hlotune.schedules.ir.nest import LoopNest, initial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
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
from tests.support.computes import conv, gemm

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


def blur(combine: Monoid = MAX, before: int = 1) -> Compute:
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
            Stage("window", (i,), (r,), (Store("q", here),), (window,), combine),
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
    compute = blur(SUM, before=0)
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


PIECES = (
    Split("contract", "r0", (8,)),
    Reorder("contract", ("i0", "r0.0", "r0.1", "i1")),
    Unroll("contract", "i1"),
    Accumulate("contract", "r0.0"),
)


def test_add_up_sums_pieces_apart(golden: str) -> None:
    assert str(nest(*PIECES, AddUp("contract"))) == golden


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
    "vectorize a reduction": (
        (Vectorize("contract", "r0"),),
        "vectorize: r0 is a reduction: use VectorizeReduction",
    ),
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
    "add up what is no sum": ((AddUp("out"),), "add_up: out is no reduction"),
    "add up in memory": (
        (AddUp("contract"),),
        "add_up: no loop of contract has its results in registers inside",
    ),
    "add up whole sums": (
        (Reorder("contract", ("i0", "i1", "r0")), Accumulate("contract", "i1"), AddUp("contract")),
        "add_up: no reduction stands around the results of contract",
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


def clipped(value: Expr) -> LoopNest:
    contract, out = CONV.stages
    changed = Compute(CONV.tensors, (replace(contract, values=(value,)), out))
    return finished(Accumulate("contract", "i2"), Clip("contract", "r0"), compute=changed)


def test_clip_takes_a_factor_behind_conversions() -> None:
    (product,) = CONV.stages[0].values
    assert isinstance(product, Apply)
    clipped(Apply("convert", (product,), "f32"))
