"""Short loops over large tensors are unrolled, so that their trips are one kernel."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.hlo.to_compute.large_values import large_values
from tests.support.whole_kernels import wrong_results

KEY = np.zeros(2, np.uint32)
X = np.linspace(-1, 1, 64 * 128, dtype=np.float32).reshape(64, 128)


def dropped(key: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)


def loops(bytecode: bytes) -> int:
    return str(mlir.parse(bytecode).op).count("stablehlo.while")


def repeated(trips: int, body: Any) -> Program:
    return load(lambda x: lax.fori_loop(0, trips, lambda _, y: body(y), x), X)


def test_random_bits_and_what_reads_them_are_one_kernel() -> None:
    program = load(dropped, KEY, X)
    assert (loops(program.bytecode), loops(program.cut)) == (1, 0), "the default keeps its loop"
    (site,) = sites(program)
    assert len(compute_of(graph_of(site.kernel)).stages) > 1, "rounds are stages"


def test_a_kernel_of_random_bits_is_right() -> None:
    assert wrong_results(load(dropped, KEY, X), np.random.default_rng(0)) == []


@pytest.mark.parametrize(("trips", "left"), [(8, 0), (9, 1)])
def test_loops_of_few_trips_are_unrolled(trips: int, left: int) -> None:
    program = repeated(trips, lambda y: jnp.sin(y) + 1)
    assert (loops(program.bytecode), loops(program.cut)) == (1, left)


def test_loops_of_products_and_of_small_tensors_stay() -> None:
    assert loops(load(lambda x: lax.fori_loop(0, 3, lambda _, y: y @ y, x), X[:, :64]).cut) == 1
    assert loops(load(lambda x: lax.fori_loop(0, 3, lambda _, y: y + 1, x), X[0]).cut) == 1


def test_a_loop_inside_a_long_one_is_unrolled_there() -> None:
    def outer(y: jax.Array) -> Any:
        return lax.fori_loop(0, 3, lambda _, z: jnp.cos(z) * 2, y)

    program = repeated(20, outer)
    assert (loops(program.bytecode), loops(program.cut)) == (2, 1)


def test_what_walks_fewer_axes_makes_no_expression_large() -> None:
    def scaled(x: jax.Array, scale: jax.Array) -> jax.Array:
        for _ in range(5):
            scale = scale * jnp.sin(scale) + scale
        return (x * scale + scale) * (x - scale)

    (site,) = sites(load(scaled, X, X[0]))
    assert large_values(graph_of(site.kernel)) == frozenset()
    (square,) = sites(load(scaled, X, X))
    assert large_values(graph_of(square.kernel))
