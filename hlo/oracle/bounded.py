"""Values with a bound of their rounding error, and the rounding of the element types."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle.boxes import pieces
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.targets.target import F32Operands

Float = NDArray[np.float64]
Values = NDArray[Any]
_FEW = 256
_PIECE = 1 << 16
WHOLE_ELEMENTS = 1 << 18
"""Elementwise functions of so many elements are computed in one piece."""
_LEAST_NORMAL = (1 << 24) - 1
"""The bits of the least normal f32, without the sign, doubled, less one.  The same of a zero has
all bits set, and so is not below it.
"""
UNKNOWN = np.inf
"""The bound of an element that hangs on a comparison inside its error."""
NARROW = ("bf16", "f16")
"""Types that kernels compute in f32."""
TF32_ROUNDING = 2.0**-10
"""The most that a number loses in tf32, relative to it: devices may cut off instead of rounding."""
_BELOW_TF32 = np.uint32((1 << 13) - 1)
"""The bits of an f32 that tf32 does not have."""
_FLUSHES = ContextVar("flushes", default=False)
_F32_OPERANDS = ContextVar[F32Operands]("f32 operands", default="f32")


@dataclass(frozen=True, slots=True)
class Precision:
    eps: float
    """Distance from 1 to the next value: two units of rounding."""
    underflow: float
    """What may be lost below the normal range."""
    flushed: float
    """Results nearer to zero may be flushed to it."""
    digits: int
    """Integers up to 2**digits are exact."""
    largest: float


PRECISIONS = {
    # NumPy computes in f64 too: its own error comes on top of the kernel's.
    "f64": Precision(2.0**-51, 2.0**-1022, 2.0**-1022, 53, float(np.finfo(np.float64).max)),
    "f32": Precision(2.0**-23, 2.0**-126, 2.0**-126, 24, float(np.finfo(np.float32).max)),
    "bf16": Precision(2.0**-7, 2.0**-126, 2.0**-126, 8, (2 - 2.0**-7) * 2.0**127),
    "f16": Precision(2.0**-10, 2.0**-24, 0.0, 11, 65504.0),
}


@contextmanager
def flushing() -> Iterator[None]:
    """Subnormal values are taken for zero in the block, as processors do that flush them."""
    token = _FLUSHES.set(True)
    try:
        yield
    finally:
        _FLUSHES.reset(token)


@contextmanager
def rounding(f32_operands: F32Operands) -> Iterator[None]:
    """In the block the bounds of products allow for f32 operands that are rounded so, where a
    program leaves their precision to the device.
    """
    token = _F32_OPERANDS.set(f32_operands)
    try:
        yield
    finally:
        _F32_OPERANDS.reset(token)


def _flushed(values: Values, dtype: str) -> Values:
    """The values, with zeros for subnormal ones where these are flushed."""
    if not _FLUSHES.get():
        return values
    return np.where(np.abs(values) < PRECISIONS[dtype].flushed, 0.0, values)


@dataclass(frozen=True, slots=True)
class Bounded:
    """Values of type `dtype`: f64 for every floating type, NumPy's own type for integers and i1.

    `bound` has the shape of `value`.  Of integers and i1 it is 0 (exact) or UNKNOWN.
    """

    value: Values
    bound: Float
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def is_exact(self) -> bool:
        """No element carries any error."""
        return not self.bound.size or not (
            self.bound.any() if any(self.bound.strides) else self.bound.flat[0]
        )

    def move(self, movement: Callable[[NDArray[Any]], NDArray[Any]]) -> "Bounded":
        """Applies what only moves elements to values and bounds alike."""
        return Bounded(movement(self.value), movement(self.bound), self.dtype)

    def __getitem__(self, index: Any) -> "Bounded":
        return Bounded(self.value[index], self.bound[index], self.dtype)


def no_bound(shape: Sequence[int]) -> Float:
    """Zeros that take no memory."""
    return np.broadcast_to(np.float64(0), tuple(shape))


def exact(values: Values, dtype: str) -> Bounded:
    """Values as a program was given them; floating ones of any type become f64."""
    array = np.asarray(values)
    array = (
        array.astype(np.float64)
        if is_float(dtype)
        else array.astype(numpy_dtype(dtype), copy=False)
    )
    return Bounded(array, no_bound(array.shape), dtype)


def received(values: Values, dtype: str) -> Bounded:
    """Arguments and constants: exact, but kernels may take subnormal values for zero."""
    result = exact(values, dtype)
    if not is_float(dtype) or (dtype == "f32" and not _has_subnormals(np.asarray(values))):
        return result
    size = np.abs(result.value)
    subnormal = (size > 0) & (size < PRECISIONS[dtype].flushed)
    if not subnormal.any():
        return result
    value = _flushed(result.value, dtype)
    return Bounded(value, np.where(subnormal, PRECISIONS[dtype].flushed, 0.0), dtype)


def as_multiplied(x: Bounded, leaves_precision: bool) -> Bounded:
    """An operand of a product, with what a device loses that rounds it ahead of multiplying.

    What tf32 holds is not rounded, so that sums of small integers stay exact.
    """
    if not leaves_precision or x.dtype != "f32" or _F32_OPERANDS.get() == "f32":
        return x
    single = x.value.astype(np.float32)
    held = (single == x.value) & (single.view(np.uint32) & _BELOW_TF32 == 0) & (x.bound == 0)
    lost = np.where(held, 0.0, TF32_ROUNDING * (np.abs(x.value) + x.bound))
    return Bounded(x.value, x.bound + lost, x.dtype)


def _has_subnormals(values: Values) -> bool:
    """Whether some f32 are no zeros and have an exponent of zero; in pieces that caches hold."""
    if values.dtype != np.float32:
        return True
    flat = values.reshape(-1) if values.flags.c_contiguous else np.ravel(values, "K")
    bits = flat.view(np.uint32)
    for start in range(0, bits.size, _PIECE):
        size = (bits[start : start + _PIECE] << np.uint32(1)) - np.uint32(1)
        if size.size and size.min() < _LEAST_NORMAL:
            return True
    return False


def in_pieces(of: Callable[..., Bounded], *operands: Bounded) -> Bounded:
    """What an elementwise function gives, computed of one piece of its operands after the other,
    so that what it needs on the way stays in the caches.

    Operands have one shape, or none.
    """
    shape: tuple[int, ...] = next((x.shape for x in operands if x.shape), ())
    if prod(shape) <= WHOLE_ELEMENTS or any(x.shape not in ((), shape) for x in operands):
        return of(*operands)
    value, bound, dtype = np.empty(0), no_bound(shape), ""
    for place in pieces(shape, _PIECE):
        found = of(*(x[place] if x.shape else x for x in operands))
        if not dtype:
            value, dtype = np.empty(shape, found.value.dtype), found.dtype
        value[place] = found.value
        if found.is_exact:
            continue
        if not bound.flags.writeable:
            bound = np.zeros(shape)
        bound[place] = found.bound
    return Bounded(value, bound, dtype)


def joined(
    parts: Sequence[Bounded], join: Callable[[Sequence[NDArray[Any]]], NDArray[Any]]
) -> Bounded:
    """`concatenate` or `stack`, of values and bounds alike."""
    bounds = (
        no_bound(join([p.value for p in parts]).shape)
        if all(p.is_exact for p in parts)
        else join([p.bound for p in parts])
    )
    return Bounded(join([p.value for p in parts]), bounds, parts[0].dtype)


def rounded(values: Values, dtype: str) -> Float:
    """f64 values rounded to `dtype` by way of f32, as kernels do that compute in it."""
    if dtype == "f64":
        return values
    single = np.asarray(values).astype(np.float32)
    if dtype == "f32":
        return single.astype(np.float64)
    return single.astype(numpy_dtype(dtype)).astype(np.float64)


def settle(
    value: Values,
    error: Values,
    dtype: str,
    ulps: float = 1.0,
    *,
    faithful: bool = True,
    convert: bool = False,
    residual: Values | float = 0.0,
    nearest: bool = False,
) -> Bounded:
    """The result of an operation in the floating type `dtype`.

    Args:
        error: what the operands' errors make of the result.
        ulps: accuracy of the operation, in units of eps.
        faithful: any right kernel gives the exact result where the type holds it: sums do, exp
            does not.
        convert: round the value to its type, as narrow types always do.
        residual: what f64 itself could not hold of the value, where the operation knows it.
        nearest: any right kernel rounds the result once, to the nearest number of its type: it
            overflows from half a unit beyond the largest one on, and no earlier.

    What a narrow type cannot hold and f32 can is unknown, unless the program converts it: kernels
    go on with it in f32, or with an infinity.
    """
    precision = PRECISIONS[dtype]
    held = rounded(value, dtype)
    finite = np.isfinite(held)
    own = np.where(finite, ulps * precision.eps * np.abs(value) + precision.underflow, 0.0)
    if faithful:
        is_small = (held != 0) & (np.abs(held) < precision.flushed)
        is_lost = (held != value) | (residual != 0) | is_small
        own = np.where((error > 0) | (is_lost & finite), own, 0.0)
    once = nearest and dtype not in NARROW
    most = precision.largest * (1 + precision.eps / 4 if once else 1)
    overflows = np.abs(value) + (error if once else error + own) > most
    error = np.where(np.isnan(error), UNKNOWN, error + own)
    error = np.where(finite & overflows, UNKNOWN, error)
    if dtype in NARROW and not convert:
        held_wide = np.abs(value) <= PRECISIONS["f32"].largest
        error = np.where(held_wide & ~finite, UNKNOWN, error)
    if dtype == "f32" and not convert:
        held = np.where(finite, value, held)
    return Bounded(_flushed(held, dtype), error, dtype)


def scaled(error: Float, factor: Values) -> Float:
    """`error * |factor|`, nothing where there is no error (even of an infinite factor)."""
    return np.where(error == 0, 0.0, error * np.abs(factor))


def quantum(values: Float) -> float | None:
    """A power of two that divides all values, or None where no coarse one does."""
    few = values.reshape(-1)[:_FEW]  # mostly enough to tell that there is none
    for power in (1.0, 2.0**-4, 2.0**-8):
        if all(np.array_equal(x / power, np.rint(x / power)) for x in (few, values)):
            return power
    return None
