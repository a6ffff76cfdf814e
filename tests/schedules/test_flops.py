"""Arithmetic is counted as the mathematics has it: nothing on padding, no inserted zeros."""

from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.rewriting import winograd
from hlotune.schedules.ir import flops
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load
from hlotune.schedules.ir.flops import arithmetic_type, executed_flops, flops_of, real_flops
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Pack

AVX512 = TARGETS["znver4"]


def convolved(size: int, window: int, **how: Any) -> Compute:
    """(1, size, size, 4) through `window` x `window` windows to 8 channels."""

    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **how)

    program = load(convolve, jnp.ones((1, size, size, 4)), jnp.ones((window, window, 4, 8)))
    return compute_of(graph_of(sites(program)[0].kernel))


@pytest.mark.parametrize(
    ("how", "taps"),
    [
        ({"window_strides": (1, 1), "padding": "VALID"}, 5 * 3),
        ({"window_strides": (1, 1), "padding": [(1, 1)] * 2}, 7 * 3 - 2),
        ({"window_strides": (2, 2), "padding": [(1, 1)] * 2}, 4 * 3 - 2),
        ({"window_strides": (1, 1), "padding": [(0, 0)] * 2, "lhs_dilation": (2, 2)}, 6 * 2 + 5),
    ],
    ids=["valid", "padded", "strided", "transposed"],
)
def test_a_convolution_counts_the_taps_on_values(how: dict[str, Any], taps: int) -> None:
    """`taps` are those of all results along one dimension of 7 values under a window of 3."""
    assert flops_of(convolved(7, 3, **how)) == 2 * taps * taps * 4 * 8


def test_a_product_counts_all_of_its_terms() -> None:
    program = load(jnp.dot, jnp.ones((3, 5)), jnp.ones((5, 7)))
    assert flops_of(compute_of(graph_of(sites(program)[0].kernel))) == 2 * 3 * 5 * 7


def masked(m: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(m, x, 0.0) @ y


def dequantized(w: jax.Array, x: jax.Array) -> jax.Array:
    return w.astype(jnp.float32) @ x.astype(jnp.float32)


def of_places(x: jax.Array) -> jax.Array:
    places = lax.iota(jnp.int32, 64).reshape(8, 8).astype(jnp.float32)
    return (places + x) @ places


def summed_in(dtype: Any) -> Any:
    return lambda a, b: lax.dot(a, b, preferred_element_type=dtype)


@pytest.mark.parametrize(
    ("function", "operands", "dtype"),
    [
        (jnp.dot, ("float32", "float32"), "f32"),
        (masked, ("bool", "float32", "float32"), "f32"),
        (dequantized, ("int8", "float32"), "f32"),
        (dequantized, ("int8", "int8"), "f32"),
        (of_places, ("float32",), "f32"),
        (summed_in(jnp.float32), ("float16", "float16"), "f32"),
        (summed_in(jnp.float32), ("bfloat16", "bfloat16"), "bf16"),
        (jnp.dot, ("bfloat16", "bfloat16"), "bf16"),
        (summed_in(jnp.int32), ("int8", "int8"), "i8"),
    ],
)
def test_a_peak_is_that_of_the_type_in_which_products_are_computed(
    function: Any, operands: tuple[str, ...], dtype: str
) -> None:
    program = load(function, *(jnp.ones((8, 8), x) for x in operands))
    assert arithmetic_type(compute_of(graph_of(sites(program)[0].kernel))) == dtype


def test_an_index_that_stays_inside_is_not_counted_point_by_point() -> None:
    """A minute, if each of a billion points were looked at."""
    n = 1 << 30
    index = (Affine.axis("i0"),)
    value = Apply("negate", (Load("x", index, "f32"),), "f32")
    stage = Stage("y", (Axis("i0", n),), (), (Store("y", index),), (value,))
    tensors = (Tensor("x", (n,), "f32", "argument"), Tensor("y", (n,), "f32", "result"))
    assert flops_of(Compute(tensors, (stage,))) == n


def test_a_border_that_several_loads_share_is_counted_once() -> None:
    def convolve(x: jax.Array, m: jax.Array, w: jax.Array) -> jax.Array:
        numbers = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x * m, w, (1, 1), "SAME", dimension_numbers=numbers)

    def at(axis: str, tap: str) -> Affine:
        return Affine.axis(axis) + Affine.axis(tap) + (-1)

    image = jnp.ones((1, 7, 7, 4))
    program = load(convolve, image, image, jnp.ones((3, 3, 4, 8)))
    compute = compute_of(graph_of(sites(program)[0].kernel))
    assert flops_of(compute) == (2 * 8 + 1) * 19 * 19 * 4  # x * m once for all features
    place = (at("i0", "r0"),)
    value = Apply("multiply", (Load("x", place, "f32"), Load("m", place, "f32")), "f32")
    stores = (Store("y", (Affine.axis("i0"),)),)
    stage = Stage("y", (Axis("i0", 7),), (Axis("r0", 3),), stores, (value,), SUM)
    tensors = tuple(Tensor(n, (7,), "f32", "argument") for n in ("x", "m"))
    shared = Compute((*tensors, Tensor("y", (7,), "f32", "result")), (stage,))
    assert flops_of(shared) == 2 * (7 * 3 - 2)


indices = st.builds(
    lambda p, q, r, constant: Affine.of({"p": p, "q": q, "r": r}, constant),
    st.integers(-2, 2), st.integers(-2, 3), st.integers(-1, 1), st.integers(-4, 8),
)  # fmt: skip
borders = st.lists(
    st.tuples(indices, st.sampled_from((1, 1, 2, 3)), st.integers(1, 9)), min_size=1, max_size=4
)


@given(st.tuples(*(st.integers(1, 9) for _ in "pqr")), borders, st.sampled_from((0, 30, 1 << 22)))
def test_points_inside_of_any_borders_are_counted_one_by_one_or_as_fewer(
    sizes: tuple[int, ...], found: list[tuple[Affine, int, int]], most: int
) -> None:
    """Borders are divided dimensions of a tensor of their own each."""
    axes = tuple(Axis(a, n) for a, n in zip("pqr", sizes, strict=True))
    tensors = [Tensor(f"x{k}", (n,), "f32", "argument") for k, (_, _, n) in enumerate(found)]
    loads = [Load(f"x{k}", (e,), "f32", (d,)) for k, (e, d, _) in enumerate(found)]
    whole = tuple(Affine.axis(a) for a in "pqr")
    value: Expr = Load("all", whole, "f32")  # so that each operation varies along all axes
    for x in loads:
        value = Apply("add", (value, x), "f32")
    store = Store("y", whole)
    stage = Stage("y", axes, (), (store,), (value,))
    ends = (Tensor("all", sizes, "f32", "argument"), Tensor("y", sizes, "f32", "result"))
    compute = Compute((*tensors, *ends), (stage,))
    real = sum(
        all(e.value(at) % d == 0 and 0 <= e.value(at) < d * n for e, d, n in found)
        for at in (dict(zip("pqr", place, strict=True)) for place in np.ndindex(sizes))
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flops, "MOST_POINTS", most)
        counted = real_flops(compute, stage)
    assert counted <= real * len(found)
    assert counted == real * len(found) or most < prod(sizes)


def test_taps_beyond_a_window_are_not_executed_though_all_is_packed() -> None:
    """Phases have taps in pairs, where the window has three.  If the fourth counted, the fastest
    schedules would seem faster than the machine's peak, and be refused.
    """
    compute = convolved(9, 3, window_strides=(1, 1), padding=[(1, 2)] * 2, lhs_dilation=(2, 2))
    space, results = space_of(compute, AVX512), 18
    configs = space.sample(200, np.random.default_rng(0))
    schedules = [s for s in map(space.schedule, configs) if packs(s) == 2]
    executed = [executed_flops(replay(compute, s, AVX512)) for s in schedules]
    assert len(executed) > 5
    assert max(executed) == 2 * (results * 3 // 2) ** 2 * 4 * 8


def packs(schedule: Schedule) -> int:
    return sum(isinstance(s, Pack) for s in schedule.steps)


def test_what_tiles_compute_beyond_the_last_result_is_not_counted() -> None:
    """Five positions in tiles of four: two tiles, three of whose results are nobody's."""

    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.tanh(y)

    def out(size: int) -> int:
        program = load(function, jnp.ones((1, size, size, 4)), jnp.ones((3, 3, 4, 8)))
        compute = winograd(4)(compute_of(graph_of(sites(program)[0].kernel)))
        return real_flops(compute, compute.stages[-1])

    whole, tiles = out(8), 4
    transforms = whole - 8 * 8 * 8  # one tanh a result
    assert out(5) - 5 * 5 * 8 < transforms
    assert out(5) - 5 * 5 * 8 > transforms / tiles


def test_what_does_not_vary_along_an_axis_counts_once_for_it() -> None:
    def scaled(x: jax.Array, scale: jax.Array, w: jax.Array) -> jax.Array:
        return (x * scale[:, None]) @ w

    (site,) = (
        s
        for s in sites(load(scaled, *map(jnp.ones, ((8, 16), (8,), (16, 32)))))
        if "multiply" in s.kernel.text and "dot" in s.kernel.text
    )
    assert flops_of(compute_of(graph_of(site.kernel))) == 2 * 8 * 16 * 32 + 8 * 16
