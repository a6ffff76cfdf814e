"""Sites of elementwise operations and reductions: what is one kernel, and what it is called."""

import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from hlotune.hlo.canonical import canonical, graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.sites.sites import Site, choose, overlap, sites
from hlotune.hlo.to_compute.assemble import compute_of
from tests.support.cut import contractions
from tests.support.tree import ROOT


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return argument(f"f32[{','.join(map(str, shape))}]")


def fused(function: Callable[..., Any], *arguments: Any) -> list[Site]:
    found = sites(load(function, *arguments))
    return [s for s in found if s.pattern != "contraction"]


def layer_norm(x: jax.Array, g: jax.Array, b: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x: jax.Array, g: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def group_norm(x: jax.Array) -> jax.Array:
    y = x.reshape(*x.shape[:-1], 4, -1)
    centred = y - y.mean((1, 2, 4), keepdims=True)
    return (centred * lax.rsqrt(y.var((1, 2, 4), keepdims=True) + 1e-5)).reshape(x.shape)


def stencil(x: jax.Array) -> jax.Array:
    return x[1:-1] * 2 - x[:-2] - x[2:]


def projected(x: jax.Array, y: jax.Array) -> jax.Array:
    """Two sums of products, one behind the other, that are no variance."""
    return ((x - (x * y).sum(-1, keepdims=True)) * y).sum(-1)


X = f32(64, 512)
LABELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax 64x512": (jax.nn.softmax, (X,)),
    "softmax 8x256x256 bf16": (jax.nn.softmax, (argument("bf16[8,256,256]"),)),
    "log-softmax 64x512": (jax.nn.log_softmax, (X,)),
    "logsumexp 64x512": (lambda x: jax.nn.logsumexp(x, -1), (X,)),
    "layer norm 64x512": (layer_norm, (X, f32(512), f32(512))),
    "layer norm 2x6x6x4x8": (group_norm, (f32(2, 6, 6, 32),)),
    "RMS norm 64x512": (rms_norm, (X, f32(512))),
    "variance 64x512": (lambda x: x.var(-1), (X,)),
    "mul+sum+bias+mul+sum 64x512": (projected, (X, X)),
    "mean 64x512->64": (lambda x: x.mean(-1), (X,)),
    "sum 64x512->512": (lambda x: x.sum(0), (X,)),
    "max 64x512->1": (lambda x: x.max(), (X,)),
    "or 64x512->64 i1": (lambda x: x.any(-1), (argument("i1[64,512]"),)),
    "argmax 64x512->64": (lambda x: jnp.argmax(x, -1), (X,)),
    "argmin 64x512->512": (lambda x: jnp.argmin(x, 0), (X,)),
    "add+relu 56x56x256": (lambda x, y: jax.nn.relu(x + y), (f32(56, 56, 256),) * 2),
    "scale+sub+sub 62x512": (stencil, (X,)),
    "sum+mul+sum 64x512->512": (lambda x: (x.sum(0), (x * x).sum(0)), (X,)),
}


@pytest.mark.parametrize("label", LABELS)
def test_a_program_of_one_pattern_is_one_kernel_of_that_name(label: str) -> None:
    function, arguments = LABELS[label]
    program = load(function, *arguments)
    site, *others = sites(program)
    assert site.label == label
    assert all(overlap(site, x) for x in others), "parts share the operations of the whole"
    assert len(site.results) == len(program.graph.results), "and it computes all results"


def test_broadcasts_of_what_a_kernel_computes_leave_it_to_nobody() -> None:
    (site, *parts) = fused(jax.nn.softmax, X)
    assert len(site.results) == 1
    assert [s.label for s in parts] == [
        "max 64x512->64", "max+bias+exp+sum 64x512->64", "scale 64x512",
    ]  # fmt: skip


def test_reductions_over_other_axes_are_other_kernels() -> None:
    found = fused(lambda x: (x.sum(0), x.max(1)), X)
    assert [s.label for s in found] == ["sum 64x512->512", "max 64x512->64"]


def test_what_a_contraction_takes_and_what_it_may_leave_compete() -> None:
    """The division goes with the product of attention, or with the softmax in front of it."""

    def attention(scores: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(scores) @ v

    found = {s.label: s for s in sites(load(attention, X, f32(512, 64)))}
    whole, product = found["softmax 64x512"], found["dot 64x512x64 scale+"]
    assert overlap(whole, product)
    assert not overlap(whole, found["dot 64x512x64"])
    times = {s.kernel.key: (1.0, 1.0) for s in found.values()}
    faster = {whole.kernel.key: (3.0, 1.0), product.kernel.key: (2.0, 1.0)}
    assert [s.label for s in choose(list(found.values()), times | faster)] == ["softmax 64x512"]


def test_a_kernel_around_a_contraction_and_one_beside_it_stand_together() -> None:
    """A vector that the first computes for itself stays in the program for it."""

    def model(x: jax.Array, w: jax.Array, variance: jax.Array) -> Any:
        y = x @ w * lax.rsqrt(variance + 1e-5)
        return y, jnp.tanh(x) * lax.rsqrt(variance[:64] + 1e-5)[:, None]

    names = [s.label for s in sites(load(model, f32(64, 128), f32(128, 512), f32(512)))]
    assert names[0] == "dot 64x128x512 +scale"
    assert "tanh+bias+rsqrt+scale 64x128" in names


def test_an_operation_of_total_order_and_one_without_a_kernel_stay_outside() -> None:
    def model(x: jax.Array) -> jax.Array:
        return jnp.sort(jnp.tanh(x), 0) * 2

    assert [s.label for s in fused(model, X)] == ["tanh 64x512", "scale 64x512"]


def test_a_cumulative_reduction_takes_in_what_it_reads_and_ends_its_kernel() -> None:
    def model(x: jax.Array) -> jax.Array:
        return jnp.cumsum(jnp.tanh(x), 0) * 2

    assert [s.label for s in fused(model, X)] == ["tanh+cumsum 64x512", "scale 64x512"]


def test_sites_that_would_wait_for_one_another_are_not_chosen_together() -> None:
    """a waits for b and b for a once each is one kernel, though no operation of theirs does."""

    def model(x: jax.Array, y: jax.Array) -> Any:
        a, b = jnp.tanh(x), jnp.tanh(y)
        return jnp.cumsum(b, 0) * a, jnp.cumsum(a, 0) * b

    found = fused(model, X, X)
    times = {s.kernel.key: (2.0, 1.0) for s in found}
    chosen = choose(found, times)
    assert chosen
    for site in chosen:
        assert not site.above & sum(1 << m for m in site.ops)


@pytest.mark.parametrize("name", ["mlp", "resnet18", "convnet"])
def test_kernels_of_contractions_have_the_keys_that_records_know(name: str) -> None:
    """They were cut so before anything else was: a change would lose what was tuned."""
    known = json.loads((ROOT / "tests/fixtures/contraction_keys.json").read_text())[name]
    found = contractions(load(f"{ROOT}/examples/{name}.py:model"))
    assert {s.name: s.kernel.key for s in found} == known


@pytest.mark.parametrize("label", ["softmax 64x512", "argmax 64x512->64"])
def test_the_text_of_a_kernel_reads_back_to_itself(label: str) -> None:
    function, arguments = LABELS[label]
    kernel = sites(load(function, *arguments))[0].kernel
    assert canonical(graph_of(kernel)) == kernel.text


def test_chains_of_hundreds_of_operations_are_cut_into_kernels_that_have_computes() -> None:
    def model(x: jax.Array) -> jax.Array:
        for _ in range(300):
            x = jnp.tanh(x) * 0.5
        return x

    found = fused(model, X)
    assert sum(len(s.ops) for s in found) == 600
    assert all(compute_of(graph_of(s.kernel)).stages for s in found)


def test_what_is_read_again_by_way_of_slices_counts_as_often() -> None:
    """An element of a stencil of a stencil of a stencil ... reads twice as many each time."""

    def model(x: jax.Array) -> jax.Array:
        for _ in range(30):
            x = jnp.pad(x, 1)[1:-1, 2:] + jnp.pad(x, 1)[1:-1, :-2]
        return x

    found = fused(model, X)
    assert len(found) > 3
    assert all(compute_of(graph_of(s.kernel)).stages for s in found)


def test_what_takes_many_operations_of_small_tensors_is_computed_once() -> None:
    def model(x: jax.Array) -> jax.Array:
        position = jnp.arange(512.0)
        for _ in range(100):
            position = position * 0.5 + jnp.sin(position)
        return jnp.tanh(x) + position

    found = fused(model, X)
    assert "tanh" in found[-1].label
    assert len(graph_of(found[-1].kernel).ops) < 100
    assert all(compute_of(graph_of(s.kernel)).stages for s in found)
