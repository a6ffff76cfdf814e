"""Which exponentials are known to be of zero or less."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.never_positive import powers_are_at_most_one

ROWS = jnp.zeros((16, 256), jnp.float32)


def known(function: Callable[..., Any]) -> list[bool]:
    """By stage that has exponentials, whether these are known to be at most one."""
    computes = [compute_of(graph_of(s.kernel)) for s in sites(load(function, ROWS))[:1]]
    return [powers_are_at_most_one(c, s) for c in computes for s in c.stages if _has(c, s)]


def _has(compute: Compute, stage: Stage) -> bool:
    return any("exponential(" in str(value) for value in stage.values)


@pytest.mark.parametrize(
    "function",
    [
        jax.nn.softmax,
        jax.nn.log_softmax,
        lambda x: jax.nn.softmax(x, axis=0),
        lambda x: jnp.exp(2 * x - (2 * x).max(1, keepdims=True)),
        lambda x: jnp.exp(-jnp.abs(x)),
    ],
)
def test_less_their_largest_elements_are_zero_or_less(function: Callable[..., Any]) -> None:
    found = known(function)
    assert found
    assert all(found)


@pytest.mark.parametrize(
    "function",
    [
        jnp.exp,
        lambda x: jnp.exp(x - x.min(1, keepdims=True)),
        lambda x: jnp.exp(x - x.mean(1, keepdims=True)),
        lambda x: jnp.exp(2 * x - x.max(1, keepdims=True)),
        lambda x: jnp.exp(x - x[:, :100].max(1, keepdims=True)),
        lambda x: jnp.exp(x[:, ::-1] - x[:, :255].max(1, keepdims=True)),
        lambda x: jnp.exp(x[::-1] - x.max(1, keepdims=True)),
        lambda x: jnp.exp(x.max(1, keepdims=True) - x),
    ],
)
def test_of_others_nothing_is_known(function: Callable[..., Any]) -> None:
    assert not any(known(function))
