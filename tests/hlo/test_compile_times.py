"""What XLA spends with compiling, told apart from what it spends with running."""

import time

import jax
import jax.numpy as jnp

from hlotune.hlo.mlir.compile_times import compiling


def test_a_first_call_is_told_apart_into_compiling_and_running() -> None:
    @jax.jit
    def product(x: jax.Array) -> jax.Array:
        return jnp.sin(x @ x)

    x = jnp.ones((8, 8))
    with compiling() as first:
        start_s = time.perf_counter()
        product(x).block_until_ready()
        took_s = time.perf_counter() - start_s
    with compiling() as second:
        product(x).block_until_ready()
    assert 0 < first.seconds < took_s
    assert second.seconds == 0
