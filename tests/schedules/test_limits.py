"""Limits that hang on several steps at once: each stops a nest that passes it, and no sooner."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import LoopNest, initial
from hlotune.schedules.steps import limits
from hlotune.schedules.steps.steps import (
    Accumulate,
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
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import conv, gemm, sized
from tests.support.interpreter import interpret
from tests.support.reductions import called

AVX2, AVX512 = TARGETS["x86-64-v3"], TARGETS["znver4"]


def checked(compute: Compute, steps: list[Step], target: CpuTarget = AVX2) -> LoopNest:
    nest = initial(compute, target)
    for step in steps:
        nest = step.apply(nest)
    limits.check(nest)
    return nest


def tile(rows: int, vectors: int, lanes: int = 8) -> list[Step]:
    """A register tile of a matrix product, handed to the last stage."""
    steps: list[Step] = [Split("out", "i0", (rows,)), Split("out", "i1", (vectors, lanes))]
    steps += [Reorder("out", ("i0.0", "i1.0", "i0.1", "i1.1", "i1.2")), Vectorize("out", "i1.2")]
    steps += [Unroll("out", "i1.1"), Unroll("out", "i0.1"), ComputeAt("contract", "out", "i1.0")]
    steps += [Split("contract", "i1", (lanes,)), Reorder("contract", ("r0", "i0", "i1.0", "i1.1"))]
    steps += [Vectorize("contract", "i1.1"), Unroll("contract", "i1.0"), Unroll("contract", "i0")]
    return [*steps, Accumulate("contract", "")]


@pytest.mark.parametrize(("rows", "vectors"), [(6, 2), (13, 1), (4, 3), (2, 4)])
def test_a_tile_that_fits_the_registers_passes(rows: int, vectors: int) -> None:
    assert rows * vectors + vectors + 1 <= AVX2.vector_registers
    checked(gemm(64, 64, 16).compute, tile(rows, vectors))


@pytest.mark.parametrize(("rows", "vectors"), [(7, 2), (15, 1), (3, 4)])
def test_a_tile_that_needs_more_registers_is_refused(rows: int, vectors: int) -> None:
    needed = rows * vectors + vectors + 1
    wanted = (
        rf"^contract: the register tile needs {needed} vector registers, the target has 16: "
        "use a smaller tile$"
    )
    with pytest.raises(ScheduleError, match=wanted):
        checked(gemm(64, 64, 16).compute, tile(rows, vectors))


def test_a_wider_target_takes_a_larger_tile() -> None:
    checked(gemm(64, 96, 16).compute, tile(9, 3, lanes=16), AVX512)


def test_code_written_out_beyond_the_limit_is_refused() -> None:
    order = Reorder("contract", ("i0", "i1", "r0.0", "r0.1"))
    steps: list[Step] = [Split("contract", "r0", (5000,)), order, Unroll("contract", "r0.1")]
    wanted = "^contract: 5000 statements written out, at most 1024: unroll less$"
    with pytest.raises(ScheduleError, match=wanted):
        checked(gemm(8, 8, 5000).compute, steps)
    checked(gemm(8, 8, 1024).compute, steps)


@pytest.mark.parametrize(("extent", "bodies"), [(12, 1), (13, 2)])
def test_a_ragged_end_is_written_apart(extent: int, bodies: int) -> None:
    nest = checked(gemm(extent, 16, 8).compute, tile(3, 1))
    assert limits.bodies(nest, nest.stage("contract")) == bodies


def test_each_peeled_border_is_written_apart() -> None:
    steps: list[Step] = [Peel("contract", "i0"), Peel("contract", "i1")]
    nest = checked(conv(9, 11, 5, 19).compute, steps)
    assert limits.bodies(nest, nest.stage("contract")) == (1 + 2) * (1 + 2)


def test_unrolling_multiplies_with_bodies() -> None:
    steps: list[Step] = [Peel("contract", "i0"), Unroll("contract", "r2"), Unroll("contract", "r1")]
    nest = checked(conv(9, 11, 5, 19).compute, steps)
    assert limits.code_statements(nest, nest.stage("contract")) == 3 * (5 * 3)


def test_a_buffer_of_a_call_beyond_the_limit_is_refused() -> None:
    wanted = r"^contract: its buffer of 268697600 bytes is too large: compute it further inside$"
    with pytest.raises(ScheduleError, match=wanted):
        checked(sized("f32[8200,3]", "f32[3,8192]").compute, [])
    checked(sized("f32[8192,3]", "f32[3,8192]").compute, [])


def test_a_buffer_of_a_task_beyond_the_limit_is_refused() -> None:
    pack = Pack("contract", "a1", "out", "i0.0", ((0, 1), (1, 1)), 8)
    steps: list[Step] = [Split("out", "i0", (4,)), ComputeAt("contract", "out", "i0.0"), pack]
    checked(gemm(8, 1024, 1024).compute, steps)
    wanted = r"^a1.packed: its buffer of 4198400 bytes is too large: compute it further inside$"
    with pytest.raises(ScheduleError, match=wanted):
        checked(gemm(8, 1025, 1024).compute, steps)


def test_nothing_stands_between_two_parallel_loops() -> None:
    steps: list[Step] = [Parallel("out", "i1"), ComputeAt("contract", "out", "i1")]
    checked(gemm(8, 8, 8).compute, steps)
    wanted = "^contract: i0 is not the innermost parallel loop: compute it further inside$"
    with pytest.raises(ScheduleError, match=wanted):
        checked(gemm(8, 8, 8).compute, [steps[0], ComputeAt("contract", "out", "i0")])


def sums(rows: int, columns: int = 8, terms: int = 6) -> Compute:
    """Two sums over rows of products, `p` and `q`, and a last stage that adds them."""
    i, j, r = (Affine.axis(a) for a in "ijr")
    axes, over = (Axis("i", rows), Axis("j", columns)), (Axis("r", terms),)
    made = [
        Stage(
            name, axes, over, (Store(name, (i, j)),),
            (Apply("multiply", (Load("x", (i, r), "f32"), Load(w, (r, j), "f32")), "f32"),), SUM,
        )
        for name, w in (("p", "v"), ("q", "w"))
    ]  # fmt: skip
    both = Apply("add", (Load("p", (i, j), "f32"), Load("q", (i, j), "f32")), "f32")
    return Compute(
        (
            Tensor("x", (rows, terms), "f32", "argument"),
            *(Tensor(w, (terms, columns), "f32", "argument") for w in "vw"),
            *(Tensor(name, (rows, columns), "f32", "temporary") for name in "pq"),
            Tensor("y", (rows, columns), "f32", "result"),
        ),
        (*made, Stage("out", axes, (), (Store("y", (i, j)),), (both,))),
    )


def handed_over(tile: int) -> list[Step]:
    """Both sums in registers, for so many rows of one vector that the last stage adds."""
    steps: list[Step] = [Split("out", "i", (tile,)), Vectorize("out", "j"), Unroll("out", "i.1")]
    for name in "qp":
        steps += [ComputeAt(name, "out", "i.0"), Reorder(name, ("r", "i", "j"))]
        steps += [Vectorize(name, "j"), Unroll(name, "i"), Accumulate(name, "")]
    return steps


def nested(rows: int, terms: int = 3) -> Compute:
    """Sums `y` over r of squares of sums `m`."""
    i, j, r, q = (Affine.axis(a) for a in "ijrq")
    m = Load("m", (i, r), "f32")
    return Compute(
        (
            Tensor("x", (rows, terms, 5), "f32", "argument"),
            Tensor("m", (rows, terms), "f32", "temporary"),
            Tensor("y", (rows,), "f32", "result"),
        ),
        (
            Stage(
                "m", (Axis("i", rows), Axis("j", terms)), (Axis("q", 5),), (Store("m", (i, j)),),
                (Load("x", (i, j, q), "f32"),), SUM,
            ),
            Stage(
                "out", (Axis("i", rows),), (Axis("r", terms),), (Store("y", (i,)),),
                (Apply("multiply", (m, m), "f32"),), SUM,
            ),
        ),
    )  # fmt: skip


def inside_of_sums(tile: int) -> list[Step]:
    """Sums of so many rows in registers, inside of the loop over which others are held."""
    return [
        Split("out", "i", (tile,)), Reorder("out", ("i.0", "r", "i.1")), Unroll("out", "i.1"),
        Accumulate("out", "i.0"), ComputeAt("m", "out", "r"), Reorder("m", ("q", "i", "j")),
        Unroll("m", "j"), Unroll("m", "i"), Accumulate("m", ""),
    ]  # fmt: skip


JOINT: dict[str, tuple[Compute, Callable[[int], list[Step]], str]] = {
    "handed over together": (sums(56), handed_over, "q: .*, with p held meanwhile"),
    "inside of others": (nested(56), inside_of_sums, "m: .*, with out held meanwhile"),
}


@pytest.mark.parametrize("name", JOINT)
def test_registers_are_those_of_all_stages_that_live_at_one_point(name: str) -> None:
    """The stages have so many rows that one alone takes half of the registers, and one row more."""
    compute, steps, message = JOINT[name]
    nest = checked(compute, steps(7))
    assert {limits.registers(nest, s) for s in nest.stages} - {0} == {9}
    assert max(limits.held(nest, s) for s in nest.stages) == 7
    with pytest.raises(ScheduleError, match=f"^{message}, the target has 16: use a smaller tile$"):
        checked(compute, steps(8))
    checked(compute, steps(8), AVX512)


@pytest.mark.parametrize("name", JOINT)
def test_stages_that_live_at_one_point_are_computed_right(name: str) -> None:
    compute, steps, _ = JOINT[name]
    rng = np.random.default_rng(0)
    values = [rng.integers(-3, 4, t.shape).astype(np.float32) for t in compute.arguments]
    (found,) = called(compute, steps(7), values)
    np.testing.assert_array_equal(found, interpret(compute, values)[0])


def test_what_was_read_for_the_last_time_holds_no_registers() -> None:
    """In a chain p, q, out the first is gone where the last stands, which reads the second."""
    compute = sums(56)
    p, q, out = compute.stages
    squares = replace(q, reduce=(), combine=None, values=(Load("p", q.stores[0].index, "f32"),))
    last = replace(out, values=(Load("q", out.stores[0].index, "f32"),))
    nest = initial(replace(compute, stages=(p, squares, last)), AVX2)
    steps = [x for x in handed_over(7) if x != Reorder("q", ("r", "i", "j"))]
    for step in steps:
        nest = step.apply(nest)
    held = [[x.stage.name for x in limits.held_meanwhile(nest, s)] for s in nest.stages]
    names = dict(zip((s.stage.name for s in nest.stages), held, strict=True))
    assert names == {"p": [], "q": ["p"], "out": ["q"]}
