"""Stages that several others read inside one loop: what is computed there serves them all."""

from dataclasses import replace

import numpy as np
import pytest

from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay, unscheduled
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import MAX, SUM
from hlotune.schedules.ir.nest import readers, region
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    ComputeAt,
    Parallel,
    Split,
    Step,
    Vectorize,
    VectorizeReduction,
)
from tests.codegen.test_any_steps import any_step
from tests.support.interpreter import interpret
from tests.support.reductions import Array, called

HOST = host_target()
ROWS, COLUMNS = 7, 21
I, J, R = (Affine.axis(a) for a in "ijr")  # noqa: E741


def softmax() -> Compute:
    """Rows of exponentials, which their sum reads, and the results that are divided by it."""
    rows, columns, over = Axis("i", ROWS), Axis("j", COLUMNS), Axis("r", COLUMNS)
    x, e = Load("x", (I, J), "f32"), Load("e", (I, J), "f32")
    less = Apply("subtract", (x, Load("top", (I,), "f32")), "f32")
    return Compute(
        (
            Tensor("x", (ROWS, COLUMNS), "f32", "argument"),
            Tensor("top", (ROWS,), "f32", "temporary"),
            Tensor("e", (ROWS, COLUMNS), "f32", "temporary"),
            Tensor("total", (ROWS,), "f32", "temporary"),
            Tensor("y", (ROWS, COLUMNS), "f32", "result"),
        ),
        (
            Stage("top", (rows,), (over,), (Store("top", (I,)),), (Load("x", (I, R), "f32"),), MAX),
            Stage(
                "e", (rows, columns), (), (Store("e", (I, J)),),
                (Apply("exponential", (less,), "f32"),),
            ),
            Stage(
                "total", (rows,), (over,), (Store("total", (I,)),),
                (Load("e", (I, R), "f32"),), SUM,
            ),
            Stage(
                "out", (rows, columns), (), (Store("y", (I, J)),),
                (Apply("divide", (e, Load("total", (I,), "f32")), "f32"),),
            ),
        ),
    )  # fmt: skip


FUSED: tuple[Step, ...] = (*(ComputeAt(name, "out", "i") for name in ("total", "e", "top")),)
LANES: tuple[Step, ...] = (
    *(Split(name, "r", (8,)) for name in ("top", "total")),
    *(Accumulate(name, "i") for name in ("top", "total")),
    *(VectorizeReduction(name, "r.1") for name in ("top", "total")),
    *(Split(name, "j", (8,)) for name in ("e", "out")),
    *(Vectorize(name, "j.1") for name in ("e", "out")),
)
BLOCKS: tuple[Step, ...] = (
    Split("out", "i", (3,)), *(ComputeAt(name, "out", "i.0") for name in ("total", "e", "top")),
)  # fmt: skip
INSIDE: tuple[Step, ...] = (
    ComputeAt("total", "out", "i"), ComputeAt("e", "out", "i"), ComputeAt("top", "e", "i"),
)  # fmt: skip
SCHEDULES: dict[str, tuple[Step, ...]] = {
    "apart": (),
    "row by row": FUSED,
    "row by row in tasks and lanes": (*FUSED, *LANES, Parallel("out", "i")),
    "blocks of rows": BLOCKS,
    "blocks of rows in lanes": (*BLOCKS, *LANES),
    "one inside another": INSIDE,
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_stage_serves_all_that_read_it_inside_a_loop(name: str) -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    (found,) = called(softmax(), SCHEDULES[name], [x])
    wanted = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(found, wanted / wanted.sum(axis=1, keepdims=True), rtol=2e-6)
    np.testing.assert_allclose(found, interpret(softmax(), [x])[0], rtol=2e-6)


def test_a_row_is_computed_where_all_that_read_it_are() -> None:
    nest = replay(softmax(), Schedule("direct", FUSED), TARGETS["znver4"])
    assert region(nest, nest.stage("e")) == {"i": 1, "j": COLUMNS}
    assert region(nest, nest.stage("top")) == {"i": 1, "r": COLUMNS}


def windows(*, last: Affine, begin: int = 0, scale: int = 1) -> Compute:
    """`m` is twice x; `w` are sums of its neighbours; `y` is those and one more element of `m`."""
    extent, length = 20, 48
    walk = I * scale + begin
    both = Apply("add", (Load("w", (I,), "i32"), Load("m", (last,), "i32")), "i32")
    twice = Apply("add", (Load("x", (I,), "i32"),) * 2, "i32")
    return Compute(
        (
            Tensor("x", (length,), "i32", "argument"),
            Tensor("m", (length,), "i32", "temporary"),
            Tensor("w", (extent,), "i32", "temporary"),
            Tensor("y", (extent,), "i32", "result"),
        ),
        (
            Stage("m", (Axis("i", length),), (), (Store("m", (I,)),), (twice,)),
            Stage(
                "w", (Axis("i", extent),), (Axis("r", 3),), (Store("w", (I,)),),
                (Load("m", (walk + R,), "i32"),), SUM,
            ),
            Stage("out", (Axis("i", extent),), (), (Store("y", (I,)),), (both,)),
        ),
    )  # fmt: skip


def in_blocks(factor: int) -> tuple[Step, ...]:
    return (
        Split("out", "i", (factor,)), ComputeAt("w", "out", "i.0"), ComputeAt("m", "out", "i.0"),
    )  # fmt: skip


@pytest.mark.parametrize("factor", [1, 4, 7, 20])
@pytest.mark.parametrize("offset", [0, 1, 2, 9])
@pytest.mark.parametrize("begin", [0, 5])
def test_a_region_reaches_from_the_lowest_reader_to_the_highest(
    begin: int, offset: int, factor: int
) -> None:
    compute = windows(last=I + offset, begin=begin)
    x = np.arange(48, dtype=np.int32) ** 2
    (found,) = called(compute, in_blocks(factor), [x])
    sums = sum(2 * x[begin + k : begin + k + 20] for k in range(3))
    np.testing.assert_array_equal(found, sums + 2 * x[offset : offset + 20])
    nest = replay(compute, Schedule("direct", in_blocks(factor)), TARGETS["znver4"])
    reach = max(begin + 2, offset) - min(begin, offset)
    assert region(nest, nest.stage("m"))["i"] == factor + reach


def test_a_reader_may_go_backwards_where_another_does_too() -> None:
    compute = windows(last=I * -1 + 30)
    window = compute.stages[1]
    turned = replace(window, values=(Load("m", (I * -1 + 28 + R,), "i32"),))
    compute = replace(compute, stages=(compute.stages[0], turned, compute.stages[2]))
    x = np.arange(48, dtype=np.int32) ** 2
    (found,) = called(compute, in_blocks(4), [x])
    np.testing.assert_array_equal(found, interpret(compute, [x])[0])
    nest = replay(compute, Schedule("direct", in_blocks(4)), TARGETS["znver4"])
    assert region(nest, nest.stage("m"))["i"] == 6


def test_vectors_of_all_readers_lie_in_the_region() -> None:
    compute, x = windows(last=I + 5), np.arange(48, dtype=np.int32)
    steps = (
        *in_blocks(8), Vectorize("out", "i.1"), Split("m", "i", (4,)), Vectorize("m", "i.1"),
    )  # fmt: skip
    (found,) = called(compute, steps, [x])
    np.testing.assert_array_equal(found, interpret(compute, [x])[0])


REFUSED = {
    "readers that move apart": (
        windows(last=I, scale=2), in_blocks(4),
        r"compute_at: m is read along i from 2\*i and i on, which move apart: "
        "compute it further outside",
    ),
    "one that stands outside": (
        windows(last=I), (ComputeAt("m", "out", "i"),), "compute_at: m is read by w too",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_readers_that_no_region_serves_are_refused(name: str) -> None:
    compute, steps, message = REFUSED[name]
    with pytest.raises(ScheduleError, match=f"^{message}$"):
        replay(compute, Schedule("direct", steps), TARGETS["znver4"])


def test_readers_that_move_apart_are_served_where_nothing_moves() -> None:
    compute, x = windows(last=I, scale=2), np.arange(48, dtype=np.int32)
    (found,) = called(compute, in_blocks(20), [x])
    np.testing.assert_array_equal(found, interpret(compute, [x])[0])


def test_steps_put_together_blindly_for_several_readers_are_refused_or_right() -> None:
    """Half of the plans begin with all that is read computed inside a loop of the last stage."""
    rng, fused = np.random.default_rng(0), 0
    cases = (softmax(), FUSED), (softmax(), BLOCKS), (windows(last=I + 4), in_blocks(7))
    for n in range(120):
        compute, begin = cases[n % 3]
        steps = list[Step](begin if n % 2 else ())
        nest = unscheduled(compute, "direct", HOST)
        for step in steps:
            nest = step.apply(nest)
        for _ in range(int(rng.integers(1, 12))):
            try:
                nest = (step := any_step(nest, rng)).apply(nest)
                steps.append(step)
            except ScheduleError:
                continue
        arguments = [drawn(t, rng) for t in compute.arguments]
        try:
            found = called(compute, steps, arguments)
        except (ScheduleError, BuildError):
            continue
        for a, b in zip(found, interpret(compute, arguments), strict=True):
            np.testing.assert_allclose(a, b, rtol=4e-6, err_msg=str(steps))
        fused += any(len(readers(nest, s)) > 1 and s.at is not None for s in nest.stages)
    assert fused > 20


def drawn(tensor: Tensor, rng: np.random.Generator) -> Array:
    return rng.integers(-4, 5, tensor.shape).astype(numpy_dtype(tensor.dtype))
