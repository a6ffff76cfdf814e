"""Long prologues of numbers that a product uses very often are stages of their own."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import MANY_USES, compute_of

Array = jax.Array


def halved(x: Array) -> Array:
    return x * 0.5


def sigmoid_of_half(x: Array) -> Array:
    return 1 / (1 + jnp.exp(halved(x)))


@pytest.mark.parametrize(
    ("prologue", "rows", "terms", "columns", "is_ahead"),
    [
        (sigmoid_of_half, 128, 768, 2304, True),
        (sigmoid_of_half, 1, 768, MANY_USES, True),
        (sigmoid_of_half, 1, 768, MANY_USES - 1, False),
        (halved, 128, 768, 2304, False),
        (sigmoid_of_half, 2048, 768, MANY_USES, False),
    ],
)
def test_a_long_prologue_of_a_product_of_many_columns_is_computed_ahead(
    prologue: Callable[[Array], Array], rows: int, terms: int, columns: int, is_ahead: bool
) -> None:
    """More than a million numbers are left where they are."""

    def product(x: Array, w: Array) -> Array:
        return prologue(x) @ w

    assert has_stage_ahead(product, jnp.ones((rows, terms)), jnp.ones((terms, columns))) is is_ahead


@pytest.mark.parametrize(("side", "is_ahead"), [(8, True), (32, False)])
def test_images_of_a_convolution_are_computed_ahead_where_they_are_small(
    side: int, is_ahead: bool
) -> None:
    def convolution(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(
            sigmoid_of_half(x), w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    x, w = jnp.ones((1, side, side, 32)), jnp.ones((1, 1, 32, MANY_USES))
    assert has_stage_ahead(convolution, x, w) is is_ahead


def has_stage_ahead(function: Callable[..., Array], *arguments: Array) -> bool:
    """Whether the first kernel of a function computes something ahead of its sum."""
    compute = compute_of(graph_of(sites(load(function, *arguments))[0].kernel))
    return compute.stages[0].name.startswith("pre")
