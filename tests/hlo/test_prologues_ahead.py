"""Long prologues of numbers that a product uses very often are stages of their own."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import MANY_USES, compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.ir.expr import Const

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


def test_of_an_operand_that_is_the_same_in_all_rows_one_row_is_computed_ahead() -> None:
    """The gradient of a sum is ones, which a convolution pads with zeros."""

    def summed(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(
            x, w, (1,), [(2, 2)], dimension_numbers=("NCH", "OIH", "NCH"), feature_group_count=24
        ).sum()

    (site,) = sites(load(jax.grad(summed), jnp.ones((6, 24, 70)), jnp.ones((24, 1, 5))))[:1]
    compute = compute_of(graph_of(site.kernel))
    first = compute.stages[0]
    assert first.values == (Const(1.0, "f32"),) and first.points == 70
    assert compute.tensor(first.stores[0].tensor).elements == 70
    space = space_of(compute, host_target())
    built = build(compute, space.schedule(space.firsts()[0]), host_target())
    assert isinstance(verify(site.kernel, built), Verdict)


def has_stage_ahead(function: Callable[..., Array], *arguments: Array) -> bool:
    """Whether the first kernel of a function computes something ahead of its sum."""
    compute = compute_of(graph_of(sites(load(function, *arguments))[0].kernel))
    return compute.stages[0].name.startswith("pre")
