"""Schedules of transposed convolutions in phases: what is infinite, and what the code asks for."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.to_compute.prologues import is_zero_of_zeros
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Axis, Compute
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from tests.support.computes import Case, whole
from tests.support.dilations import NCHW, NHWC, check_schedules, divisors, ragged
from tests.support.interpreter import interpret

AVX512 = TARGETS["znver4"]

AHEAD: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: jnp.maximum(x, 0),
    "relu6": jax.nn.relu6,
    "leaky": jax.nn.leaky_relu,
    "abs": jnp.abs,
    "silu": jax.nn.silu,
    "tanh": lambda x: jnp.tanh(x) * x,
    "convert": lambda x: x.astype(jnp.bfloat16).astype(jnp.float32),
}
"""What is computed of the image ahead; all are 0 at 0."""


def infinite(
    spec: Any = NHWC, window: int = 3, ahead: Callable[[Any], Any] = lambda x: x,
    *, channels: int = 4, back: bool = False,
) -> Case:  # fmt: skip
    """Weights that are not zero, and an image with an infinite and an undefined element.

    The window may be read backwards, as a gradient reads it.
    """
    x, w = whole(1, 6, 6, channels), 1 + abs(whole(window, window, channels, 20, seed=1))
    x[0, 1, 2, 3], x[0, 4, 4, 0] = np.inf, np.nan
    if spec == NCHW:
        x, w = x.transpose(0, 3, 1, 2).copy(), w.transpose(3, 2, 0, 1).copy()

    taps = spec[1].index("H"), spec[1].index("W")

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            ahead(x), lax.rev(w, taps) if back else w, (1, 1), [(1, 2)] * 2,
            lhs_dilation=(2, 2), dimension_numbers=spec,
        )  # fmt: skip

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


def axes_of(compute: Compute) -> tuple[tuple[Axis, ...], int]:
    core = compute.stage("contract")
    return core.reduce, core.points


@pytest.mark.parametrize("name", AHEAD)
def test_what_is_zero_at_zero_ahead_of_a_convolution_leaves_its_phases(name: str) -> None:
    case = infinite(ahead=AHEAD[name])
    assert divisors(case.compute) == {1}
    assert axes_of(case.compute) == axes_of(infinite().compute)
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    (got,) = interpret(case.compute, case.values)
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-6, atol=1e-6)


X, W = (Load(n, (Affine.axis("q"),), "f32") for n in "xw")


def applied(op: str, *args: Expr) -> Apply:
    return Apply(op, args, "f32")


def test_a_product_is_zero_of_zeros_unless_a_part_of_it_is_then_undefined() -> None:
    relu = applied("maximum", X, Const(0.0, "f32"))
    undefined = applied("divide", Const(1.0, "f32"), X)
    assert is_zero_of_zeros(applied("multiply", relu, W))
    assert is_zero_of_zeros(applied("multiply", X, applied("logistic", W)))
    assert not is_zero_of_zeros(applied("multiply", X, applied("logistic", undefined)))
    assert not is_zero_of_zeros(applied("logistic", X))
    assert not is_zero_of_zeros(applied("multiply", X, undefined))
    assert not is_zero_of_zeros(applied("multiply", X, Const(np.inf, "f32")))
    assert not is_zero_of_zeros(applied("multiply", X, applied("log", W)))
    assert not is_zero_of_zeros(applied("maximum", applied("multiply", X, undefined), X))
    assert not is_zero_of_zeros(applied("add", X, Const(1.0, "f32")))
    assert not is_zero_of_zeros(replace(X, outside=1))


def line() -> Case:
    """Few results of long sums, and an infinite element that the first one does not have."""
    x, w = whole(1, 2048, 1), 1 + abs(whole(2047, 1, 1, seed=1))
    x[0, 1200, 0] = np.inf

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1,), [(-1, 0)], lhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC")
        )

    return Case("line", function, (x, w))


@pytest.mark.parametrize(
    ("case", "algorithm"),
    [
        (infinite(NHWC), "direct"),
        (infinite(NCHW), "direct"),
        (infinite(NHWC, back=True), "direct"),
        (infinite(NCHW, back=True), "direct"),
        (infinite(ahead=AHEAD["relu"]), "direct"),
        (line(), "split_reduction"),
    ],
    ids=["NHWC", "NCHW", "NHWC back", "NCHW back", "relu", "line"],
)
def test_no_schedule_multiplies_what_is_infinite_beyond_the_window(
    case: Case, algorithm: str
) -> None:
    check_schedules(case, algorithm)


@pytest.mark.parametrize("window", [3, 4])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_all_schedules_of_odd_results_are_right(spec: Any, window: int) -> None:
    check_schedules(ragged(spec, window), "direct")


@pytest.mark.slow
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
@pytest.mark.parametrize("case", [ragged, infinite])
def test_many_schedules_of_both_are_right(case: Callable[..., Case], spec: Any) -> None:
    for window in (3, 4, 5):
        check_schedules(case(spec, window), "direct", drawn=40)


@pytest.mark.parametrize(
    ("narrow", "wide"), [("int8", "int32"), ("int8", "float32"), ("int16", "int64")]
)
def test_vectors_of_wide_results_of_narrow_sums_fit_where_nobody_reads(
    narrow: str, wide: str
) -> None:
    """Vectors have as many lanes as the sums, and what is stored is as wide as the results.

    With one slot nothing of the kernel's lies behind that place.
    """
    x, w = whole(1, 6, 20, 4, dtype=narrow), whole(3, 3, 4, 70, seed=1, dtype=narrow)

    def function(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), [(1, 1)] * 2, lhs_dilation=(2, 2), dimension_numbers=NHWC
        )
        return y.astype(wide)

    with jax.enable_x64(True):
        case = Case(f"{narrow} {wide}", function, (x, w))
        check_schedules(case, "direct", replace(host_target(), threads=1), "before")


def innermost(text: str) -> list[str]:
    """The bodies of loops that multiply, and have no loop inside."""
    blocks = re.split(r"^(\w+):$", text, flags=re.MULTILINE)
    named = zip(blocks[1::2], blocks[2::2], strict=True)
    return [b for n, b in named if f"label %{n}," in b and "fmuladd" in b]


def bodies(spec: Any, back: bool) -> list[str]:
    """The innermost loops of the first candidate, with so many channels that they have a loop."""
    compute = infinite(spec, channels=64, back=back).compute
    space = space_of(compute, AVX512)
    found = innermost(emit(replay(compute, space.schedule(space.heuristic()), AVX512)).text)
    assert found
    return found


@pytest.mark.parametrize("back", [False, True], ids=["", "back"])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_lanes_along_features_share_an_element_of_the_image(spec: Any, back: bool) -> None:
    """Though the window, which has features, decides about it."""
    assert not any("gather" in body for body in bodies(spec, back))


@pytest.mark.parametrize("back", [False, True], ids=["", "back"])
def test_what_is_real_is_decided_ahead_of_the_channels(back: bool) -> None:
    for body in bodies(NHWC, back):
        assert "select" not in body
        assert body.count("icmp") == 1  # the loop's own
