"""Products of few terms whose result is stored with a batch last: one kernel, and a map."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import Site, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.steps.steps import Split
from tests.support.oracle_cases import normal
from tests.support.whole_kernels import wrong_results


def pairs(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum("nxyc,mxyc->nmxy", a, b)


def first(function: Callable[..., Any], *arguments: Any) -> Site:
    return sites(load(function, *arguments))[0]


def computed(function: Callable[..., Any], *arguments: Any) -> Compute:
    return compute_of(graph_of(first(function, *arguments).kernel))


def test_a_product_of_few_terms_is_stored_once_in_the_order_of_its_result() -> None:
    a, b = normal(0, 24, 5, 8, 3), normal(1, 30, 5, 8, 3)
    site, compute = first(pairs, a, b), computed(pairs, a, b)
    assert len(site.ops) == 2, "the product and the transpose"
    assert not any(s.combine for s in compute.stages)
    (result,) = compute.results
    assert [a.extent for a in compute.stages[-1].parallel] == [*result.shape]


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (pairs, ((24, 5, 8, 3), (30, 5, 8, 3))),
        (pairs, ((64, 3, 7, 8), (70, 3, 7, 8))),
        (lambda a, b: jax.nn.relu(pairs(a, b) + 1), ((24, 5, 8, 2), (30, 5, 8, 2))),
        (lambda a, b: jnp.einsum("ncp,mcp->nmp", a, b), ((24, 3, 40), (30, 3, 40))),
        (lambda a, b: jnp.einsum("ncp,pmc->nmp", 2 * a, b), ((24, 3, 40), (40, 30, 3))),
        (lambda a, b: jnp.einsum("pncd,pmcd->mnp", a, b), ((17, 33, 2, 2), (17, 40, 2, 2))),
    ],
    ids=["pairs", "many terms", "elementwise behind", "along", "elementwise before", "two axes"],
)  # fmt: skip
def test_products_of_few_terms_are_right(function: Any, shapes: Any) -> None:
    arguments = [normal(k, *shape) for k, shape in enumerate(shapes)]
    assert not any(s.combine for s in computed(function, *arguments).stages)
    assert wrong_results(load(function, *arguments), np.random.default_rng(0), configs=1) == []


def test_products_of_halves_are_right() -> None:
    a, b = (normal(k, n, 40, 3).astype(jnp.bfloat16) for k, n in ((0, 24), (1, 30)))
    program = load(lambda a, b: jnp.einsum("npc,mpc->nmp", a, b), a, b)
    assert wrong_results(program, np.random.default_rng(0), configs=1) == []


@pytest.mark.parametrize(
    "shapes", [((90, 40, 9), (90, 40, 9)), ((2, 40, 3), (3, 40, 3))], ids=["many", "small result"]
)
def test_other_products_are_contractions(shapes: Any) -> None:
    a, b = (normal(k, *shape) for k, shape in enumerate(shapes))
    found = [s for s in sites(load(lambda a, b: jnp.einsum("npc,mpc->nmp", a, b), a, b))]
    dots = [s for s in found if s.name.startswith("dot")]
    assert all(any(s.combine for s in compute_of(graph_of(x.kernel)).stages) for x in dots)


def test_rows_that_share_the_larger_operand_are_written_out_together() -> None:
    """Along 24 rows the operand of 30 is read again: once for every four of them."""
    compute = computed(pairs, normal(0, 24, 5, 16, 3), normal(1, 30, 5, 16, 3))
    steps = (space := space_of(compute, host_target())).schedule(space.firsts()[0]).steps
    splits = {x.axis: x.factors for x in steps if isinstance(x, Split) and x.stage == "out"}
    rows, columns, vector = (a.name for a in compute.stages[-1].parallel)
    assert splits[rows][-1] == 4
    assert len(splits[columns]) == 2, "its points are taken one by one"
    assert splits[vector][-2] == 2
