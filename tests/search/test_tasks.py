"""What kernels are expected to move: of large tables that are looked up in, what is read there."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.sites.tiny import tiny
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.search.tasks import other_forms, tasks

WORDS, WIDTH = 50_000, 768


def table(rows: int = WORDS) -> Any:
    return argument(f"f32[{rows},{WIDTH}]")


def spread(words: jax.Array, token: jax.Array) -> jax.Array:
    """The variance of the row of one token."""
    return words[token].var()


def looked_up(words: jax.Array, tokens: jax.Array) -> jax.Array:
    return jnp.tanh(words[tokens])


def rolled(words: jax.Array, place: jax.Array) -> jax.Array:
    return jnp.exp(lax.dynamic_slice(words, (place, jnp.int32(0)), (1024, WIDTH)))


def first(function: Callable[..., jax.Array], *arguments: Any) -> Any:
    return sites(load(function, *arguments))[0]


def test_the_variance_of_one_row_of_a_large_table_is_worth_no_call() -> None:
    site = first(spread, table(), argument("i32[]"))
    assert tiny(site, TARGETS["x86-64"]) is not None
    assert tiny(first(lambda words: words.var(0), table()), TARGETS["x86-64"]) is None


def test_of_a_table_that_is_looked_up_in_what_is_read_counts() -> None:
    tokens = 4096
    site = first(looked_up, table(), argument(f"i32[{tokens}]"))
    compute = compute_of(graph_of(site.kernel))
    assert compute.moved_bytes == 2 * tokens * WIDTH * 4 + tokens * 4
    part = compute_of(graph_of(first(rolled, table(), argument("i32[]")).kernel))
    assert 2 * 1024 * WIDTH * 4 <= part.moved_bytes < 2 * 1024 * WIDTH * 4 + 64


def test_no_more_is_read_than_the_table_has() -> None:
    site = first(looked_up, table(16), argument("i32[4096]"))
    assert compute_of(graph_of(site.kernel)).moved_bytes == (16 + 4096) * WIDTH * 4 + 4096 * 4


def test_a_task_knows_what_it_moves_and_what_it_holds() -> None:
    program = load(looked_up, table(), argument("i32[4096]"))
    (task,), _ = tasks(sites(program), TARGETS["x86-64"])
    assert task.moved_bytes < task.bytes == (WORDS + 4096) * WIDTH * 4 + 4096 * 4


def test_another_form_of_a_kernel_counts_as_often_as_it_runs() -> None:
    def two_layers(x: jax.Array, w: jax.Array, b: jax.Array, v: jax.Array) -> jax.Array:
        for _ in range(2):
            x = jnp.tanh(x @ w + b) @ v
        return x

    types = "f32[64,300]", "f32[300,400]", "f32[400]", "f32[400,300]"
    found, _ = tasks(sites(load(two_layers, argument_types=types)), host_target())
    others = list(other_forms(found, {task.kernel for task in found}))
    weights = {site.label: site.weight for site in others}
    assert len(weights) == len(others)
    assert weights == {"dot 64x300x400": 2, "bias+tanh 64x400": 2}
    assert not list(other_forms(found, {site.kernel for site in others}))
