"""Sites of attention: two products with a softmax between are one kernel, and its parts rivals."""

import jax
import jax.numpy as jnp
import pytest

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import overlap, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.patterns.attention import is_attention
from hlotune.search.tasks import tasks
from tests.support.attentions import HEADS, PROGRAMS, attention_sites, causal, f32, projected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_attention_is_one_kernel_with_one_result(name: str) -> None:
    function, arguments = PROGRAMS[name]
    program = load(function, *arguments)
    site, *others = sites(program)
    assert site.pattern == "attention"
    assert len(site.results) == 1
    assert is_attention(compute_of(graph_of(site.kernel)))
    assert others
    assert all(overlap(site, x) for x in others), "its parts share operations with it"


def test_it_is_the_task_and_its_parts_are_rivals() -> None:
    program = load(causal, *HEADS)
    (task,), skipped = tasks(sites(program), TARGETS["znver4"])
    assert not skipped
    assert task.label == "attention 2*37x16x37"
    assert {"dot 2*37x16x37 +scale", "softmax 2x37x37"} <= {r.label for r in task.rivals}


def test_what_stands_around_a_layer_stays_outside() -> None:
    found = sites(load(projected, f32(2, 9, 16), f32(16, 48), f32(16, 16)))
    (site,) = [s for s in found if s.pattern == "attention"]
    assert site.label == "attention 4*9x8x9"
    assert len(site.results) == 1
    assert not any(overlap(site, s) for s in found if s.label.startswith("dot 18x16x"))


def test_weights_that_somebody_reads_are_no_part_of_it() -> None:
    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights = jax.nn.softmax(q @ k.T)
        return weights @ v, weights

    found = sites(load(attention, f32(8, 16), f32(9, 16), f32(9, 16)))
    assert not any(s.pattern == "attention" for s in found)


def test_two_layers_with_a_norm_between_are_no_attention() -> None:
    def layers(x: jax.Array, w: jax.Array, u: jax.Array) -> jax.Array:
        y = x @ w
        y = (y - y.mean(-1, keepdims=True)) * jax.lax.rsqrt(y.var(-1, keepdims=True) + 1)
        return jnp.maximum(y, 0) @ u

    found = sites(load(layers, f32(8, 16), f32(16, 24), f32(24, 16)))
    assert not any(s.pattern == "attention" for s in found)


def test_parts_of_the_gradient_all_become_kernels() -> None:
    """The backward pass has no attention that stands alone: products and rows."""

    def loss(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return (causal(q, k, v) ** 2).sum()

    shape = (f32(1, 64, 4, 32),) * 3
    found, skipped = tasks(sites(load(jax.grad(loss, (0, 1, 2)), *shape)), TARGETS["znver4"])
    assert not [s for s in skipped if "not worth a call" not in s.reason]
    assert sum(t.label.startswith("dot") for t in found) >= 5


def test_a_site_of_jaxs_function_takes_its_arguments_as_they_lie() -> None:
    (site,) = attention_sites("jax")
    compute = compute_of(graph_of(site.kernel))
    assert [t.shape for t in compute.arguments] == [(37, 2, 16)] * 3
    assert compute.results[0].shape == (37, 2, 16)
