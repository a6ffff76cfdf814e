"""Transposed convolutions in phases: the same numbers, and no operation on an inserted zero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.hosts import serial
from hlotune.codegen.loader import load as load_built
from hlotune.hlo.phases import phases
from hlotune.hlo.program import load
from hlotune.hlo.to_compute import compute_of
from hlotune.measure.targets import host_target
from hlotune.schedules.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.expr import Affine, Apply, Load
from hlotune.schedules.flops import flops_of
from tests.computes import Array, Case, call, whole
from tests.interpreter import interpret

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")


def transposed(
    size: int,
    window: int,
    dilation: int,
    padding: tuple[int, int],
    spec: Any = NHWC,
    **options: Any,
) -> tuple[Compute, list[Array], Array]:
    """The compute of a dilated convolution, its arguments, and what JAX makes of them."""
    sizes = {"N": 1, "C": 3, "H": size, "W": size + 1, "I": 3, "O": 4}
    taps = {"H": window, "W": window + 1}
    x = whole(*(sizes[c] for c in spec[0]))
    w = whole(*(taps.get(c, sizes[c]) for c in spec[1]), seed=1)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, options.get("stride", (1, 1)), [padding] * 2, lhs_dilation=(dilation, dilation),
            rhs_dilation=options.get("rhs", (1, 1)), dimension_numbers=spec,
        )  # fmt: skip

    return compute_of(load(function, x, w).graph), [x, w], np.asarray(jax.jit(function)(x, w))


def divisors(compute: Compute) -> set[int]:
    loads = [x for s in compute.stages for x in s.loads]
    return {x.divisor(d) for x in loads for d in range(len(x.index))}


@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", [(0, 0), (1, 1), (1, 2), (2, 1), (-1, 0)])
@pytest.mark.parametrize("window", [1, 2, 3, 4, 5])
def test_a_convolution_dilated_by_two_means_the_same(
    window: int, padding: tuple[int, int], spec: Any
) -> None:
    compute, arguments, wanted = transposed(5, window, 2, padding, spec)
    (got,) = interpret(compute, arguments)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("dilation", "window", "padding"),
    [
        (3, 3, (2, 2)),
        (3, 4, (0, 3)),
        (4, 8, (5, 5)),
        (4, 4, (3, 3)),
        (4, 5, (1, 2)),
        (6, 3, (2, 5)),
    ],
)
def test_other_dilations_mean_the_same(
    dilation: int, window: int, padding: tuple[int, int]
) -> None:
    compute, arguments, wanted = transposed(4, window, dilation, padding)
    (got,) = interpret(compute, arguments)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(("stride", "rhs"), [((3, 3), (1, 1)), ((1, 1), (3, 3)), ((2, 2), (1, 1))])
def test_strides_and_dilated_windows_mean_the_same(stride: Any, rhs: Any) -> None:
    compute, arguments, wanted = transposed(5, 3, 2, (2, 2), stride=stride, rhs=rhs)
    (got,) = interpret(compute, arguments)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


def doubled(size: int = 6) -> Case:
    """y of 12x12 from x of 6x6 by a window of 4x4."""
    x, w = whole(1, size, size, 3), whole(4, 4, 3, 8, seed=1)
    return Case(
        "doubled",
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), [(2, 2)] * 2, lhs_dilation=(2, 2), dimension_numbers=NHWC
        ),
        (x, w),
    )


def test_the_phases_take_a_quarter_of_the_products() -> None:
    compute = doubled().compute
    assert divisors(compute) == {1}
    assert compute.stage("contract").points == 12 * 12 * 8 * (4 * 4 // 4) * 3
    assert flops_of(compute) < compute.stage("contract").flops  # padding alone is left out


def test_a_window_that_ends_where_an_operand_is_not_zero_is_left_as_it_is() -> None:
    """Taps beyond the window would add exp(0) = 1 times what is there."""
    x, w = whole(1, 6, 6, 3), whole(3, 3, 3, 4, seed=1)

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, jnp.exp(w), (1, 1), [(1, 2)] * 2, lhs_dilation=(2, 2), dimension_numbers=NHWC
        )

    compute = compute_of(load(function, x, w).graph)
    (got,) = interpret(compute, [x, w])
    wanted = np.asarray(jax.jit(function)(x, w))
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4)


def infinite(spec: Any = NHWC, window: int = 3) -> Case:
    """Weights that are not zero, and an image with an infinite and an undefined element."""
    x, w = whole(1, 6, 6, 4), 1 + abs(whole(window, window, 4, 20, seed=1))
    x[0, 1, 2, 3], x[0, 4, 4, 0] = np.inf, np.nan
    if spec == NCHW:
        x, w = x.transpose(0, 3, 1, 2).copy(), w.transpose(3, 2, 0, 1).copy()

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), [(1, 2)] * 2, lhs_dilation=(2, 2), dimension_numbers=spec
        )

    return Case(f"infinite {spec[0]} {window}", function, (x, w))


@pytest.mark.parametrize("window", [3, 5])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_what_is_infinite_reaches_only_the_results_that_it_is_a_term_of(
    spec: Any, window: int
) -> None:
    case = infinite(spec, window)
    assert divisors(case.compute) == {1}
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    assert 0 < np.isfinite(wanted).sum() < wanted.size
    (got,) = interpret(case.compute, case.values)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_no_schedule_multiplies_what_is_infinite_beyond_the_window(spec: Any) -> None:
    """Packed and not, clipped and not, along whichever axis the vectors go."""
    case, target = infinite(spec), host_target()
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    space = case.space(target)
    drawn = space.sample(12, np.random.default_rng(0))
    for config in (space.heuristic(), *drawn):
        schedule = space.schedule(config)
        loaded = load_built(build(case.compute, schedule, target))
        (got,) = call(loaded, case, serial())
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted, err_msg=str(schedule))


def two_sums() -> Compute:
    """Two sums over axes of the same names and extents; the second has a dilated image."""
    p, q = Axis("p", 12), Axis("q", 4)
    here, tap = (Affine.axis("p"),), Affine.axis("q")
    plain = Load("v", (here[0] + tap,), "f32"), Load("w", (tap,), "f32")
    dilated = Load("x", (here[0] + tap + -1,), "f32", (2,)), Load("w", (tap,), "f32")

    def sums(name: str, factors: tuple[Load, ...]) -> Stage:
        value = Apply("multiply", factors, "f32")
        return Stage(name, (p,), (q,), (Store(name, here),), (value,), "sum")

    def copied(name: str, source: str) -> Stage:
        return Stage(name, (p,), (), (Store(name, here),), (Load(source, here, "f32"),))

    extents = {"v": 15, "x": 7, "w": 4, "first": 12, "second": 12, "y": 12, "z": 12}
    roles: dict[str, Role] = {n: "result" if n in "yz" else "argument" for n in "vxwyz"}
    tensors = (Tensor(n, (k,), "f32", roles.get(n, "temporary")) for n, k in extents.items())
    stages = (
        sums("first", plain),
        sums("second", dilated),
        copied("y", "first"),
        copied("z", "second"),
    )
    return Compute(tuple(tensors), stages)


def test_of_two_sums_over_the_same_axes_the_dilated_one_is_split() -> None:
    compute = two_sums()
    arguments = [whole(15), whole(7, seed=1), whole(4, seed=2)]
    split = phases(compute)
    assert divisors(split) == {1}
    assert split.stage("first") == compute.stage("first")
    for got, wanted in zip(interpret(split, arguments), interpret(compute, arguments), strict=True):
        np.testing.assert_array_equal(got, wanted)
