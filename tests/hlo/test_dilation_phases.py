"""Transposed convolutions in phases: the same numbers, and no operation on an inserted zero."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import load as load_built
from hlotune.hlo.frontends.program import load
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.hlo.to_compute.dilation_phases import phases
from hlotune.hlo.to_compute.prologues import is_zero_of_zeros
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.buffers import Placement
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir import flops
from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.flops import flops_of, real_flops
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Array, Case, call, whole
from tests.support.interpreter import interpret

NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
AVX512 = TARGETS["znver4"]


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


def ragged(spec: Any = NHWC, window: int = 3) -> Case:
    """Results of 11x39: two divides neither.  Others of their shape are added to them."""
    x, w, r = whole(1, 6, 20, 4), whole(window, window, 4, 20, seed=1), whole(1, 11, 39, 20, seed=2)
    if spec == NCHW:
        x, r = (a.transpose(0, 3, 1, 2).copy() for a in (x, r))
        w = w.transpose(3, 2, 0, 1).copy()
    padding = [((window - 1) // 2, window // 2)] * 2

    def function(x: Any, w: Any, r: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), padding, lhs_dilation=(2, 2), dimension_numbers=spec
        )
        return jnp.maximum(y + r, 0)

    return Case(f"ragged {spec[0]} {window}", function, (x, w, r))


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


def check_schedules(
    case: Case, algorithm: str, target: CpuTarget | None = None, placement: Placement = "behind",
    *, drawn: int = 6,
) -> None:  # fmt: skip
    """Packed and not, clipped and not, along whichever axis the vectors go."""
    target = target or host_target()
    wanted = np.asarray(jax.jit(case.function)(*case.arguments))
    space = space_of(case.compute, target)
    configs = *space.firsts(), *space.sample(drawn, np.random.default_rng(0))
    schedules = [space.schedule(c) for c in configs]
    assert any(s.algorithm.startswith(algorithm) for s in schedules)
    for schedule in schedules:
        loaded = load_built(build(case.compute, schedule, target))
        (got,) = call(loaded, case, serial(), placement)
        np.testing.assert_array_equal(got.reshape(wanted.shape), wanted, err_msg=str(schedule))


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


def one_element(spec: Any = NHWC, *, side: int = 7, results: int = 14, dilation: int = 2) -> Case:
    """The gradient of a convolution whose window is one element; something of its shape is added,
    and weights are infinite somewhere, which what has no products does not meet.
    """
    x, w = whole(2, side, side, 8), whole(1, 1, 8, 20, seed=1)
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
    (got,) = interpret(case.compute, case.values)
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("results", [14, 13])
@pytest.mark.parametrize("spec", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_all_schedules_of_a_window_of_one_element_are_right(spec: Any, results: int) -> None:
    check_schedules(one_element(spec, results=results), "direct")


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
