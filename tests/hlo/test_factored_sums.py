"""Factors leave sums where a kernel then reads its tensors in fewer passes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.hlo.to_compute.factored_sums import passes
from hlotune.schedules.ir.compute import Compute
from tests.support.oracle_cases import normal
from tests.support.whole_kernels import wrong_results


def batch_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean, variance = x.mean((0, 1)), x.var((0, 1))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def layer_norm(x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + bias


def gradient(norm: Callable[..., Any]) -> Callable[..., Any]:
    def pulled(x: jax.Array, scale: jax.Array, bias: jax.Array, given: jax.Array) -> Any:
        return jax.vjp(norm, x, scale, bias)[1](given)

    return pulled


def largest(function: Callable[..., Any], *arguments: Any) -> Compute:
    """The compute of the program's kernel with the most stages."""
    found = [compute_of(graph_of(s.kernel)) for s in sites(load(function, *arguments))]
    return max(found, key=lambda c: len(c.stages))


@pytest.mark.parametrize("norm", [batch_norm, layer_norm])
def test_the_gradient_of_a_norm_reduces_in_two_passes_and_is_right(norm: Any) -> None:
    arguments = normal(0, 6, 40, 33), normal(1, 33), normal(2, 33), normal(3, 6, 40, 33)
    assert passes(largest(gradient(norm), *arguments)) == 2
    program = load(gradient(norm), *arguments)
    assert wrong_results(program, np.random.default_rng(0)) == []


def test_a_sum_of_differences_is_not_taken_apart() -> None:
    """Both parts of the sum would be large here, and their difference small."""

    def spread(x: jax.Array, scale: jax.Array) -> Any:
        less = x - x.mean(0)
        return (less * scale).sum(0), (less * x * scale).sum(0)

    compute = largest(spread, normal(0, 64, 40) + np.float32(1000), normal(1, 40))
    values = [v for s in compute.stages if s.reduce for v in s.values]
    assert passes(compute) == 2
    assert sum("subtract" in repr(v) for v in values) == 2


def test_a_sum_that_would_be_read_as_often_keeps_its_factors() -> None:
    def scaled(x: jax.Array, scale: jax.Array) -> jax.Array:
        return jnp.sum(x * scale, 0)

    (stage,) = largest(scaled, normal(0, 64, 40), normal(1, 40)).stages
    assert "multiply" in repr(stage.values)
