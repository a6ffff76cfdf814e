"""How far results go by roundings of the inputs, and that no more is asked of kernels."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from hlotune.deploy.accuracy import Judge
from hlotune.deploy.conditioning import DRAWS, TIMES_MOVED, nudged
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.oracle import Gap, Reference

Array = np.ndarray[Any, Any]
SIZE = 1 << 20


def normal(*shape: int) -> Array:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_go_to_one_of_their_neighbours(dtype: Any) -> None:
    x = normal(1000).astype(dtype)
    (found,) = nudged([x])
    assert found.dtype == x.dtype
    grows = abs(found) > abs(x)
    away = np.copysign(dtype(np.inf), x)
    np.testing.assert_array_equal(found, np.nextafter(x, np.where(grows, away, dtype(0))))
    assert 400 < np.count_nonzero(grows) < 600


def test_complex_numbers_move_in_both_parts() -> None:
    x = (normal(500) + 1j * normal(500)).astype(np.complex64)
    (found,) = nudged([x])
    assert found.shape == x.shape and found.dtype == x.dtype
    for part in (np.real, np.imag):
        assert np.count_nonzero(part(found) != part(x)) == 500
        assert 150 < np.count_nonzero(abs(part(found)) > abs(part(x))) < 350


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(50, np.float32),
        np.ones(50, np.float32),
        np.arange(50, dtype=np.float64),
        np.full(50, np.inf, np.float32),
        np.full(50, -np.nan, np.float32),
        np.full(50, np.finfo(np.float32).min),
        np.arange(50),
        np.ones(50, bool),
        normal(50).astype(ml_dtypes.bfloat16),
        normal(50).astype(np.float16),
    ],
)
def test_what_is_exact_for_a_program_stays(x: Array) -> None:
    """Masks, labels and counts in a floating type among it."""
    (found,) = nudged([x])
    assert found.tobytes() == x.tobytes()


def test_the_smallest_number_stays_finite() -> None:
    x = np.full(60, np.finfo(np.float32).smallest_subnormal, np.float32)
    (found,) = nudged([x])
    assert set(found) == {2 * x[0], np.float32(0)}


def signs(x: Any, y: Any) -> Any:
    """Which is larger: a rounding decides where both are nearly equal."""
    return jnp.where(x * 3 >= y, 1.0, -1.0)


def with_ties(ties: int) -> Program:
    x = normal(SIZE)
    y = 3 * x + np.where(np.arange(SIZE) < ties, np.float32(0), np.float32(1))
    return load(signs, x, y.astype(np.float32))


UNKNOWN = Gap("no time")


def asked(
    program: Program, reference: Reference | Gap = UNKNOWN
) -> tuple[Judge, Callable[..., Any]]:
    """A judge that has no bound of the oracle, and the default."""
    default = jitted(program)
    judge = Judge.of(program, default, example_inputs(program))
    return replace(judge, references=(reference,)), default


def flipped(default: Callable[..., Any], where: slice) -> Callable[..., Any]:
    """The default with some signs the other way."""

    def function(x: Any, y: Any) -> tuple[Array]:
        found = np.array(default(x, y))
        found[where] *= -1
        return (found,)

    return function


def unbounded() -> Reference:
    """The right signs by the oracle, with a bound that tells nothing."""
    default = jitted(with_ties(0))
    x, y = example_inputs(with_ties(0)).values
    return Reference(np.asarray(default(x, y), np.float64), np.full(SIZE, np.inf), exact=False)


@pytest.mark.parametrize("knows", [False, True])
def test_ties_that_fall_the_other_way_are_not_wrong(knows: bool) -> None:
    program = with_ties(2048)
    judge, default = asked(program)
    if knows:
        right = np.asarray(default(*judge.inputs.values), np.float64)
        judge = replace(
            judge, references=(replace(unbounded(), value=right),)
        )  # a bound of first order says nothing there
    (found,) = judge.judge(flipped(default, slice(0, 2048)), "standard")
    assert found.tuned_error > 1e-2
    assert found.wrong is None


@pytest.mark.parametrize("knows", [False, True])
def test_signs_that_no_rounding_decides_are_wrong_where_they_are_others(knows: bool) -> None:
    judge, default = asked(with_ties(0), unbounded() if knows else UNKNOWN)
    (found,) = judge.judge(flipped(default, slice(0, 2048)), "standard")
    assert found.wrong is not None and found.wrong.endswith(
        "; the default's own moves by 0 where its inputs do by one rounding"
    )


def test_more_than_ties_explain_is_wrong() -> None:
    judge, default = asked(with_ties(16))
    (known,) = judge.moves(DRAWS)
    assert 0 < known.relative < 1e-2
    within, beyond = (
        ceil((times * TIMES_MOVED * known.relative / 2) ** 2 * SIZE) for times in (0.9, 1.1)
    )
    for so_many, is_wrong in ((within, False), (beyond, True)):
        (found,) = judge.judge(flipped(default, slice(0, so_many)), "standard")
        assert found.tuned_error < 0.1
        assert (found.wrong is not None) is is_wrong


@pytest.mark.parametrize("factor", [4.0, np.nan, np.inf])
def test_even_where_all_are_ties_other_numbers_are_wrong(factor: float) -> None:
    judge, default = asked(with_ties(SIZE))
    (other,) = judge.judge(flipped(default, slice(0, SIZE // 4)), "standard")
    assert other.wrong is None and other.tuned_error > 0.1
    (found,) = judge.judge(lambda *v: (factor * np.asarray(default(*v)),), "standard")
    assert found.wrong is not None


def blows_up(x: Any) -> Any:
    """Infinite or not by the last bit of an input."""
    return 1 / jnp.where(x < 1.5, 0.0, x)


def test_what_roundings_make_infinite_may_be_infinite_and_nothing_else() -> None:
    x = np.concatenate([np.full(64, 1.5), np.full(64, 2.5)]).astype(np.float32)
    judge, default = asked(load(blows_up, x))
    (known,) = judge.moves(DRAWS)
    lost = ~np.isfinite(known.settled)
    assert 32 < np.count_nonzero(lost) <= 64 and not lost[64:].any()

    def infinite_at(places: Array) -> Callable[..., Any]:
        return lambda x: (np.where(places, np.inf, np.asarray(default(x))).astype(np.float32),)

    (found,) = judge.judge(infinite_at(lost), "standard")
    assert (found.wrong, found.tuned_error) == (None, 0.0)
    assert found.compared == 1 - np.count_nonzero(lost) / 128
    (wrong,) = judge.judge(infinite_at(np.arange(128) == 100), "standard")
    assert wrong.wrong is not None


def test_zeros_that_move_may_move() -> None:
    x = normal(512)
    judge, default = asked(load(lambda x, y: x - y, x, x.copy()))
    (known,) = judge.moves(DRAWS)
    assert known.relative == np.inf
    (found,) = judge.judge(lambda x, y: (np.asarray(default(x, y)) + 1e-8,), "standard")
    assert found.wrong is None
    (wrong,) = judge.judge(lambda x, y: (x,), "standard")
    assert wrong.wrong is not None


def test_what_the_oracle_bounds_is_wrong_however_far_roundings_take_the_default() -> None:
    program = load(lambda x: 2 * x, normal(64))
    judge = Judge.of(program, jitted(program), example_inputs(program))
    went = tuple(replace(m, distance=np.inf) for m in judge.moves(DRAWS))
    (found,) = replace(judge, moves=lambda _: went).judge(lambda x: (3 * x,), "standard")
    assert found.wrong is not None


def test_integers_are_held_to_those_of_the_default() -> None:
    judge, default = asked(load(lambda x, y: (x * 3 >= y).astype(np.int32), *example(512)))
    (found,) = judge.judge(lambda *v: (1 - np.asarray(default(*v)),), "standard")
    assert found.wrong is not None


def example(ties: int) -> tuple[Array, ...]:
    return example_inputs(with_ties(ties)).values


def test_the_default_is_called_again_only_until_a_result_that_is_too_far_off_is_explained() -> None:
    program, calls = with_ties(2048), list[None]()
    default = jitted(program)

    def counted(*values: Any) -> Any:
        calls.append(None)
        return default(*values)

    judge = replace(Judge.of(program, counted, example_inputs(program)), references=(UNKNOWN,))
    flipped_ties, wrong = flipped(default, slice(0, 2048)), flipped(default, slice(0, None))
    for function, calls_by_then in ((default, 1), (flipped_ties, 2), (wrong, 1 + DRAWS)):
        judge.judge(function, "standard")
        assert len(calls) == calls_by_then


@pytest.mark.parametrize(("falls_in", "is_right"), [(1, True), (DRAWS, True), (DRAWS + 1, False)])
def test_ties_may_fall_the_other_way_in_a_later_draw(falls_in: int, is_right: bool) -> None:
    judge, default = asked(with_ties(2048))
    far = judge.moves(DRAWS)
    still = tuple(replace(m, distance=0.0) for m in far)
    later = replace(judge, moves=lambda draws: far if draws >= falls_in else still)
    (found,) = later.judge(flipped(default, slice(0, 2048)), "standard")
    assert (found.wrong is None) is is_right


def test_a_program_without_ties_moves_by_roundings_alone() -> None:
    judge, _ = asked(load(lambda x: x @ x, normal(64, 64)))
    assert 0 < judge.moves(DRAWS)[0].relative < 1e-6
