"""Gradients of maximum pooling are evaluated in boxes as they are whole."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.random import Generator

from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Oracle, evaluate

Pairs = Sequence[tuple[int, int]]


def pooled(window: Sequence[int], strides: Sequence[int], padding: Pairs) -> jax.stages.Wrapped:
    def pool(x: jax.Array) -> jax.Array:
        found: jax.Array = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, tuple(window), tuple(strides), tuple(padding)
        )
        return found

    def gradient(x: jax.Array, given: jax.Array) -> jax.Array:
        found: jax.Array = jax.vjp(pool, x)[1](given)[0]
        return found

    return jax.jit(gradient)


def some_box(rng: Generator, shape: Sequence[int]) -> tuple[tuple[int, int], ...]:
    ends = [sorted(rng.choice(n + 1, 2, replace=False)) for n in shape]
    return tuple((int(low), int(high)) for low, high in ends)


@pytest.mark.parametrize(
    ("window", "strides", "padding"),
    [
        ((1, 3, 3, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]),
        ((1, 2, 2, 1), (1, 2, 2, 1), [(0, 0)] * 4),
        ((1, 2, 3, 1), (1, 3, 5, 1), [(0, 0)] * 4),
        ((1, 4, 3, 2), (1, 1, 2, 1), [(0, 0), (2, 1), (0, 2), (0, 0)]),
    ],
    ids=["overlapping", "side by side", "with gaps", "three dimensions"],
)
def test_a_box_is_what_all_windows_give_there(
    window: Sequence[int], strides: Sequence[int], padding: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.hlo.oracle.evaluation.SMALL_ELEMENTS", 0)
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 4, (2, 11, 13, 3)).astype(np.float32)  # many are equal
    sizes = zip(x.shape, window, strides, padding, strict=True)
    outputs = [(n + low + high - w) // s + 1 for n, w, s, (low, high) in sizes]
    given = rng.standard_normal(outputs).astype(np.float32)
    graph = load(pooled(window, strides, padding), x, given).graph
    (expected,) = evaluate(graph, [x, given])
    assert expected.bound is not None
    for _ in range(20):
        box = some_box(rng, x.shape)
        found = Oracle(graph, [x, given]).region(0, box)
        cut = tuple(slice(low, high) for low, high in box)
        assert found.bound is not None
        np.testing.assert_array_equal(found.value, expected.value[cut])
        np.testing.assert_array_equal(found.bound, expected.bound[cut])
