"""Pooling and stencils compute what the oracle says, as first candidates and as others."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.comparison import compare
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Const, Load, map_loads
from hlotune.schedules.ir.monoids import MAX, SELECTED, Monoid
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Unroll
from tests.support.faults import extents, loading, moved
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


@pytest.mark.parametrize("name", POOLS)
def test_pools_are_computed_as_the_oracle_says(name: str) -> None:
    assert wrong_results(POOLS[name], array(2, 9, 11, 19), configs=3) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_many_schedules_of_pools_are_right(name: str) -> None:
    assert wrong_results(POOLS[name], array(2, 9, 11, 19), configs=12) == []


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint32])
def test_pools_of_other_types_are_right(dtype: Any) -> None:
    x = np.asarray(np.abs(array(1, 7, 8, 5))).astype(dtype)
    assert wrong_results(lambda x: (pooled(lax.max, x), pooled(lax.add, x)), x) == []


def test_windows_of_truths_are_exact() -> None:
    def model(x: Any) -> Any:
        return lax.reduce_window(x, False, lax.bitwise_or, (1, 3, 3, 1), (1, 2, 1, 1), "SAME")

    assert wrong_results(model, array(1, 7, 8, 5, dtype=np.bool_)) == []


def test_a_nan_stays_the_largest_of_its_windows() -> None:
    x = array(1, 9, 9, 17)
    x[0, 4, 4, 3] = np.nan
    assert wrong_results(POOLS["max"], x) == []


def test_a_window_that_begins_elsewhere_stays_with_xla() -> None:
    """Compilers do not agree on how often such a start counts."""

    def model(x: Any) -> Any:
        return lax.reduce_window(x, np.float32(2), lax.add, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")

    site = sites(load(model, array(1, 7, 8, 5)))[0]
    with pytest.raises(UnsupportedKernel, match=r"begins at what changes nothing, got 2.0 of a"):
        compute_of(graph_of(site.kernel))


def strided_by_one(x: Load) -> Load:
    """The same window, which moves on by one element along the second dimension of two."""
    index = list(x.index)
    index[2] = Affine.of({a: min(c, 1) for a, c in index[2].terms}, index[2].constant)
    return replace(x, index=tuple(index))


def at_loads(change: Callable[[Load], Load]) -> Callable[[Compute], Compute]:
    return loading("a0", change, where="reduce0")


def begun_at_zero(compute: Compute) -> Compute:
    zero = Monoid("max", 1, lambda dtypes: (Const(0.0, dtypes[0]),), MAX.merge)
    changed = at_loads(lambda x: replace(x, outside=0.0))(compute)
    return replace(changed, stages=tuple(replace(s, combine=zero) for s in changed.stages))


FAULTS: dict[str, tuple[str, Callable[[Compute], Compute], str]] = {
    "the last tap of each window is lost": (
        "max", lambda c: extents(c, {"r1": 2}),
        "359 of 1140 elements wrong, worst at (1, 0, 0, 18): expected -0.018531803"),
    "the largest begins at zero": (
        "negative", begun_at_zero,
        "1140 of 1140 elements wrong, worst at (0, 0, 0, 0): expected -1.90708065, got 0,"),
    "the border is one row off": (
        "max", at_loads(moved(1, 1)),
        "529 of 1140 elements wrong"),
    "what lies outside counts as one": (
        "sum", at_loads(lambda x: replace(x, outside=1.0)),
        "684 of 1140 elements wrong"),
    "windows stand one column apart, not two": (
        "max", at_loads(strided_by_one), "824 of 1140 elements wrong"),
}  # fmt: skip
BASES: dict[str, Callable[..., Any]] = {
    "max": POOLS["max"], "negative": lambda x: pooled(lax.max, -jnp.abs(x)),
    "sum": partial(pooled, lax.add),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults_planted_in_pools_are_found(name: str) -> None:
    base, fault, says = FAULTS[name]
    x = array(2, 9, 11, 19)
    graph = graph_of(sites(load(BASES[base], x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    assert differences(oracle, called(compute, (), [x])) == []
    (said,) = differences(oracle, called(fault(compute), (), [x]))
    assert says in said


def total_variation(x: Any) -> Any:
    """The squares of differences along each axis, added up."""
    return sum((jnp.diff(x, axis=d) ** 2).sum() for d in range(x.ndim))


def five_points(u: Any) -> Any:
    rolled = [jnp.roll(u, by, axis) for by in (1, -1) for axis in (0, 1)]
    return u + 0.1 * (sum(rolled) - 4 * u)


def jacobi(u: Any) -> Any:
    """A step at the points inside, and zeros at the border."""
    inside = (slice(1, -1),) * u.ndim
    steps = [
        u[(*inside[:d], slice(1 + by, u.shape[d] - 1 + by), *inside[d + 1 :])]
        for d in range(u.ndim)
        for by in (1, -1)
    ]
    return jnp.pad(sum(steps) / len(steps), 1)


STENCILS: dict[str, Callable[..., Any]] = {
    "total variation": total_variation,
    "its gradient": jax.grad(total_variation),
    "five points, rolled": five_points,
    "rolled far": lambda x: jnp.roll(x, 7, 0) * jnp.roll(x, (-5, 3), (1, 0)) + x,
    "a Jacobi step": jacobi,
    "a step put into its place": lambda u: u.at[1:-1, 2:-1].set(u[:-2, 3:] + u[2:, 1:-2]),
    "a row updated": lambda u: lax.dynamic_update_slice(u * 2, -u[:1], (3, 0)) + 1,
    "differences of a function": lambda x: jnp.diff(x * x - 1, axis=1) ** 2,
    "parts beside one another": lambda x: jnp.concatenate([x[:, 3:], -x[:, :5], x * x], 1) + 1,
    "padded with ones, computed": lambda x: jnp.pad(x * 3, ((2, 1), (0, 4)), constant_values=1) - 2,
}


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_are_computed_as_the_oracle_says(name: str) -> None:
    assert wrong_results(STENCILS[name], array(21, 75), configs=3) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", STENCILS)
def test_many_schedules_of_stencils_are_right(name: str) -> None:
    assert wrong_results(STENCILS[name], array(21, 75), configs=12) == []


def test_stencils_along_three_axes_are_right() -> None:
    for name in ("total variation", "its gradient", "a Jacobi step"):
        assert wrong_results(STENCILS[name], array(9, 10, 70), configs=3) == []


def test_sums_over_overlapping_slices_are_one_pass() -> None:
    compute = compute_of(graph_of(sites(load(total_variation, array(8, 9, 16)))[0].kernel))
    (stage,) = [s for s in compute.stages if s.combine]
    assert [a.extent for a in stage.reduce] == [8, 9, 16]
    assert len(stage.stores) == 3


@pytest.mark.parametrize("planes", [8, 9, 11])
def test_planes_that_no_cache_holds_are_summed_two_at_a_time(planes: int) -> None:
    x = array(planes, 10, 70)
    graph = graph_of(sites(load(total_variation, x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    space = space_of(compute, replace(host_target(), l3_bytes=1 << 10))
    steps = space.schedule(space.firsts()[0]).steps
    (stage,) = [s for s in compute.stages if s.combine]
    assert Unroll(stage.name, "r0.2") in steps
    assert differences(oracle, called(compute, steps, [x])) == []


def test_steps_of_a_stencil_are_a_kernel_each() -> None:
    def model(u: Any) -> Any:
        return five_points(five_points(five_points(u)))

    found = sites(load(model, array(64, 64)))
    assert len(found) == 3
    kept = sites(load(lambda x: jnp.diff(x * x, axis=0) ** 2, array(64, 64)))
    assert len(kept) == 1, "few operations are computed at both places"


def guard_of(change: Callable[[Load], Load]) -> Callable[[Compute], Compute]:
    def changed(s: Stage) -> Stage:
        moves = {x: change(x) for x in s.loads if x.tensor.startswith("inside")}
        assert moves
        return replace(s, values=tuple(map_loads(v, moves) for v in s.values))

    return lambda c: replace(c, stages=tuple(changed(s) if s.stores else s for s in c.stages))


SEAMS: dict[str, tuple[str, Callable[[Compute], Compute], str]] = {
    "a seam is one row off": (
        "rolled far", guard_of(moved(0, 1)), "169 of 1575 elements wrong"),
    "the border is one column narrower": (
        "a Jacobi step", guard_of(moved(1, -1)), "38 of 1575 elements wrong"),
}  # fmt: skip


@pytest.mark.parametrize("name", SEAMS)
def test_faults_planted_in_stencils_are_found(name: str) -> None:
    base, fault, says = SEAMS[name]
    x = array(21, 75)
    graph = graph_of(sites(load(STENCILS[base], x))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x])
    space = space_of(compute, host_target())
    steps = space.schedule(space.heuristic()).steps
    assert differences(oracle, called(compute, steps, [x])) == []
    (said,) = differences(oracle, called(fault(compute), steps, [x]))
    assert says in said


def gradient(pool: Callable[..., Any], x: Any, given: Any) -> Any:
    """What comes back through a pool of x, for what is given to its results."""
    return jax.vjp(pool, x)[1](given)[0]


GRADIENTS: dict[str, Callable[..., Any]] = {
    "of the largest": partial(gradient, POOLS["max"]),
    "of the largest of NCHW": partial(gradient, partial(pooled, lax.max, sides=NCHW, step=1)),
    "of the largest of what is computed": lambda x, g: gradient(POOLS["max"], x * x, g * 2) + x,
    "of sums, in steps": partial(gradient, partial(pooled, lax.add, sides=NCHW)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_pools_are_computed_as_the_oracle_says(name: str) -> None:
    x = np.round(array(2, 9, 11, 19))
    shape = jax.eval_shape(POOLS["max"], x).shape
    if "NCHW" in name:
        shape = x.shape
    if "steps" in name:
        shape = jax.eval_shape(POOLS["max of NCHW"], x).shape
    assert wrong_results(GRADIENTS[name], x, array(*shape), configs=3) == []


@pytest.mark.parametrize("dtype", [np.float64, np.float16, ml_dtypes.bfloat16])
def test_gradients_of_other_types_are_right(dtype: Any) -> None:
    x, given = array(1, 9, 9, 5).astype(dtype), array(1, 5, 5, 5).astype(dtype)
    assert wrong_results(GRADIENTS["of the largest"], x, given) == []


def test_windows_select_as_xla_does_where_numbers_are_missing_or_equal() -> None:
    x, given = np.round(array(1, 9, 9, 4)), array(1, 5, 5, 4)
    x[0, 3, 3, 0], x[0, 4, 5, 1], x[0, 4, 4, 1], x[0, :4, :4, 2] = np.nan, np.nan, np.nan, -np.inf
    program = load(GRADIENTS["of the largest"], x, given)
    graph = graph_of(sites(program)[0].kernel)
    (found,) = called(compute_of(graph), (), [x, given])
    wanted = jax.jit(GRADIENTS["of the largest"])(x, given)
    np.testing.assert_allclose(found.reshape(x.shape), wanted, rtol=1e-6)


def test_the_second_of_equal_elements_is_not_selected() -> None:
    """A planted fault: what comes later takes the place of what is equal."""
    x, given = np.round(array(1, 9, 9, 4)), array(1, 5, 5, 4)
    graph = graph_of(sites(load(GRADIENTS["of the largest"], x, given))[0].kernel)
    compute, oracle = compute_of(graph), Oracle(graph, [x, given])
    assert differences(oracle, called(compute, (), [x, given])) == []
    stages = tuple(
        replace(s, combine=SELECTED["GT"]) if s.combine is SELECTED["GE"] else s
        for s in compute.stages
    )
    (said,) = differences(oracle, called(replace(compute, stages=stages), (), [x, given]))
    assert "of 324 elements wrong" in said


def test_elements_that_windows_select_are_found_in_order() -> None:
    """No space has the lanes of a vector along the window: NaN would be met in another order."""
    x, given = array(1, 9, 40, 1), array(1, 5, 5, 1)

    def model(x: Any, given: Any) -> Any:
        pool = partial(lax.reduce_window, init_value=-np.inf, computation=lax.max,
                       window_dimensions=(1, 3, 16, 1), window_strides=(1, 2, 8, 1),
                       padding="SAME")  # fmt: skip
        return gradient(pool, x, given)

    compute = compute_of(graph_of(sites(load(model, x, given))[0].kernel))
    space = space_of(compute, host_target())
    (stage,) = [s for s in compute.stages if s.combine is SELECTED["GE"]]
    assert not any(f.reduces for f in space.forms[stage.name])


def test_cumulative_sums_are_no_windows() -> None:
    program = load(lambda x: jnp.cumsum(jnp.tanh(x), 0) * 2, array(8, 16))
    assert all(s.pattern != "window" for s in sites(program))


def test_labels_of_pools_say_their_windows() -> None:
    x = array(2, 9, 11, 19)
    named = {name: sites(load(POOLS[name], x))[0].label for name in ("max of NCHW", "average")}
    assert named == {
        "max of NCHW": "max pool 2x9x11x19 k3 s2",
        "average": "average pool 2x9x11x19 k3 s2",
    }
