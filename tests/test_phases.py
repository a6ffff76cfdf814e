"""Transposed convolutions in phases: the same numbers, and no operation on an inserted zero."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.program import load
from hlotune.hlo.to_compute import compute_of
from hlotune.schedules.compute import Compute
from hlotune.schedules.flops import flops_of
from tests.computes import Array, Case, whole
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
