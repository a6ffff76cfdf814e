"""Rows as JAX's users write them, forward and backward: into how few kernels each program is cut.

A kernel here is a first site of `sites` that has a compute.  What JAX's gathers and means over
labels leave is beside the kernel that reads the rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import argument, load
from hlotune.hlo.graph import Graph, numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import Site, overlap, sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
X, V, LABELS, IMAGES, C = "9,40", "40", "i32[9]", "2,4,4,12", "12"


@dataclass(frozen=True)
class Case:
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    """Shapes of floats, or types."""
    kernels: int = 1


def backward(function: Callable[..., Any], count: int) -> Callable[..., Any]:
    """The gradients of the first arguments, for what comes last."""

    def gradients(*arguments: Any) -> Any:
        *given, cotangent = arguments
        _, pull = jax.vjp(lambda *own: function(*own, *given[count:]), *given[:count])
        return pull(cotangent)

    return gradients


def over_mean(x: Any, mean: Any, variance: Any, g: Any, b: Any) -> Any:
    return (x - mean) * lax.rsqrt(variance + 1e-5) * g + b


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    return over_mean(x, x.mean(-1, keepdims=True), x.var(-1, keepdims=True), g, b)


def layer_norm_of_squares(x: Any, g: Any, b: Any) -> Any:
    """As Flax has it."""
    mean = x.mean(-1)
    variance = jnp.maximum(0.0, lax.square(x).mean(-1) - lax.square(mean))
    return (x - mean[:, None]) * (lax.rsqrt(variance[:, None] + 1e-6) * g) + b


def layer_norm_scaled_first(x: Any, g: Any, b: Any) -> Any:
    """As Haiku has it."""
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return g * lax.rsqrt(variance + 1e-5) * (x - mean) + b


def layer_norm_of_each(x: Any, g: Any, b: Any) -> Any:
    """As Equinox has it: of one row, mapped."""

    def one(x: Any) -> Any:
        variance = jnp.maximum(0.0, jnp.var(x, keepdims=True))
        return (x - jnp.mean(x, keepdims=True)) * lax.rsqrt(variance + 1e-5) * g + b

    return jax.vmap(one)(x)


def rms_norm(x: Any, g: Any) -> Any:
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * g


def rms_norm_by_root(x: Any, g: Any) -> Any:
    return x / jnp.sqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * g


def group_norm(x: Any, g: Any, b: Any) -> Any:
    y = x.reshape(*x.shape[:-1], 4, -1)
    axes = (*range(1, y.ndim - 2), y.ndim - 1)
    y = (y - y.mean(axes, keepdims=True)) * lax.rsqrt(y.var(axes, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * g + b


def batch_norm(x: Any, g: Any, b: Any) -> Any:
    return over_mean(x, x.mean((0, 1, 2)), x.var((0, 1, 2)), g, b)


def batch_norm_in_training(x: Any, g: Any, b: Any, mean: Any, variance: Any) -> Any:
    now = x.mean((0, 1, 2))
    spread = jnp.mean(x * x, (0, 1, 2)) - now * now
    running = 0.9 * mean + 0.1 * now, 0.9 * variance + 0.1 * spread
    return over_mean(x, now, spread, g, b), *running


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def entropy_of_one_hot(x: Any, labels: Any) -> Any:
    return -(jax.nn.log_softmax(x) * jax.nn.one_hot(labels, x.shape[-1])).sum(-1)


def entropy_of_labels(x: Any, labels: Any) -> Any:
    return jax.nn.logsumexp(x, -1) - jnp.take_along_axis(x, labels[:, None], -1)[:, 0]


def soft_entropy(x: Any, wanted: Any) -> Any:
    return -(wanted * jax.nn.log_softmax(x)).sum(-1)


def logsumexp(x: Any) -> Any:
    return jax.nn.logsumexp(x, -1)


def distances(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1) + 1)


def forces(x: jax.Array, m: jax.Array) -> jax.Array:
    d = x[None] - x[:, None]
    return jnp.sum(d * (m[None] * jax.lax.rsqrt(jnp.sum(d * d, -1) + 1))[..., None], 1)


def forces_on_both(x: jax.Array) -> jax.Array:
    """Two sums over other axes of what takes many operations: it is stored, and read by both."""
    d = jnp.sin(x[None] - x[:, None])
    f = jnp.exp(-jnp.sqrt(jnp.sum(d * d, -1) + 1))[..., None] * jnp.where(d > 0, d * d + d, 3 * d)
    f = jnp.where(f > 1, f * 0.5 + d, f + 1) * jnp.minimum(f * f, 2 - d)
    return f.sum(0) - jnp.abs(f).sum(1)


NORM, ROWS, FEATURES = (X, V, V), (X,), (IMAGES, C, C)
FORWARD = {
    "softmax": Case(jax.nn.softmax, ROWS),
    "softmax by hand": Case(softmax, ROWS),
    "softmax of columns": Case(lambda x: jax.nn.softmax(x, 0), ROWS),
    "masked softmax": Case(lambda x, m: jax.nn.softmax(jnp.where(m > 0, x, -1e9)), (X, X)),
    "log-softmax": Case(jax.nn.log_softmax, ROWS),
    "logsumexp": Case(logsumexp, ROWS),
    "layer norm": Case(layer_norm, NORM),
    "layer norm of squares": Case(layer_norm_of_squares, NORM),
    "layer norm scaled first": Case(layer_norm_scaled_first, NORM),
    "layer norm of each": Case(layer_norm_of_each, NORM),
    "RMS norm": Case(rms_norm, (X, V)),
    "RMS norm by root": Case(rms_norm_by_root, (X, V)),
    "group norm": Case(group_norm, FEATURES),
    "batch norm": Case(batch_norm, FEATURES),
    "batch norm in training": Case(batch_norm_in_training, (*FEATURES, C, C)),
    "cross entropy of labels": Case(entropy_of_labels, (X, LABELS)),
    "cross entropy of one-hot labels": Case(entropy_of_one_hot, (X, LABELS)),
    "cross entropy of soft labels": Case(soft_entropy, (X, X)),
    "distances of points": Case(distances, ("70,3", "81,3")),
    "forces on points": Case(forces, ("70,3", "70")),
    "forces on both of a pair": Case(forces_on_both, ("70,2",), 2),
    "top-1": Case(lambda x, labels: jnp.argmax(x, -1) == labels, (X, LABELS)),
    "argmax and its value": Case(lambda x: (jnp.argmax(x, -1), x.max(-1)), ROWS),
    "min and max": Case(lambda x: (x.min(-1), x.max(-1)), ROWS),
    "mean and variance": Case(lambda x: (x.mean(-1), x.var(-1)), ROWS),
}  # fmt: skip
BACKWARD = {
    "softmax": Case(backward(jax.nn.softmax, 1), (X, X)),
    "softmax by hand": Case(backward(softmax, 1), (X, X)),
    "log-softmax": Case(backward(jax.nn.log_softmax, 1), (X, X)),
    "logsumexp": Case(backward(logsumexp, 1), (X, "9")),
    "layer norm": Case(backward(layer_norm, 1), (*NORM, X)),
    "layer norm of squares": Case(backward(layer_norm_of_squares, 1), (*NORM, X)),
    "layer norm scaled first": Case(backward(layer_norm_scaled_first, 1), (*NORM, X)),
    "layer norm of each": Case(backward(layer_norm_of_each, 1), (*NORM, X)),
    "layer norm with its weights": Case(backward(layer_norm, 3), (*NORM, X), 2),
    "RMS norm": Case(backward(rms_norm, 1), (X, V, X)),
    "RMS norm with its weights": Case(backward(rms_norm, 2), (X, V, X), 2),
    "group norm": Case(backward(group_norm, 1), (*FEATURES, IMAGES)),
    "group norm with its weights": Case(backward(group_norm, 3), (*FEATURES, IMAGES), 2),
    "batch norm with its weights": Case(backward(batch_norm, 3), (*FEATURES, IMAGES)),
    "cross entropy of labels": Case(backward(entropy_of_labels, 1), (X, LABELS, "9")),
    "cross entropy of one-hot labels": Case(
        backward(entropy_of_one_hot, 1), (X, LABELS, "9")),
    "cross entropy of soft labels": Case(backward(soft_entropy, 1), (X, X, "9")),
}  # fmt: skip
CASES = {f"{name}, forward": c for name, c in FORWARD.items()}
CASES |= {f"{name}, backward": c for name, c in BACKWARD.items()}
QUICK = [
    "softmax, forward", "group norm, forward", "top-1, forward", "layer norm, backward",
    "layer norm with its weights, backward", "group norm with its weights, backward",
    "cross entropy of labels, forward", "cross entropy of labels, backward",
    "distances of points, forward", "forces on both of a pair, forward",
]  # fmt: skip


def kernels(case: Case, dtype: str) -> list[Site]:
    """The first sites that have computes, none of which share operations."""
    types = [a if "[" in a else f"{dtype}[{a}]" for a in case.arguments]
    with jax.enable_x64(dtype == "f64"):
        program, found = load(case.function, *map(argument, types)), list[Site]()
    for site in sites(program):
        if not any(overlap(site, x) for x in found) and _has_compute(site):
            found.append(site)
    return found


def _has_compute(site: Site) -> bool:
    try:
        compute_of(graph_of(site.kernel))
    except UnsupportedKernel:
        return False
    return True


def drawn(graph: Graph) -> list[Array]:
    rng, found = np.random.default_rng(0), list[Array]()
    for kind in graph.argument_types:
        values: Array
        if is_float(kind.dtype):
            values = np.asarray(rng.standard_normal(kind.shape))
        else:
            values = rng.integers(0, 2 if kind.dtype == "i1" else 9, kind.shape)
        found.append(np.asarray(values).astype(numpy_dtype(kind.dtype)))
    return found


def check(site: Site) -> None:
    """The first candidate computes what the oracle says."""
    graph = graph_of(site.kernel)
    compute, values = compute_of(graph), drawn(graph)
    space = space_of(compute, host_target())
    got = called(compute, space.schedule(space.heuristic()).steps, values)
    oracle = Oracle(graph, values)
    for k, (kind, result) in enumerate(zip(graph.result_types, got, strict=True)):
        reference = oracle.region(k, tuple((0, n) for n in kind.shape))
        shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
        wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
        assert wrong is None, str(wrong)


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_rows_is_cut_into_few_kernels(name: str) -> None:
    assert len(kernels(CASES[name], "f32")) == CASES[name].kernels


@pytest.mark.parametrize("name", QUICK)
def test_kernels_of_rows_compute_what_the_oracle_says(name: str) -> None:
    for site in kernels(CASES[name], "f32"):
        check(site)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_rows_of_all_floats_do_too(name: str, dtype: str) -> None:
    found = kernels(CASES[name], dtype)
    assert len(found) <= CASES[name].kernels + 1
    for site in found:
        check(site)
