"""Sums about the mean of a long row in the pass that finds it: neighbours are in pieces apart."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.algorithms.one_pass.rewriting import NEIGHBOUR, PIECE, SUMS, OnePass
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.table import algorithm_of
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from hlotune.schedules.steps.steps import ComputeAt
from tests.support.interpreter import interpret
from tests.support.reductions import called

ROW, ALONG, PLACE = Affine.axis("i0"), Affine.axis("r0"), Affine.axis("i1")
ZEN4 = replace(TARGETS["znver4"], threads=2)
Array = NDArray[Any]


def apply(op: str, *args: Expr) -> Apply:
    return Apply(op, args, "f32")


def standardized(rows: int, columns: int) -> Compute:
    """Each row less its mean, with its sum of squares about that."""

    def x(place: Affine) -> Load:
        return Load("a0", (ROW, place), "f32")

    total, mean = Load("t", (ROW,), "f32"), Load("m", (ROW,), "f32")
    apart = apply("subtract", x(ALONG), mean)
    i, j, r = Axis("i0", rows), Axis("i1", columns), Axis("r0", columns)
    stages = (
        Stage("total", (i,), (r,), (Store("t", (ROW,)),), (x(ALONG),), SUM),
        Stage("mean", (i,), (), (Store("m", (ROW,)),),
              (apply("multiply", total, Const(1 / columns, "f32")),)),
        Stage("about", (i,), (r,), (Store("v", (ROW,)),), (apply("multiply", apart, apart),), SUM),
        Stage("out", (i, j), (), (Store("y0", (ROW, PLACE)),),
              (apply("add", apply("subtract", x(PLACE), mean), Load("v", (ROW,), "f32")),)),
    )  # fmt: skip
    tensors = [Tensor("a0", (rows, columns), "f32", "argument")]
    tensors += [Tensor(n, (rows,), "f32", "temporary") for n in ("t", "m", "v")]
    return Compute((*tensors, Tensor("y0", (rows, columns), "f32", "result")), stages)


def drawn(compute: Compute) -> Array:
    (x,) = (
        np.random.default_rng(0).standard_normal(t.shape, np.float32) for t in compute.arguments
    )
    return x + np.float32(5)


def wanted(x: Array) -> Array:
    wide = x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    return np.asarray(apart + (apart**2).sum(1, keepdims=True))


def test_neighbours_are_in_pieces_of_their_own() -> None:
    compute = standardized(3, 120)
    pieces, x = OnePass(5, 8)(compute), drawn(compute)
    assert pieces.stages[0].name == SUMS
    assert pieces.stages[0].extents == {"i0": 3, PIECE: 3, NEIGHBOUR: 8, "r0": 5}
    (found,) = interpret(pieces, [x])
    np.testing.assert_allclose(found, wanted(x), rtol=1e-5)


def test_the_row_is_read_by_the_pieces_and_by_what_is_stored() -> None:
    pieces = OnePass(5, 8)(standardized(3, 120))
    assert [s.name for s in pieces.stages if {"r0", "i1"} & s.extents.keys()] == [SUMS, "out"]


def test_the_code_of_the_first_candidate_says_the_same() -> None:
    compute = standardized(4, 1600)
    cut, x = OnePass(25, 64), drawn(compute)
    space = rows_space_of(cut(compute), host_target(), str(cut))
    found = called(cut(compute), space.schedule(space.heuristic()).steps, [x])
    np.testing.assert_allclose(found[0], wanted(x), rtol=1e-5)


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_cancellation_loses_little_where_pivots_lie_far_from_all_others(far: float) -> None:
    compute, x = standardized(3, 6400), drawn(standardized(3, 6400))
    x.reshape(3, 2, 50, 64)[:, :, 0] += np.float32(far)  # the first element of each piece
    (found,) = interpret(OnePass(50, 64)(compute), [x])
    np.testing.assert_allclose(found, wanted(x), rtol=64 * 64 * 2.0**-24)


def test_uneven_pieces_are_refused() -> None:
    with pytest.raises(ScheduleError, match="expected pieces that divide 120, got 32"):
        OnePass(4, 8)(standardized(3, 120))


@pytest.mark.parametrize(
    ("columns", "algorithm"),
    [(32000, "one_pass(50, 64)"), (16384, "one_pass(64, 64)"), (9248, "one_pass(17, 32)")],
)
def test_long_rows_begin_with_one_pass_inside_of_their_rows(columns: int, algorithm: str) -> None:
    compute = standardized(64, columns)
    space = space_of(compute, ZEN4)
    assert isinstance(space, AlgorithmsSpace)
    first = space.schedule(space.heuristic())
    assert first.algorithm == algorithm
    assert SUMS in {s.stage for s in first.steps if isinstance(s, ComputeAt)}
    assert space.locate(first) is not None
    assert replay(compute, first, ZEN4)


def algorithms(compute: Compute, target: Any = ZEN4, numerics: Any = "standard") -> set[str]:
    space = space_of(compute, target, numerics)
    parts = space.parts if isinstance(space, AlgorithmsSpace) else (space,)
    return {p.algorithm.partition("(")[0] for p in parts}


def test_rows_that_the_first_cache_holds_or_that_are_few_have_no_such_algorithm() -> None:
    assert "one_pass" in algorithms(standardized(64, 16384))
    assert "one_pass" not in algorithms(standardized(64, 8192))
    assert "one_pass" not in algorithms(standardized(1, 16384))
    assert "one_pass" not in algorithms(standardized(64, 16384 + 8))


def test_strict_numerics_and_shorter_vectors_have_no_such_algorithm() -> None:
    assert "one_pass" not in algorithms(standardized(64, 16384), numerics="strict")
    assert "one_pass" not in algorithms(standardized(64, 16384), TARGETS["x86-64-v3"])


def test_names_are_read_as_they_are_written() -> None:
    for cut in (OnePass(64), OnePass(50, 64)):
        assert algorithm_of(str(cut)).rewriting(str(cut)) == cut
    for name in ("one_pass(1)", "one_pass(50, 1)", "one_pass(50, 64, 2)", "one_pass()"):
        with pytest.raises(ScheduleError, match="expected an algorithm of"):
            algorithm_of(name)
