"""Programs that are drawn at random, and those that were found so, compute what they say."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.oracle import compare, evaluate
from tests.support.random_programs import drawn_array, drawn_program
from tests.support.whole_kernels import loaded, wrong_results

RNG = np.random.default_rng(5)


def gradient_of_pooling(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (1, 1), (3, 1), "VALID")

    out, back = jax.vjp(pool, x)
    return back(out + 1)[0]


def gradient_of_one_row(x: Any) -> Any:
    """One row of windows: places of the largest have a dimension of extent 1, values have none."""

    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -np.inf, lax.max, (2, 3), (3, 1), "VALID")

    out, back = jax.vjp(pool, x)
    return gradient_of_pooling(back(out + 1)[0])


FOUND: dict[str, tuple[Callable[..., Any], np.ndarray[Any, Any]]] = {
    "the place of the largest i64": (
        lambda x: (jnp.argmax(x + 1, 1), jnp.argmin(x + 1, 1)),
        drawn_array(RNG, (5, 17), np.int64),
    ),
    "the place of the least u64": (
        lambda x: jnp.argmin(x + 1, 0),
        drawn_array(RNG, (5, 17), np.uint64),
    ),
    "a scan of what is looked up by places along the same axis": (
        lambda x: lax.cumsum(jnp.take(x, (lax.iota(np.int32, 7) + x[0, 0]) % 3, axis=0), 1),
        np.abs(drawn_array(RNG, (3, 3), np.int32)),
    ),
    "a row of places of the least, computed where it is read": (
        lambda x: jnp.take(jnp.argmin(x + x, 2), jnp.arange(1) * 2 + 1, axis=0, mode="fill"),
        drawn_array(RNG, (4, 31, 17), np.float32),
    ),
    "gradients of one row of windows": (gradient_of_one_row, drawn_array(RNG, (2, 17), np.float32)),
}


@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_found_at_random_are_right(name: str) -> None:
    function, array = FOUND[name]
    assert wrong_results(loaded(function, array), RNG, configs=1) == []


DOUBLES: dict[str, Callable[..., Any]] = {
    "a multiply-add": lambda x, y: x * y + x,
    "a difference": lambda x, y: (x + y) - x * 0.1,
    "a product of rows": lambda x, y: jnp.prod(x + y, 1),
}


@pytest.mark.parametrize("name", DOUBLES)
def test_f64_that_rounds_is_not_held_to_be_exact(name: str) -> None:
    arrays = [RNG.standard_normal((9, 33)) for _ in range(2)]
    with jax.enable_x64(True):
        wanted = evaluate(loaded(DOUBLES[name], *arrays).graph, arrays)[0]
        got = np.asarray(jax.jit(DOUBLES[name])(*arrays))
    assert not wanted.exact
    assert compare(wanted, got, factor=4.0, exact=wanted.exact) is None


def test_f64_of_whole_numbers_is_exact() -> None:
    arrays = [drawn_array(RNG, (9, 5), np.float64) for _ in range(2)]
    for function in DOUBLES["a multiply-add"], DOUBLES["a product of rows"]:
        assert evaluate(loaded(function, *arrays).graph, arrays)[0].exact


@pytest.mark.parametrize("seed", range(6))
def test_programs_drawn_at_random_are_right(seed: int) -> None:
    drawn = drawn_program(seed)
    program = loaded(drawn.function, *drawn.arguments)
    assert wrong_results(program, np.random.default_rng(seed)) == [], drawn.moves


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 300, 20))
def test_many_programs_drawn_at_random_are_right(start: int) -> None:
    for seed in range(start, start + 20):
        drawn = drawn_program(seed)
        program = loaded(drawn.function, *drawn.arguments)
        rng = np.random.default_rng(seed)
        assert wrong_results(program, rng, configs=3) == [], (seed, drawn.moves)
