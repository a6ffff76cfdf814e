"""Limits that hang on several steps at once: each stops a nest that passes it, and no sooner."""

import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
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
from hlotune.schedules.targets.target import Target
from tests.support.computes import conv, gemm, sized

AVX2, AVX512 = TARGETS["x86-64-v3"], TARGETS["znver4"]


def checked(compute: Compute, steps: list[Step], target: Target = AVX2) -> LoopNest:
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
