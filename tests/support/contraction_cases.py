"""Random contractions as JAX programs, with what NumPy says they give.

The reference is written from the definitions of StableHLO's dot and convolution, in i64, and shares
nothing with the road from a program to a kernel.
"""

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from jax import lax

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.steps.schedule import Schedule
from tests.support.activations import DEFINED, IN_JAX, SMOOTH
from tests.support.computes import Array, Case, Function, whole

EXTENTS = (1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 23)
MOST_POINTS = 1 << 13
"""Multiply-adds of one contraction: larger extents are halved until they fit."""

DTYPES = {
    "f32": (np.float32, np.float32),
    "f64": (np.float64, np.float64),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    "bf16->f32": (ml_dtypes.bfloat16, np.float32),
    "f16": (np.float16, np.float16),
    "i8->i32": (np.int8, np.int32),
    "i32": (np.int32, np.int32),
}
"""Types of the operands and of the result."""

MORE_INTEGERS = {
    "i8": (np.int8, np.int8),
    "i16": (np.int16, np.int16),
    "i16->i32": (np.int16, np.int32),
    "i64": (np.int64, np.int64),
    "u8": (np.uint8, np.uint8),
    "u8->i32": (np.uint8, np.int32),
    "u8->u32": (np.uint8, np.uint32),
    "u16": (np.uint16, np.uint16),
    "u16->i64": (np.uint16, np.int64),
    "u32": (np.uint32, np.uint32),
    "u64": (np.uint64, np.uint64),
}
"""Those that programs seldom have."""
TYPES = DTYPES | MORE_INTEGERS

dtypes = st.sampled_from(("f32",) * 8 + tuple(DTYPES))
seldom_zero = st.sampled_from((1,) * 15 + (0,))
"""By what an extent is multiplied: of no terms a sum is zero."""
activations = st.sampled_from(("",) * 12 + tuple(IN_JAX))
"""Few: LLVM takes long for the code of some."""
TOLERANCE = {"float64": 1e-14, "float32": 4e-6, "float16": 1 / 256, "bfloat16": 1 / 64}
"""The relative and absolute tolerance of results behind an activation: narrow types have rough
constants.
"""
FEW = 16
"""Results that may all be infinite on the way in f16, and then the oracle cannot compare them."""


class Drawn:
    """A contraction, and the result that NumPy gives.  Hypothesis shows its name alone."""

    def __init__(self, case: Case, expected: Array, tolerance: float = 0.0) -> None:
        self.case, self.expected = case, expected
        self.tolerance = tolerance
        """0 where results are the very integers."""

    def __repr__(self) -> str:
        return repr(self.case)

    def check(self, got: Array, schedule: Schedule) -> None:
        """Holds what a schedule gives against what belongs there."""
        text, most = schedule.to_json(), self.tolerance
        if most:
            got = got.astype(np.float64)
            np.testing.assert_allclose(got, self.expected, rtol=most, atol=most, err_msg=text)
        else:
            np.testing.assert_array_equal(got, self.expected, err_msg=text)


@st.composite
def epilogues(draw: st.DrawFn, kind: str) -> list[str]:
    """What stands behind a contraction of a kind, in order; activations behind floats alone."""
    plain = st.lists(st.sampled_from(("bias", "relu", "residual")), max_size=3, unique=True)
    steps = draw(plain)
    activation = draw(activations) if is_float(kind.rpartition(">")[2]) else ""
    place = draw(st.integers(0, len(steps))) if activation else 0
    return [*steps[:place], *([activation] if activation else []), *steps[place:]]


@st.composite
def contractions(draw: st.DrawFn, kinds: st.SearchStrategy[str] = dtypes) -> Drawn:
    return draw(st.one_of(dots(kinds), convolutions(kinds), convolutions(kinds)))


@st.composite
def dots(draw: st.DrawFn, kinds: st.SearchStrategy[str] = dtypes) -> Drawn:
    """Any dimension numbers: 0 to 3 batch axes, 1 to 4 reduced ones, operands in any order."""
    batch, reduce = "abc"[: draw(st.integers(0, 3))], "klop"[: draw(st.integers(1, 4))]
    rows, columns = "mns"[: draw(st.integers(0, 3))], "tuv"[: draw(st.integers(0, 3))]
    letters = batch + rows + columns + reduce
    extents = draw(st.lists(st.sampled_from(EXTENTS), min_size=len(letters), max_size=len(letters)))
    sizes = dict(zip(letters, shrunk(extents), strict=True))
    sizes[reduce[0]] *= draw(seldom_zero)
    lhs = "".join(draw(st.permutations(batch + rows + reduce)))
    rhs = "".join(draw(st.permutations(batch + columns + reduce)))
    kind = draw(kinds)
    epilogue = draw(epilogues(kind))
    narrow, wide = TYPES[kind]

    def places(spec: str, axes: str) -> tuple[int, ...]:
        return tuple(spec.index(c) for c in axes)

    numbers = (
        (places(lhs, reduce), places(rhs, reduce)), (places(lhs, batch), places(rhs, batch)),
    )  # fmt: skip
    free = "".join(c for c in lhs if c in rows), "".join(c for c in rhs if c in columns)
    output = batch + "".join(free)
    x, w = (filled(kind, seed, *(sizes[c] for c in s)) for seed, s in enumerate((lhs, rhs)))
    expected = np.einsum(f"{lhs},{rhs}->{output}", exact(x), exact(w)).astype(wide)

    def function(x: Any, w: Any) -> Any:
        return lax.dot_general(x, w, numbers, preferred_element_type=wide)

    name = f"{lhs},{rhs}->{output} {sizes} {kind}"
    return finished(draw, name, function, x.astype(narrow), w.astype(narrow), expected, epilogue)


@st.composite
def convolutions(draw: st.DrawFn, kinds: st.SearchStrategy[str] = dtypes) -> Drawn:
    """Windows with stride, padding, dilation of both sides, groups, any dimension numbers."""
    spatial = "XYZ"[: draw(st.integers(1, 3))]
    groups, batch_groups = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2))))
    per_group = draw(st.integers(1, 7)) * draw(seldom_zero)
    features = draw(st.sampled_from((1, 2, 3, 8, 17)))
    sizes = {
        "N": draw(st.integers(1, 2)) * batch_groups, "C": per_group * groups,
        "I": per_group, "O": features * groups * batch_groups,
    }  # fmt: skip
    most = {1: 23, 2: 11, 3: 5}[len(spatial)]
    image = sizes | {c: draw(st.integers(4, most)) for c in spatial}
    window = sizes | {c: draw(st.integers(1, 3)) for c in spatial}
    specs = ["".join(draw(st.permutations(letters + spatial))) for letters in ("NC", "OI", "NC")]
    number = st.integers(1, 2)
    options: dict[str, Any] = {
        "window_strides": tuple(draw(number) for _ in spatial),
        "padding": [(draw(st.integers(-1, 2)), draw(st.integers(0, 2))) for _ in spatial],
        "lhs_dilation": tuple(draw(st.sampled_from((1, 1, 1, 2))) for _ in spatial),
        "rhs_dilation": tuple(draw(st.sampled_from((1, 1, 2))) for _ in spatial),
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
    }
    kind = draw(kinds)
    epilogue = draw(epilogues(kind))
    narrow, wide = TYPES[kind]
    x = filled(kind, 0, *(image[c] for c in specs[0]))
    w = filled(kind, 1, *(window[c] for c in specs[1]))
    # jax takes options in the order of the window
    in_order = "".join(c for c in specs[1] if c in spatial)
    expected = convolved(x, w, specs, in_order, options).astype(wide)
    assume(expected.size)
    lhs, rhs, out = specs

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, **options, dimension_numbers=(lhs, rhs, out), preferred_element_type=wide
        )

    name = f"conv {specs} {x.shape} {w.shape} {options} {kind}"
    return finished(draw, name, function, x.astype(narrow), w.astype(narrow), expected, epilogue)


def finished(
    draw: st.DrawFn,
    name: str,
    function: Any,
    x: Array,
    w: Array,
    expected: Array,
    epilogue: list[str],
) -> Drawn:
    """With an epilogue, in one of the forms; operands may lie backwards along any dimensions."""
    back = [draw(backwards(operand.ndim)) for operand in (x, w)]
    x, w = (np.flip(operand, tuple(along)) for operand, along in zip((x, w), back, strict=True))
    axis = draw(st.integers(0, max(0, expected.ndim - 1)))
    shape = [n if d == axis else 1 for d, n in enumerate(expected.shape)]
    bias = whole(*shape, seed=3, dtype=np.int64).astype(expected.dtype)
    residual = whole(*expected.shape, seed=4, dtype=np.int64).astype(expected.dtype)
    form = draw(st.sampled_from(("plain", "plain", "swapped", "frozen")))
    used = (bias,) * ("bias" in epilogue) + (residual,) * ("residual" in epilogue)

    def with_epilogue(x: Any, w: Any, *rest: Any) -> Any:
        values = iter(rest)
        b = next(values) if "bias" in epilogue else None
        r = next(values) if "residual" in epilogue else None
        x, w = (jnp.flip(v, a) if a else v for v, a in zip((x, w), back, strict=True))
        return applied(jnp, IN_JAX, epilogue, function(x, w), b, r)

    case = in_form(form, f"{name} {form} {epilogue} back {back}", with_epilogue, (x, w, *used))
    return Drawn(case, *defined(epilogue, expected, bias, residual))


def applied(
    numbers: Any, functions: Mapping[str, Function], epilogue: list[str],
    y: Any, bias: Any, residual: Any,
) -> Any:  # fmt: skip
    for step in epilogue:
        if step in functions:
            y = functions[step](y)
        elif step == "relu":
            y = numbers.maximum(y, numbers.zeros((), y.dtype))
        else:
            y = y + (bias if step == "bias" else residual)
    return y


def defined(epilogue: list[str], y: Array, bias: Array, residual: Array) -> tuple[Array, float]:
    """What NumPy says of an epilogue, and how far a kernel may be off."""
    tolerance = 0.0
    if SMOOTH & set(epilogue):
        assume(y.size > FEW or y.dtype != np.float16)
        tolerance = TOLERANCE[y.dtype.name]
        y, bias, residual = (v.astype(np.float64) for v in (y, bias, residual))
    with np.errstate(over="ignore"):  # numpy warns where single integers wrap
        return applied(np, DEFINED, epilogue, y, bias, residual), tolerance


def in_form(form: str, name: str, function: Any, arguments: tuple[Array, ...]) -> Case:
    """With the operands in either order, or the weights as a constant."""
    x, w, *others = arguments
    if form == "frozen":
        constant = jax.device_get(w)
        return Case(name, lambda x, *rest: function(x, jnp.asarray(constant), *rest), (x, *others))
    if form == "swapped":
        return Case(name, lambda w, x, *rest: function(x, w, *rest), (w, x, *others))
    return Case(name, function, arguments)


def backwards(rank: int) -> st.SearchStrategy[list[int]]:
    """Dimensions along which an operand is turned round; none most of the time."""
    some = st.lists(st.integers(0, max(0, rank - 1)), max_size=rank, unique=True)
    return st.one_of(st.just([]), st.just([]), some) if rank else st.just([])


def filled(kind: str, seed: int, *shape: int) -> Array:
    """Integers so small that all sums are exact in the type, or wrap: unsigned, half are large."""
    small = whole(*shape, seed=seed, dtype=np.int64, largest=1 if kind in ("bf16", "f16") else 4)
    return exact(small.astype(TYPES[kind][0]))


def exact(x: Array) -> Array:
    return x.astype(np.int64)


def shrunk(extents: list[int]) -> list[int]:
    """Halves the largest extents until all points together are few."""
    extents = list(extents)
    while prod(extents) > MOST_POINTS:
        k = extents.index(max(extents))
        extents[k] = (extents[k] + 1) // 2
    return extents


def convolved(x: Array, w: Array, specs: list[str], spatial: str, options: dict[str, Any]) -> Array:
    """The sum over taps and channels, as StableHLO defines it."""
    x = np.moveaxis(exact(x), [specs[0].index(c) for c in "NC" + spatial], range(len(specs[0])))
    w = np.moveaxis(exact(w), [specs[1].index(c) for c in "OI" + spatial], range(len(specs[1])))
    groups, batch_groups = options["feature_group_count"], options["batch_group_count"]
    x = padded(x, options["lhs_dilation"], options["padding"])
    taps, strides, dilation = w.shape[2:], options["window_strides"], options["rhs_dilation"]
    reach = [(n - 1) * d + 1 for n, d in zip(taps, dilation, strict=True)]
    sizes = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    images, per_group = x.shape[0] // batch_groups, w.shape[1]
    y = np.zeros((images, w.shape[0], *sizes), np.int64)
    for feature in range(w.shape[0]):
        group = feature * groups // w.shape[0]
        batch = feature * batch_groups // w.shape[0]
        part = x[batch * images : (batch + 1) * images, group * per_group : (group + 1) * per_group]
        for tap in product(*map(range, taps)):
            places = tuple(
                slice(t * d, t * d + s * (n - 1) + 1, s) if n else slice(0, 0)
                for t, d, s, n in zip(tap, dilation, strides, sizes, strict=True)
            )
            window = np.moveaxis(w[feature], 0, -1)[tap]
            y[:, feature] += np.einsum("nc...,c->n...", part[(..., *places)], window)
    return np.moveaxis(y, range(y.ndim), [specs[2].index(c) for c in "NC" + spatial])


def padded(x: Array, dilation: tuple[int, ...], padding: list[tuple[int, int]]) -> Array:
    """Zeros between the elements and around them; negative padding cuts off."""
    for k, (gap, (low, high)) in enumerate(zip(dilation, padding, strict=True), start=2):
        wide = list(x.shape)
        wide[k] = (x.shape[k] - 1) * gap + 1
        spread = np.zeros(wide, x.dtype)
        spread[(slice(None),) * k + (slice(None, None, gap),)] = x
        around = [(0, 0)] * x.ndim
        around[k] = (max(low, 0), max(high, 0))
        spread = np.pad(spread, around)
        cut = slice(max(-low, 0), spread.shape[k] - max(-high, 0))
        x = spread[(slice(None),) * k + (cut,)]
    return x
