"""Associative scans as JAX writes them: halves that are added up, and put between one another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from tests.support.oracle_cases import normal
from tests.support.whole_kernels import wrong_results


def sums(x: jax.Array) -> jax.Array:
    found: jax.Array = jax.lax.associative_scan(jnp.add, x)
    return found


@pytest.mark.parametrize("length", [2, 3, 40, 64])
def test_kernels_of_a_scan_are_right(length: int) -> None:
    assert wrong_results(load(sums, normal(0, length, 20)), np.random.default_rng(0)) == []


def test_one_element_has_nothing_between_its_elements() -> None:
    """At the middle of the scan one element is left, which JAX pads as it does all others."""
    program = load(sums, normal(0, 64, 8))
    assert all(compute_of(graph_of(site.kernel)).stages for site in sites(program))
