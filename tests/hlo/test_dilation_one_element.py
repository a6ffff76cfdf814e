"""Transposed convolutions whose window is one element: one phase of the results has products."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.to_compute.dilation_phases import MOST_STORES, phases
from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.ir.monoids import SUM
from tests.support.computes import Case, whole
from tests.support.dilations import NCHW, NHWC, check_schedules, divisors
from tests.support.interpreter import interpret


def one_element(
    spec: Any = NHWC, *, side: int = 7, results: int = 14, dilation: int = 2, weight: float = np.inf
) -> Case:
    """The gradient of a convolution whose window is one element; something of its shape is added.

    One weight of feature 3 is given: where it is infinite, only results of the phase that has
    products meet it.
    """
    x, w = 1 + abs(whole(2, side, side, 8)), whole(1, 1, 8, 20, seed=1)
    w[0, 0, 5, 3] = weight
    r = whole(2, results, results, 20, seed=2)
    if spec == NCHW:
        x, r = (a.transpose(0, 3, 1, 2).copy() for a in (x, r))
        w = w.transpose(3, 2, 0, 1).copy()
    beyond = results - 1 - dilation * (side - 1)

    def function(x: Any, w: Any, r: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), [(0, beyond)] * 2, lhs_dilation=(dilation,) * 2, dimension_numbers=spec
        )
        return jnp.maximum(y + r, -3) * 2

    return Case(f"one element {spec[0]} {results}", function, (x, w, r))


@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("side", "results", "dilation"), [(7, 14, 2), (7, 13, 2), (5, 15, 3), (5, 14, 3)]
)
def test_of_a_window_of_one_element_one_phase_alone_has_products(
    spec: Any, side: int, results: int, dilation: int
) -> None:
    case = one_element(spec, side=side, results=results, dilation=dilation)
    assert divisors(case.compute) == {1}
    assert case.compute.stage("contract").points == 2 * side * side * 20 * 8
    out = case.compute.stage("out")
    assert len(out.stores) == dilation**2 and out.points == 2 * side * side * 20
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    features = wanted if spec == NHWC else wanted.transpose(0, 2, 3, 1)
    met = np.zeros(features.shape, dtype=np.bool_)
    met[:, ::dilation, ::dilation, 3] = True
    np.testing.assert_array_equal(np.isfinite(features), ~met)
    (got,) = interpret(case.compute, case.values)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("results", [14, 13])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_all_schedules_of_a_window_of_one_element_are_right(spec: Any, results: int) -> None:
    check_schedules(one_element(spec, results=results), "direct")


@pytest.mark.parametrize(("dilation", "stores"), [(8, 64), (9, 9), (32, 32), (65, 1)])
def test_an_axis_whose_phases_would_be_too_many_stores_keeps_its_zeros(
    dilation: int, stores: int
) -> None:
    case = one_element(side=2, results=dilation + 1, dilation=dilation, weight=2.0)
    assert len(case.compute.stage("out").stores) == stores <= MOST_STORES
    assert divisors(case.compute) == ({1} if stores == dilation**2 else {1, dilation})
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    (got,) = interpret(case.compute, case.values)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


def test_sums_that_are_read_twice_keep_the_divisors_of_a_window_of_one_element() -> None:
    """Their phases are stored by one stage, point by point."""
    p, r = Axis("p", 12), Axis("r", 4)
    here = (Affine.axis("p"),)
    factors = (
        Load("x", (here[0], Affine.axis("r")), "f32", (2, 1)),
        Load("w", (Affine.axis("r"),), "f32"),
    )
    sums = Stage("s", (p,), (r,), (Store("s", here),), (Apply("multiply", factors, "f32"),), SUM)

    def read(name: str, index: tuple[Affine, ...]) -> Stage:
        return Stage(name, (p,), (), (Store(name, here),), (Load("s", index, "f32"),))

    shapes = {"x": (6, 4), "w": (4,), "s": (12,), "y": (12,), "z": (12,)}
    roles: dict[str, Role] = {"s": "temporary", "y": "result", "z": "result"}
    tensors = tuple(Tensor(n, k, "f32", roles.get(n, "argument")) for n, k in shapes.items())
    back = (Affine.of({"p": -1}, 11),)
    assert divisors(phases(Compute(tensors[:-1], (sums, read("y", here))))) == {1}
    assert divisors(phases(Compute(tensors, (sums, read("y", here), read("z", here))))) == {1, 2}
    assert divisors(phases(Compute(tensors[:-1], (sums, read("y", back))))) == {1, 2}
