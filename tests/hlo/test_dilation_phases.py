"""Transposed convolutions in phases: the same numbers, and no operation on an inserted zero."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.frontends.program import load
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.hlo.to_compute.dilation_phases import phases
from hlotune.schedules.ir import flops
from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.flops import flops_of, real_flops
from hlotune.schedules.ir.monoids import SUM
from tests.support.computes import Array, Case, whole
from tests.support.dilations import NCHW, NHWC, divisors, ragged
from tests.support.interpreter import interpret


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


@pytest.mark.parametrize("window", [3, 4, 5])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_odd_results_are_phases_too_and_mean_the_same(spec: Any, window: int) -> None:
    case = ragged(spec, window)
    assert divisors(case.compute) == {1}
    (got,) = interpret(case.compute, case.values)
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


def test_of_odd_results_those_that_there_are_count() -> None:
    """Each element along a line is a term of three results, at either end of two."""
    compute = ragged().compute
    assert compute.stage("contract").points == (2 * 6) * (2 * 20) * 20 * (2 * 2) * 4
    assert real_flops(compute, compute.stage("contract")) == 2 * (3 * 6 - 2) * (3 * 20 - 2) * 4 * 20
    assert real_flops(compute, compute.stage("out")) == 2 * 11 * 39 * 20


@pytest.mark.parametrize("window", [3, 4])
@pytest.mark.parametrize("most", [0, 60])
def test_of_more_points_than_are_looked_at_no_more_count(
    most: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases, positions and taps decide together, 160 of them along the longer dimension.

    Borders counted apart would say something else.
    """
    compute = ragged(window=window).compute
    exact = [real_flops(compute, s) for s in compute.stages]
    monkeypatch.setattr(flops, "MOST_POINTS", most)
    found = [real_flops(compute, s) for s in compute.stages]
    assert all(0 < n <= real for n, real in zip(found, exact, strict=True))
    assert found == exact or most == 0


def test_results_that_are_read_again_are_not_ragged() -> None:
    """Only results of the kernel may be stored beyond their end."""
    compute = two_sums()
    tensors = tuple(
        replace(t, shape=(11,)) if t.name in ("second", "z") else t for t in compute.tensors
    )
    shorter = tuple(
        replace(s, parallel=(Axis("p", 11),)) if s.name in ("second", "z") else s
        for s in compute.stages
    )
    odd = Compute(tensors, shorter)
    assert divisors(phases(odd)) == {1}
    inside = tuple(replace(t, role="temporary") if t.name == "z" else t for t in tensors)
    assert divisors(phases(Compute(inside, shorter))) == {1, 2}


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


def two_sums() -> Compute:
    """Two sums over axes of the same names and extents; the second has a dilated image."""
    p, q = Axis("p", 12), Axis("q", 4)
    here, tap = (Affine.axis("p"),), Affine.axis("q")
    plain = Load("v", (here[0] + tap,), "f32"), Load("w", (tap,), "f32")
    dilated = Load("x", (here[0] + tap + -1,), "f32", (2,)), Load("w", (tap,), "f32")

    def sums(name: str, factors: tuple[Load, ...]) -> Stage:
        value = Apply("multiply", factors, "f32")
        return Stage(name, (p,), (q,), (Store(name, here),), (value,), SUM)

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
