"""The oracle on programs: against jax, and against itself box by box."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.hlo.graph import Op
from hlotune.hlo.oracle import contraction, evaluate, evaluation, window
from hlotune.hlo.oracle.bounded import Bounded
from hlotune.hlo.oracle.boxes import Box
from hlotune.hlo.oracle.evaluation import LONG_GRAPH, Oracle
from tests.support.oracle_cases import (
    Function,
    graph_of,
    lax,
    mismatches,
    normal,
    regions_equal_the_whole,
)

MODELS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "softmax": (jax.nn.softmax, (5, 60)),
    "log_softmax": (jax.nn.log_softmax, (5, 60)),
    "layer norm": (
        lambda x: (x - x.mean(1)[:, None]) * lax.rsqrt(x.var(1)[:, None] + 1e-5),
        (5, 64),
    ),
    "relu": (jax.nn.relu, (5, 60)),
    "leaky relu": (lambda x: jax.nn.leaky_relu(x @ x.T), (6, 40)),
    "argmax": (lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0)), (5, 60)),
    "cumsum": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0)), (5, 60)),
    "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), (5, 60)),
    "top_k": (lambda x: lax.top_k(x, 4), (5, 60)),
    "scan": (lambda x: lax.scan(lambda c, v: (jnp.tanh(c * 0.5 + v), c.sum()), x[0], x), (9, 8)),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: y + 1, x), (3, 4)),
    "max pool": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (3, 2), (2, 1), "SAME"), (9, 11)),
    "avg pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), "VALID"), (9, 11)),
    "holes in a window": (
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (3, 2), (1, 2), ((2, 1), (0, 3)), (2, 1), (1, 2)
        ),
        (9, 11),
    ),
    "gradient of max pool": (
        jax.grad(
            lambda x: (lax.reduce_window(x, -np.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2).sum()
        ),
        (9, 11),
    ),
    "gather and scatter": (
        lambda x: (x[jnp.array([2, 0, 2])], x.at[jnp.array([1, 1])].add(1.5), x.at[0, 3].set(7.0)),
        (4, 6),
    ),
    "moves": (
        lambda x: (
            jnp.flip(x, 1).T.reshape(4, -1)[1:, ::3],
            lax.pad(x, jnp.float32(2), ((1, -1, 2), (-2, 3, 1))),
            jnp.concatenate([x, x[:2], x * 0], 0),
            lax.dynamic_update_slice(x, x[:2, :3] * 2, (3, 50)),
            lax.dynamic_slice(x, (1, 9), (2, 5)),
        ),
        (6, 10),
    ),
    "constants": (lambda x: x * jnp.arange(10.0) + lax.iota(jnp.int32, 6)[:, None], (6, 10)),
}  # fmt: skip
REGIONS: dict[str, Function] = {
    "two sums": lambda x: lax.reduce(
        (x, x * x), (jnp.float32(0),) * 2, lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,)
    ),
    "log of sum of exp": lambda x: lax.reduce(x, jnp.float32(-np.inf), jnp.logaddexp, (0,)),
    "any and all": lambda x: ((x > 1).any(1), (x > -1).all(0), (x > 0).sum(0)),
    "scatter": lambda x: jnp.zeros((4, 5)).at[jnp.arange(77) % 4].max(x.T),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 5000, lambda c: c * 1.5 + 1, x),
    "switch": lambda x: lax.switch(jnp.argmax(x[0]), [jnp.sin, jnp.cos, jnp.exp], x),
    "slices at positions": lambda x: jax.vmap(lambda r, i: lax.dynamic_slice(r, (i,), (3,)))(
        x, jnp.array([0, 5, 76, 80, -3])
    ),
}


@pytest.mark.parametrize("name", REGIONS)
def test_operation_with_a_region_agrees_with_jax(name: str) -> None:
    assert not mismatches(REGIONS[name], normal(15, 5, 77))
    regions_equal_the_whole(REGIONS[name], normal(15, 5, 77), limit=4)


@pytest.mark.parametrize("name", MODELS)
def test_program_agrees_with_jax(name: str) -> None:
    function, shape = MODELS[name]
    assert not mismatches(function, normal(4, *shape))


@pytest.mark.parametrize("name", MODELS)
def test_box_of_a_program_equals_the_cut_of_the_whole(name: str) -> None:
    function, shape = MODELS[name]
    regions_equal_the_whole(function, normal(4, *shape))


def test_a_result_of_few_operations_in_a_long_program_is_evaluated_by_boxes() -> None:
    def updates(*xs: Any) -> Any:
        return [jnp.exp(x * n + 1.0) for n, x in enumerate(xs)]

    xs = [normal(n, 80, 90) for n in range(70)]
    graph = graph_of(updates, xs)
    oracle = Oracle(graph, xs)
    assert len(graph.ops) > LONG_GRAPH
    part = oracle.region(3, ((0, 1), (0, 90)))
    assert oracle.whole is None
    np.testing.assert_array_equal(part.value, np.exp(3 * xs[3][:1].astype(float) + 1))


def test_a_result_of_many_operations_is_cut_out_of_the_whole() -> None:
    def chain(x: Any) -> Any:
        for _ in range(LONG_GRAPH + 1):
            x = jnp.sin(x)
        return x

    x = normal(0, 8)
    oracle = Oracle(graph_of(chain, [x]), [x])
    assert oracle.region(0, ((0, 4),)).value.shape == (4,)
    assert oracle.whole is not None


STEPS: list[Function] = [
    lambda x: x * x - x,
    lambda x: jnp.exp(-jnp.abs(x)),
    lambda x: x.T,
    lambda x: jnp.maximum(x, 0.25),
    lambda x: x / (1 + x * x),
    lambda x: x - x.mean(0, keepdims=True),
    lambda x: x @ x.T @ x / x.size,
    lambda x: jnp.where(x > 0.1, x, 0.5 * x + 0.05),
    lambda x: x.reshape(x.shape[1], x.shape[0]),
    lambda x: jnp.concatenate([x[:, 1:], x[:, :1] * 2], 1),
    lambda x: jnp.tanh(x) + jnp.max(x, 1, keepdims=True),
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
    lambda x: lax.clamp(-1.0, x, 1.5),
]


@given(st.lists(st.sampled_from(range(len(STEPS))), min_size=1, max_size=6), st.integers(0, 99))
def test_random_program_agrees_with_jax_and_with_itself(steps: list[int], seed: int) -> None:
    def function(x: Any) -> Any:
        for step in steps:
            x = STEPS[step](x)
        return x

    x = normal(seed, 6, 9)
    assert not mismatches(function, x)
    regions_equal_the_whole(function, x, limit=20)


@pytest.mark.parametrize("limit", [1, 7])
def test_reduction_by_slabs_equals_the_reduction_at_once(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(x: Any) -> tuple[Any, ...]:
        pooled = lax.reduce_window(x, 0.0, lax.add, (3, 2), (2, 1), "SAME")
        return x.sum(0), x.max(), x.prod(1), jnp.argmax(x, 1), x @ x.T, pooled

    x = normal(14, 6, 9)
    graph = graph_of(several, [x])
    at_once = evaluate(graph, [x])
    monkeypatch.setattr(window, "SLAB_ELEMENTS", limit * 9)
    monkeypatch.setattr(contraction, "SLAB_ELEMENTS", limit * 9)
    for slabs, expected in zip(evaluate(graph, [x]), at_once, strict=True):
        np.testing.assert_allclose(slabs.value, expected.value, rtol=1e-12)


def test_a_reduction_is_evaluated_once_though_boxes_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def variance(x: jax.Array) -> jax.Array:
        apart = x - x.mean(0)
        return apart / jnp.sqrt((apart * apart).mean(0))

    x = normal(0, 300, 40)
    oracle = Oracle(graph_of(variance, [x]), [x])
    monkeypatch.setattr(evaluation, "MEMORY_BYTES", 1000)
    monkeypatch.setattr(window, "SLAB_ELEMENTS", 400)
    reduced, applied = list[str](), oracle._applied

    def counted(op: Op, box: Box) -> tuple[Bounded, ...]:
        reduced.extend([op.name] if op.name == "stablehlo.reduce" else [])
        return applied(op, box)

    monkeypatch.setattr(oracle, "_applied", counted)
    for low in range(0, 300, 50):
        oracle.region(0, ((low, low + 50), (0, 40)))
    assert len(reduced) == 2
