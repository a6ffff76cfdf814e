"""Winograd's transforms, and the compute that they make of a convolution."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import chain

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.rewriting import window, winograd
from hlotune.schedules.algorithms.winograd.transforms import (
    PAIRS,
    RULES,
    TAPS,
    Matrix,
    input_matrix,
    inputs,
    output_matrix,
    separably,
    tap_matrix,
)
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.expr import Apply, Const, Expr, Load
from hlotune.schedules.steps.schedule import Schedule
from tests.support.computes import NHWC, Array, Case, conv, depthwise, gemm
from tests.support.interpreter import interpret
from tests.support.winograd_cases import LAYOUTS, windowed

OUTPUTS = sorted(PAIRS)
MATRICES = {"inputs": input_matrix, "taps": tap_matrix, "outputs": output_matrix}


def product(matrix: Matrix, vector: Sequence[Fraction]) -> list[Fraction]:
    return [sum((a * b for a, b in zip(row, vector, strict=True)), Fraction(0)) for row in matrix]


def numbers(count: int, seed: int) -> list[Fraction]:
    rng = np.random.default_rng([seed, count])
    return [Fraction(int(x), 7) for x in rng.integers(-20, 21, count)]


def exactly(expr: Expr, values: dict[str, Fraction]) -> Fraction:
    """The value of sums and multiples of loads."""
    if isinstance(expr, Const):
        return Fraction(expr.value)
    if isinstance(expr, Load):
        return values[expr.tensor]
    assert isinstance(expr, Apply)
    a, b = (exactly(x, values) for x in expr.args)
    return {"add": a + b, "subtract": a - b, "multiply": a * b}[expr.op]


@pytest.mark.parametrize("m", OUTPUTS)
def test_the_transforms_together_are_the_convolution(m: int) -> None:
    d, g = numbers(inputs(m), 0), numbers(TAPS, 1)
    pairs = zip(product(tap_matrix(m), g), product(input_matrix(m), d), strict=True)
    wanted = [sum(d[i + k] * g[k] for k in range(TAPS)) for i in range(m)]
    assert product(output_matrix(m), [a * b for a, b in pairs]) == wanted


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("rule", ("inputs", "outputs"))
def test_the_shared_sums_are_the_matrix(rule: str, m: int) -> None:
    matrix = MATRICES[rule](m)
    names = [f"x{k}" for k in range(len(matrix[0]))]
    values = dict(zip(names, numbers(len(names), 2), strict=True))
    found = RULES[rule](m, [Load(x, (), "f64") for x in names])
    assert [exactly(e, values) for e in found] == product(matrix, list(values.values()))


@pytest.mark.parametrize("m", OUTPUTS)
def test_the_points_are_exact_in_binary(m: int) -> None:
    coefficients = [x for rows in (input_matrix(m), output_matrix(m)) for row in rows for x in row]
    assert all(Fraction(float(np.float32(float(x)))) == x for x in coefficients)


def test_a_transform_along_two_axes_is_one_after_the_other() -> None:
    names = [[f"x{i}{k}" for k in range(4)] for i in range(4)]
    values = dict(zip(chain(*names), numbers(16, 3), strict=True))
    cube = [Load(x, (), "f64") for row in names for x in row]
    found = [exactly(e, values) for e in separably("inputs", 2, cube, 2)]
    columns = [product(input_matrix(2), [values[names[i][k]] for i in range(4)]) for k in range(4)]
    rows = [product(input_matrix(2), [columns[k][i] for k in range(4)]) for i in range(4)]
    assert found == [*chain(*rows)]


def test_what_two_points_share_is_computed_once() -> None:
    """Twelve multiply-adds a line of six inputs, where the matrix has 22 entries."""
    stage = winograd(4)(conv(8, 8, 4, 4).compute).stage("tiles")
    lines = 6 + 6
    assert stage.flops // stage.points == lines * 2 * 12


# rewriting ----------------------------------------------------------------------------------------


def values_of(case: Case) -> list[Array]:
    return [np.asarray(v) for v in case.values]


@pytest.mark.parametrize("m", OUTPUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rewritten_compute_gives_what_the_definition_gives(layout: str, m: int) -> None:
    case = windowed(layout=layout, images=2, size=(5, 7), features=4, residual=True)
    (wanted,) = interpret(case.compute, values_of(case))
    (found,) = interpret(winograd(m)(case.compute), values_of(case))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("pads", (((0, 0), (0, 0)), ((1, 1), (0, 0)), ((0, 0), (1, 2))))
@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_windows_that_do_not_leave_the_image_are_taken_too(
    layout: str, pads: tuple[tuple[int, int], ...]
) -> None:
    """Their taps and channels may be one axis of the compute."""
    case = windowed(layout=layout, images=2, size=(6, 9), features=4, pads=pads)
    found = window(case.compute)
    assert found is not None and len(found.pairs) == 2
    (wanted,) = interpret(case.compute, values_of(case))
    for m in OUTPUTS:
        (result,) = interpret(winograd(m)(case.compute), values_of(case))
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("window_size", ((3,), (1, 3), (3, 1)))
def test_one_axis_without_padding_is_taken_too(window_size: tuple[int, ...]) -> None:
    axes = len(window_size)
    case = windowed(size=(7, 8)[:axes], window=window_size, pads=((0, 0),) * axes, features=4)
    (wanted,) = interpret(case.compute, values_of(case))
    (result,) = interpret(winograd(4)(case.compute), values_of(case))
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("window_size", "size", "taken"),
    (
        ((3, 3, 3), (4, 5, 6), [5, 6]),
        ((3, 3, 3), (6, 5, 4), [6, 5]),
        ((3, 3, 3), (5, 5, 5), [5, 5]),
        ((2, 3, 3), (4, 6, 5), [6, 5]),
        ((3, 5), (6, 7), [6]),
    ),
)
def test_taps_of_other_axes_are_like_channels(
    layout: str, window_size: tuple[int, ...], size: tuple[int, ...], taken: list[int]
) -> None:
    """Where three axes would do, the two with the most positions are taken."""
    pads = tuple(((n - 1) // 2, (n - 1) // 2) for n in window_size)
    case = windowed(size=size, window=window_size, pads=pads, layout=layout, channels=2, features=3)
    found = window(case.compute)
    assert found is not None and [p.extent for p, _ in found.pairs] == taken
    (wanted,) = interpret(case.compute, values_of(case))
    (result,) = interpret(winograd(2)(case.compute), values_of(case))
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@pytest.mark.parametrize("size", ((8, 9), (7, 12), (5, 8, 7)))
@pytest.mark.parametrize("dilation", (2, 3))
def test_positions_between_those_that_share_taps_have_tiles_of_their_own(
    layout: str, size: tuple[int, ...], dilation: int
) -> None:
    pads = ((dilation, dilation - 1),) * len(size)
    case = windowed(
        size=size, window=(3,) * len(size), pads=pads, layout=layout, channels=2, features=3,
        dilation=dilation,
    )  # fmt: skip
    found = window(case.compute)
    assert found is not None and found.steps == (dilation, dilation)
    (wanted,) = interpret(case.compute, values_of(case))
    for m in OUTPUTS:
        (result,) = interpret(winograd(m)(case.compute), values_of(case))
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "case",
    (
        gemm(16, 16, 16),
        conv(9, 9, 4, 8, stride=2),
        conv(9, 9, 4, 8, stride=2, pad=0),
        conv(9, 9, 4, 8, stride=3, pad=0),
        conv(9, 9, 3, 8, window=5, pad=0),
        conv(9, 9, 4, 8, window=5),
        conv(9, 9, 4, 8, window=1, pad=0),
        conv(9, 9, 8, 8, groups=2),
        depthwise(9, 9, 8),
        Case(
            "dilated otherwise than strided",
            lambda x, w: lax.conv_general_dilated(
                x, w, (2, 2), "SAME", rhs_dilation=(3, 3), dimension_numbers=NHWC
            ),
            (np.ones((1, 9, 9, 4), np.float32), np.ones((3, 3, 4, 8), np.float32)),
        ),
        Case(
            "integers",
            lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=NHWC
            ),
            (np.ones((1, 9, 9, 4), np.int32), np.ones((3, 3, 4, 8), np.int32)),
        ),
        Case(
            "bfloat16",
            lambda x, w: lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=NHWC
            ),
            (np.ones((1, 9, 9, 4), jnp.bfloat16), np.ones((3, 3, 4, 8), jnp.bfloat16)),
        ),
    ),
    ids=repr,
)  # fmt: skip
def test_other_kernels_are_left_alone(case: Case) -> None:
    assert window(case.compute) is None
    assert winograd_spaces(case.compute, TARGETS["znver4"]) == ()
    with pytest.raises(ScheduleError, match=r"^winograd\(4\): expected a convolution of 3 taps"):
        replay(case.compute, Schedule("winograd(4)"), TARGETS["znver4"])
