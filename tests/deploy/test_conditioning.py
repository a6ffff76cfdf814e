"""How far results go by roundings of the inputs, and that no more is asked of kernels."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from hlotune.deploy.accuracy import DECIDED_BY_ROUNDINGS, Judge
from hlotune.deploy.conditioning import TIMES_MOVED, moved, nudged
from hlotune.deploy.inputs import example_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.oracle import Gap

Array = np.ndarray[Any, Any]


def normal(*shape: int) -> Array:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_numbers_go_to_their_neighbour_towards_zero_or_stay(dtype: Any) -> None:
    x = normal(1000).astype(dtype)
    (found,) = nudged([x])
    went = found != x
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found[went], np.nextafter(x, dtype(0))[went])
    assert 400 < np.count_nonzero(went) < 600


def test_complex_numbers_move_in_both_parts() -> None:
    x = (normal(500) + 1j * normal(500)).astype(np.complex64)
    (found,) = nudged([x])
    assert found.shape == x.shape and found.dtype == x.dtype
    for part in (np.real, np.imag):
        assert 150 < np.count_nonzero(part(found) != part(x)) < 350


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(50, np.float32),
        np.full(50, np.inf, np.float32),
        np.full(50, -np.nan, np.float32),
        np.arange(50),
        np.ones(50, bool),
        np.ones(50, ml_dtypes.float8_e4m3fn),
    ],
)
def test_what_is_no_number_that_can_be_rounded_stays(x: Array) -> None:
    (found,) = nudged([x])
    assert found.tobytes() == x.tobytes()


def test_the_smallest_and_the_largest_numbers_stay_finite() -> None:
    limits = np.finfo(np.float32)
    x = np.array([limits.max, limits.min, limits.smallest_subnormal] * 20, np.float32)
    (found,) = nudged([x])
    assert np.all(np.isfinite(found)) and np.all(np.abs(found) <= np.abs(x))


def signs(x: Any, y: Any) -> Any:
    """Which is larger: a rounding decides where both are nearly equal."""
    return jnp.where(x * 3 >= y, 1.0, -1.0)


def with_ties(ties: int) -> Program:
    x = normal(4096)
    y = 3 * x + np.where(np.arange(4096) < ties, np.float32(0), np.float32(1))
    return load(signs, x, y.astype(np.float32))


def asked_without_the_oracle(program: Program) -> tuple[Judge, Callable[..., Any]]:
    default = jitted(program)
    judge = Judge.of(program, default, example_inputs(program))
    return replace(judge, references=(Gap("no time"),)), default


def flipped(default: Callable[..., Any], where: slice) -> Callable[..., Any]:
    """The default with some signs the other way."""

    def function(x: Any, y: Any) -> tuple[Array]:
        found = np.array(default(x, y))
        found[where] *= -1
        return (found,)

    return function


def test_ties_that_fall_the_other_way_are_not_wrong() -> None:
    judge, default = asked_without_the_oracle(with_ties(8))
    (found,) = judge.judge(flipped(default, slice(0, 8)), "standard")
    assert found.tuned_error > 1e-2
    assert found.wrong is None


def test_signs_that_no_rounding_decides_are_wrong_where_they_are_others() -> None:
    judge, default = asked_without_the_oracle(with_ties(0))
    (found,) = judge.judge(flipped(default, slice(0, 8)), "standard")
    assert found.wrong == (
        "relative error 0.0884 to the default's result, which moves by 0 where the inputs do by "
        "one rounding"
    )


def test_more_than_ties_explain_is_wrong() -> None:
    program = with_ties(1)
    judge, default = asked_without_the_oracle(program)
    (went,) = judge.moved()
    assert 0 <= went < 0.1
    (found,) = judge.judge(flipped(default, slice(0, 2048)), "standard")
    assert found.wrong is not None and found.tuned_error > TIMES_MOVED * went


def blows_up(x: Any) -> Any:
    """What is infinite or not by the last bit of its input."""
    return 1 / jnp.where(x >= 1, 0.0, x)


def test_what_roundings_make_infinite_is_held_against_nothing() -> None:
    x = np.concatenate([np.ones(64), np.full(64, np.nextafter(np.float32(1), np.float32(0)))])
    program = load(blows_up, x.astype(np.float32))
    judge, default = asked_without_the_oracle(program)
    went = replace(judge, moved=lambda: (np.inf,))
    (found,) = went.judge(lambda x: (np.full(128, np.inf, np.float32),), "standard")
    assert (found.wrong, found.compared, found.unchecked) == (None, 0.0, DECIDED_BY_ROUNDINGS)
    (same,) = went.judge(default, "standard")
    assert (same.wrong, same.compared) == (None, 0.5)
    stays = replace(judge, moved=lambda: (0.0,))
    (lost,) = stays.judge(lambda x: (np.full(128, np.inf, np.float32),), "standard")
    assert lost.wrong is not None


def test_what_the_oracle_bounds_is_wrong_however_far_roundings_take_the_default() -> None:
    program = load(lambda x: 2 * x, normal(64))
    judge = Judge.of(program, jitted(program), example_inputs(program))
    went = replace(judge, moved=lambda: (np.inf,))
    (found,) = went.judge(lambda x: (3 * x,), "standard")
    assert found.wrong is not None


def test_the_default_is_called_again_only_where_a_result_is_too_far_off() -> None:
    program, calls = with_ties(8), list[None]()
    default = jitted(program)

    def counted(*values: Any) -> Any:
        calls.append(None)
        return default(*values)

    judge = replace(
        Judge.of(program, counted, example_inputs(program)), references=(Gap("no time"),)
    )
    for function, so_many in ((default, 1), (flipped(default, slice(0, 8)), 2)):
        judge.judge(function, "standard")
        assert len(calls) == so_many


def test_a_program_without_ties_moves_by_roundings_alone() -> None:
    x = normal(64, 64)
    program = load(lambda x: x @ x, x)
    default = jitted(program)
    (went,) = moved(program, default, [x], [np.asarray(default(x))])
    assert 0 < went < 1e-6
