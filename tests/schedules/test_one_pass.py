"""Sums about a mean in the pass that finds the mean."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.one_pass.rewriting import (
    PIECE,
    SUMS,
    OnePass,
    about_a_mean,
    points_of,
)
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.steps import ComputeAt
from tests.support.interpreter import interpret
from tests.support.reductions import called

ROW, COLUMN = Affine.axis("r0"), Affine.axis("i0")
Array = NDArray[Any]


def apply(op: str, *args: Expr) -> Apply:
    return Apply(op, args, "f32")


def about_columns(rows: int, columns: int, *, more: bool = False) -> Compute:
    """Means of columns, and sums of squares about them; with more also sums of what is about the
    means itself, and of another argument."""
    x, g = (Load(name, (ROW, COLUMN), "f32") for name in ("a0", "a1"))
    total, mean = Load("t", (COLUMN,), "f32"), Load("m", (COLUMN,), "f32")
    apart = apply("subtract", x, mean)
    values: tuple[Expr, ...] = (apply("multiply", apart, apart),)
    if more:
        values = (*values, apart, g)
    results = tuple(f"y{k}" for k in range(len(values)))
    i, r = Axis("i0", columns), Axis("r0", rows)
    stores = tuple(Store(name, (COLUMN,)) for name in results)
    stages = (
        Stage("total", (i,), (r,), (Store("t", (COLUMN,)),), (x,), SUM),
        Stage("mean", (i,), (), (Store("m", (COLUMN,)),),
              (apply("multiply", total, Const(1 / rows, "f32")),)),
        Stage("about", (i,), (r,), stores, values, SUM),
        Stage("out", (i,), (), (Store("mean", (COLUMN,)),), (mean,)),
    )  # fmt: skip
    arguments = ("a0", "a1") if more else ("a0",)
    tensors = [Tensor(n, (rows, columns), "f32", "argument") for n in arguments]
    tensors += [Tensor(n, (columns,), "f32", "result") for n in (*results, "mean")]
    tensors += [Tensor(n, (columns,), "f32", "temporary") for n in ("t", "m")]
    return Compute(tuple(tensors), stages)


def drawn(compute: Compute, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    found = [rng.standard_normal(t.shape, dtype=np.float32) for t in compute.arguments]
    return [found[0] + 5, *found[1:]]


@pytest.mark.parametrize("more", [False, True])
def test_pieces_come_to_what_two_passes_come_to(more: bool) -> None:
    compute = about_columns(96, 7, more=more)
    arguments, pieces = drawn(compute), OnePass(8)(compute)
    assert pieces.stages[0].name == SUMS
    assert pieces.stages[0].extents == {PIECE: 12, "i0": 7, "r0": 8}
    for a, b in zip(interpret(pieces, arguments), interpret(compute, arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("more", [False, True])
def test_the_argument_is_read_by_one_stage_but_for_pivots(more: bool) -> None:
    pieces = OnePass(8)(about_columns(96, 7, more=more))
    whole = [s.name for s in pieces.stages if any("r0" in x.axes for x in s.loads)]
    assert whole == [SUMS]


@pytest.mark.parametrize("more", [False, True])
def test_the_code_of_first_candidates_says_the_same(more: bool) -> None:
    compute = about_columns(192, 40, more=more)
    arguments, pieces = drawn(compute), OnePass(32)(compute)
    space = rows_space_of(pieces, host_target(), "one_pass(32)", SUMS)
    found = called(pieces, space.schedule(space.heuristic()).steps, arguments)
    for a, b in zip(found, interpret(compute, arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-3)


@pytest.mark.parametrize("outlier", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_cancellation_loses_little_where_pivots_lie_far_from_all_others(
    outlier: float, shift: float
) -> None:
    """Two passes in f32 lose as much where elements lie far from zero."""
    compute = about_columns(4096, 5)
    (x,) = drawn(compute)
    x = x + np.float32(shift)
    x[::64] += np.float32(outlier)  # the first element of each piece
    wanted = ((x - x.mean(0, dtype=np.float64)) ** 2).sum(0, dtype=np.float64)
    squares, _ = interpret(OnePass(64)(compute), [x])
    np.testing.assert_allclose(squares, wanted, rtol=64 * 64 * 2.0**-24 if outlier else 1e-5)


@pytest.mark.parametrize(("far", "finite"), [(2e18, True), (3e18, False)])
def test_squares_about_a_pivot_far_from_its_piece_may_be_more_than_a_float_holds(
    far: float, finite: bool
) -> None:
    """Two passes have squares of up to 1.8e19."""
    compute = about_columns(4096, 5)
    (x,) = drawn(compute)
    x[0] = far
    with np.errstate(over="ignore", invalid="ignore"):
        squares, _ = interpret(OnePass(64)(compute), [x])
        two, _ = interpret(compute, [x])
    assert np.isfinite(two).all()
    if finite:
        np.testing.assert_allclose(squares, two, rtol=64 * 64 * 2.0**-24)
    else:
        assert not np.isfinite(squares).any()


def test_means_of_infinite_elements_stay_infinite() -> None:
    compute = about_columns(64, 3)
    (x,) = drawn(compute)
    x[0, 0], x[17, 1] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        squares, mean = interpret(OnePass(16)(compute), [x])
    assert [*mean[:2]] == [np.inf, -np.inf]
    assert np.isnan(squares[:2]).all()
    assert np.isfinite([squares[2], mean[2]]).all()


def test_other_computes_and_uneven_pieces_are_refused() -> None:
    compute = about_columns(96, 7)
    with pytest.raises(ScheduleError, match="expected pieces that divide 96, got 7"):
        OnePass(7)(compute)
    alone = replace(compute, stages=compute.stages[:1])
    with pytest.raises(ScheduleError, match="expected sums about a sum of the same, got none"):
        OnePass(8)(alone)


def test_sums_of_other_functions_of_what_is_apart_are_left() -> None:
    compute = about_columns(96, 7, more=True)
    x, g = (Load(name, (ROW, COLUMN), "f32") for name in ("a0", "a1"))
    apart = apply("subtract", x, Load("m", (COLUMN,), "f32"))
    cubes = apply("multiply", apart, apply("multiply", apart, apart))
    mean = Load("m", (COLUMN,), "f32")
    products = (apply("multiply", apart, x) for x in (mean, g))
    assert about_a_mean(compute) is not None
    for value in (cubes, apply("abs", apart), *products):
        stages = tuple(
            replace(s, values=(value, *s.values[1:])) if s.name == "about" else s
            for s in compute.stages
        )
        assert about_a_mean(replace(compute, stages=stages)) is None


def test_pieces_have_as_many_points_as_divide_an_axis() -> None:
    assert points_of(100352, 1, 256, 32) == 256
    assert points_of(96 * 7, 1, 256, 32) == 224
    assert points_of(1 << 13, 4, 256, 32) == 64
    assert points_of(8191, 1, 256, 32) is None


def test_large_columns_begin_with_one_pass_whose_pieces_stand_alone() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    for rows, columns in ((1 << 18, 64), (1 << 15, 1024)):
        space = space_of(about_columns(rows, columns), target)
        assert isinstance(space, AlgorithmsSpace)
        first = space.schedule(space.heuristic())
        assert first.algorithm == "one_pass(64)"
        inside = [s for s in first.steps if isinstance(s, ComputeAt)]
        assert not any(SUMS in (s.stage, s.consumer) for s in inside)
        assert space.locate(first) is not None
        assert replay(about_columns(rows, columns), first, target)


def test_more_pieces_than_a_call_may_keep_leave_the_other_algorithms() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    found = algorithms(space_of(about_columns(1 << 21, 1024), target))
    assert "direct" in found
    assert "one_pass(64)" not in found


def test_strict_numerics_small_tensors_and_lanes_along_sums_have_no_such_algorithm() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    large = about_columns(1 << 18, 64)
    assert "one_pass(64)" not in algorithms(space_of(large, target, "strict"))
    assert "one_pass(64)" not in algorithms(space_of(about_columns(1 << 15, 64), target))
    assert "one_pass(64)" in algorithms(space_of(large, target))


def algorithms(space: Any) -> list[str]:
    parts = space.parts if isinstance(space, AlgorithmsSpace) else (space,)
    return [p.algorithm for p in parts]


def test_one_piece_after_the_other_is_added_up() -> None:
    target = replace(TARGETS["znver4"], threads=2)
    space = space_of(about_columns(1 << 15, 1024), target)
    assert isinstance(space, AlgorithmsSpace)
    part = next(p for p in space.parts if p.algorithm == "one_pass(64)")
    assert isinstance(part, RowsSpace)
    placed = next(p for p, _ in part.groups(part.firsts()) if p.stage.name == SUMS)
    assert placed.block[PIECE].item() == 1
    assert placed.block["i0"].item() == 1024
