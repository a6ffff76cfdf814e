"""Pools to test with, and what is wrong with the results of a program's only kernel."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called

Array = np.ndarray[Any, Any]


def array(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype) == np.bool_:
        return rng.random(shape) < 0.5
    return np.asarray(3 * rng.standard_normal(shape)).astype(dtype)


def wrong_results(function: Callable[..., Any], *arguments: Array, configs: int = 1) -> list[str]:
    """What is wrong with the results of a program's only kernel, by the first candidate and others
    drawn at random.
    """
    with jax.enable_x64(True):
        program = load(function, *arguments)
    site = sites(program)[0]
    assert len(site.results) == len(program.graph.results), "the program is one kernel"
    values = [np.asarray(arguments[program.graph.arguments.index(v)]) for v in site.arguments]
    graph = graph_of(site.kernel)
    compute, oracle = compute_of(graph), Oracle(graph, values)
    space = space_of(compute, host_target())
    drawn = space.sample(max(configs, 5), np.random.default_rng(0))[: configs - 1]
    found = list[str]()
    for config in (*space.firsts(), *drawn):
        steps = space.schedule(config).steps
        found += differences(oracle, called(compute, steps, values))
    return found


def differences(oracle: Oracle, got: list[Array]) -> list[str]:
    """What is wrong of each result, in the words of a failure."""
    found = list[str]()
    for k, (kind, result) in enumerate(zip(oracle.graph.result_types, got, strict=True)):
        reference = oracle.region(k, tuple((0, n) for n in kind.shape))
        shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
        wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
        assert reference.uncompared < 0.5
        found += [] if wrong is None else [str(wrong)]
    return found


def start_of(kind: Any, dtype: Any) -> Any:
    """What the maximum, or a sum, of nothing is."""
    if kind is not lax.max:
        return np.zeros((), dtype)[()]
    floats = jnp.issubdtype(dtype, jnp.floating)
    return np.asarray(-np.inf if floats else np.iinfo(dtype).min, dtype)[()]


def pooled(kind: Any, x: Any, *, sides: tuple[int, int] = (1, 3), **options: Any) -> Any:
    """Windows along two dimensions of an array of four."""
    size, step = options.get("size", 3), options.get("step", 2)
    apart, padding = options.get("apart", 1), options.get("padding", "SAME")
    whole = [tuple(n if sides[0] <= d < sides[1] else 1 for d in range(4))
             for n in (size, step, apart)]  # fmt: skip
    return lax.reduce_window(
        x, start_of(kind, x.dtype), kind, whole[0], whole[1], padding, window_dilation=whole[2]
    )


def average(x: Any, **options: Any) -> Any:
    return pooled(lax.add, x, **options) / pooled(lax.add, jnp.ones_like(x[:1]), **options)


def largest_with_its_number(x: Any) -> Any:
    def ahead(a: Any, b: Any) -> Any:
        keep = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(keep, a[0], b[0]), jnp.where(keep, a[1], b[1])

    numbers = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    starts = np.float32(-np.inf), np.int32(2**31 - 1)
    return lax.reduce_window((x, numbers), starts, ahead, (1, 2, 2, 1), (1, 2, 1, 1), "SAME")


NCHW = (2, 4)
POOLS: dict[str, Callable[..., Any]] = {
    "max": partial(pooled, lax.max),
    "max of NCHW": partial(pooled, lax.max, sides=NCHW),
    "min, dilated": lambda x: -pooled(lax.max, -x, apart=2, step=1, padding="VALID"),
    "sum of NCHW, padded far": partial(
        pooled, lax.add, sides=NCHW, step=1, padding=((0, 0), (0, 0), (3, 0), (1, 4))
    ),
    "product": lambda x: lax.reduce_window(
        x, np.float32(1), lax.mul, (1, 2, 2, 1), (1, 1, 1, 1), "VALID"
    ),
    "average": average,
    "average of NCHW": partial(average, sides=NCHW, step=1),
    "average of whole windows": lambda x: pooled(lax.add, x, size=2, padding="VALID") / 4,
    "behind relu, before a bias": lambda x: average(jax.nn.relu(x * 2 - 1)) + x[:1, :1, :1],
    "with its number": largest_with_its_number,
}
