"""Kernels of elementwise operations and reductions compute what NumPy does, by a fixed schedule."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
        return rng.random(shape) < 0.7
    return np.asarray(3 * rng.standard_normal(shape)).astype(dtype)


def check(function: Callable[..., Any], *arguments: Array) -> None:
    """The program is one kernel, and all its results are what the oracle says."""
    with jax.enable_x64(True):
        program = load(function, *arguments)
    site = sites(program)[0]
    assert len(site.results) == len(program.graph.results)
    graph = graph_of(site.kernel)
    values = [np.asarray(arguments[program.graph.arguments.index(v)]) for v in site.arguments]
    got = called(compute_of(graph), (), values)
    oracle = Oracle(graph, values)
    for k, (kind, result) in enumerate(zip(graph.result_types, got, strict=True)):
        reference = oracle.region(k, tuple((0, n) for n in kind.shape))
        shaped = result.reshape(kind.shape).astype(numpy_dtype(kind.dtype))
        wrong = compare(reference, shaped, factor=4.0, exact=reference.exact)
        assert wrong is None, str(wrong)
        assert reference.uncompared < 0.5


def standardised(x: Any, axes: Any) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt(x.var(axes, keepdims=True) + 1)


def grouped(x: Any) -> Any:
    return standardised(x.reshape(*x.shape[:-1], 4, 3), (0, 2)).reshape(x.shape)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "softmax": jax.nn.softmax,
    "softmax of columns": lambda x: jax.nn.softmax(x, axis=0),
    "log softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "layer norm": lambda x: standardised(x, -1),
    "norm of all": lambda x: x / jnp.sqrt((x * x).sum()),
    "group norm": grouped,
    "mean and variance": lambda x: (x.mean(0), x.var(0)),
    "sums of both": lambda x: (x.sum(0), (x * x).sum(0)),
    "all reductions": lambda x: (x.max(1), x.min(1), x.sum(1), jnp.prod(x / 4, 1)),
    "argmax and its value": lambda x: (jnp.argmax(x, 1), x.max(1)),
    "argmin of columns": lambda x: jnp.argmin(x, 0),
    "any and all": lambda x: ((x > 0).any(0), (x > -3).all(0)),
    "from another start": lambda x: lax.reduce(x, np.float32(5), lax.add, (1,)),
    "a stencil": lambda x: x[1:-1, 2:] - 2 * x[1:-1, 1:-1] + x[:-2, :-2],
    "every second": lambda x: x[::2, 1::3] * x[1::2, ::3] + 1,
    "rolled": lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -2, 1) * x,
    "padded": lambda x: jnp.pad(jnp.exp(x), ((1, 2), (0, 3))) + 1,
    "padded between": lambda x: lax.pad(jnp.exp(x), np.float32(1), ((1, 2, 1), (0, 3, 0))) + 1,
    "put together": lambda x: jnp.concatenate([x, jnp.exp(x), x[:3] * 2], 0) + 1,
    "turned": lambda x: jnp.flip(x, (0, 1)) + x,
    "with its transpose": lambda x: jax.nn.softmax(x[:10, :10] + x[:10, :10].T, axis=0),
    "masked": lambda x: jnp.where(jnp.arange(12) <= jnp.arange(14)[:, None], x, -1e9),
    "an outer sum": lambda x: jnp.exp(x[:, :1] + x[:1, :]),
    "a transpose alone": lambda x: x.T,
    "a reverse alone": lambda x: x[:, ::-1],
    "a transpose of a block": lambda x: x[:, :10].reshape(7, 2, 10).transpose(2, 0, 1),
    "angles": lambda x: (
        jnp.arctan2(x, x[::-1] + 0.1),
        jnp.arctan(x),
        jnp.arcsin(x / 16),
        jnp.arccos(x / 16),
    ),
    "bits of floats": lambda x: lax.bitcast_convert_type(jnp.floor(x), jnp.int32) >> 23,
    "results of two shapes": lambda x: (jnp.tanh(x), jnp.tanh(x).sum(1), x.T + 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_f32_are_computed_as_the_oracle_says(name: str) -> None:
    check(PROGRAMS[name], array(14, 12))


NUMBERS = (np.float64, np.float16, ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("name", ["softmax", "layer norm", "all reductions", "argmin of columns"])
def test_other_floats_are_computed_too(name: str, dtype: Any) -> None:
    check(PROGRAMS[name], array(14, 12, dtype=dtype))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_narrow_floats_are_rounded_in_front_of_what_jumps(dtype: Any) -> None:
    """A product that rounds up to a whole number is that number, as the program says."""
    x = np.linspace(1, 3, 300).astype(dtype)
    y = (3 / x.astype(np.float32)).astype(dtype)

    def jumps(x: Any, y: Any) -> Any:
        product = x * y
        whole = product.astype(jnp.int32)
        return jnp.floor(product), whole, product >= 3, jnp.ceil(product), jnp.round(product)

    program = load(jumps, x, y)
    site = sites(program)[0]
    got = called(compute_of(graph_of(site.kernel)), (), [x, y])
    assert (np.float32(x) * np.float32(y) != np.float32(x * y)).any()
    right = dict(zip(program.graph.results, jumps(jnp.asarray(x), jnp.asarray(y)), strict=True))
    for value, found in zip(site.results, got, strict=True):
        np.testing.assert_array_equal(np.float32(found).reshape(-1), np.float32(right[value]))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8, np.int64])
def test_integers_are_exact(dtype: Any) -> None:
    x = array(14, 12, dtype=np.int64).astype(dtype)
    check(lambda x: (x * x - 3, x.max(1), jnp.min(x, 1), lax.reduce(
        x, np.asarray(0, dtype), lax.add, (1,))), x)  # fmt: skip


@pytest.mark.parametrize(("bits", "shift", "floats"), [
    (np.uint32, 9, np.float32), (np.uint64, 12, np.float64),
])  # fmt: skip
def test_random_bits_become_floats(bits: Any, shift: int, floats: Any) -> None:
    """As `jax.random.uniform` makes numbers between 0 and 1."""
    x = np.random.default_rng(0).integers(0, np.iinfo(bits).max, (14, 12), bits)
    one = np.asarray(1, floats).view(bits)

    def uniform(x: Any) -> Any:
        return lax.bitcast_convert_type((x >> bits(shift)) | one, floats) - floats(1)

    check(uniform, x)


def test_bits_in_a_type_of_another_width_stay_with_xla() -> None:
    program = load(lambda x: lax.bitcast_convert_type(x * 2, jnp.uint8) * 2, array(64, 128))
    assert all("bitcast" not in site.kernel.text for site in sites(program))


MOVED = (np.uint8, np.int16, ml_dtypes.bfloat16, np.float16, np.float64, np.bool_)


@pytest.mark.parametrize("dtype", MOVED, ids=lambda d: np.dtype(d).name)
def test_transposes_of_other_types_move_what_they_are_given(dtype: Any) -> None:
    """By the first candidate, which turns vectors in registers, over whole tiles and their ends."""
    x = array(2, 140, 67, dtype=dtype)
    check(lambda x: x.transpose(0, 2, 1), x)
    with jax.enable_x64(True):
        program = load(lambda x: x.transpose(0, 2, 1), x)
    compute = compute_of(graph_of(sites(program)[0].kernel))
    space = space_of(compute, host_target())
    (found,) = called(compute, space.schedule(space.firsts()[0]).steps, [x])
    np.testing.assert_array_equal(found.reshape(2, 67, 140), x.transpose(0, 2, 1))


def test_truths_are_exact() -> None:
    x = array(14, 12, dtype=np.bool_)
    check(lambda x: (x.all(1), x.any(1), ~x), x)


@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
def test_the_first_of_several_nan_is_found_in_lanes_too(function: Callable[..., Any]) -> None:
    x = array(6, 77)
    x[2, [17, 2]], x[3, [40, 33]], x[4], x[5, 50] = np.nan, np.nan, np.nan, np.nan
    graph = graph_of(sites(load(lambda x: function(x, 1), x))[0].kernel)
    compute = compute_of(graph)
    space = space_of(compute, host_target())
    for config in (*space.firsts(), *space.sample(4, np.random.default_rng(0))):
        schedule = space.schedule(config)
        assert schedule.algorithm == "direct"
        (found,) = called(compute, schedule.steps, [x])
        np.testing.assert_array_equal(found, function(x, 1))


@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.uint32, np.int32])
def test_the_first_of_whole_numbers_and_truths_is_found(
    function: Callable[..., Any], dtype: type
) -> None:
    """Where all are the least number there is, as in a row without any truth, it is at 0."""
    ends = [0, 1] if dtype is np.bool_ else [np.iinfo(dtype).min, 5, np.iinfo(dtype).max]
    x = np.random.default_rng(0).choice(np.array(ends, dtype), (6, 77))
    x[2], x[3], x[3, 40], x[4], x[4, 50] = ends[0], ends[0], ends[-1], ends[-1], ends[0]
    for axis in (0, 1):
        graph = graph_of(sites(load(lambda x, axis=axis: function(x, axis), x))[0].kernel)
        space = space_of(compute := compute_of(graph), host_target())
        for config in (*space.firsts(), *space.sample(2, np.random.default_rng(0))):
            (found,) = called(compute, space.schedule(config).steps, [x])
            np.testing.assert_array_equal(found.reshape(-1), function(x, axis))


UNARY = (jnp.tanh, jnp.exp, jnp.abs, jnp.negative, lax.logistic, lambda x: x * x, lambda x: x - 1)
BINARY = (jnp.add, jnp.multiply, jnp.maximum, jnp.subtract)
REDUCING = (jnp.max, jnp.sum, jnp.min, jnp.mean)


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    """Elementwise operations with reductions over the same axes in between."""
    rank = draw(st.integers(1, 3))
    axes = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    steps = draw(st.lists(st.sampled_from(["unary", "binary", "reduce"]), min_size=1, max_size=5))
    chosen = [
        draw(st.sampled_from({"unary": UNARY, "binary": BINARY, "reduce": REDUCING}[s]))
        for s in steps
    ]
    return partial(_chain, tuple(zip(steps, chosen, strict=True)), axes)


def _chain(steps: Any, axes: tuple[int, ...], x: Any) -> Any:
    y = jnp.tanh(x)
    for kind, operation in steps:
        if kind == "unary":
            y = operation(jnp.tanh(y))
        elif kind == "binary":
            y = operation(y, x)
        else:
            y = y - operation(y, axis=axes, keepdims=True)
    return y


@settings(max_examples=20, deadline=None)
@given(programs(), st.data())
def test_random_programs_are_computed_as_the_oracle_says(
    program: Callable[[Any], Any], data: st.DataObject
) -> None:
    rank = 1 + max(program.args[1])  # type: ignore[attr-defined]
    shape = [data.draw(st.integers(2, 9)) for _ in range(rank)]
    check(program, array(*shape))
