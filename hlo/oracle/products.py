"""Sums of products by f64 matrix products, their bound by another.

A sum of K products whose factors carry errors ea and eb is off by at most
`sum(ea |b| + |a| eb + ea eb) + eps sqrt(K) sum |a b|`, which is
`(ea + eps sqrt(K) |a|) @ |b| + (|a| + ea) @ eb`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.graph import numpy_dtype
from hlotune.hlo.oracle.bounded import (
    PRECISIONS,
    UNKNOWN,
    Bounded,
    Float,
    Values,
    in_pieces,
    no_bound,
    quantum,
    settle,
)
from hlotune.schedules.dtypes import accumulator, is_float

_MOST_IN_F32 = 1e37
_ROUNDING_UP = 1.0 + 2.0**-12


@dataclass(frozen=True, slots=True)
class Factor:
    """Factors of products, and what the bound of the sums needs of them: found once for many."""

    value: Values
    magnitude: Values
    """Infinities count nothing: what they make of a sum is certain."""
    bound: Float | None
    """None where all are exact."""
    grid: float | None
    """A power of two that divides all values, and those of any part; None where they have none."""

    def move(self, movement: Callable[[NDArray[Any]], NDArray[Any]]) -> "Factor":
        """Applies what only moves or takes elements."""
        bound = None if self.bound is None else movement(self.bound)
        return Factor(movement(self.value), movement(self.magnitude), bound, self.grid)

    def __getitem__(self, index: Any) -> "Factor":
        return self.move(lambda x: x[index])


def factor(x: Bounded, floating: bool) -> Factor:
    """A factor for sums that are `floating` or not.  One value that is not exact makes all of them
    so.
    """
    known = x.is_exact
    bound = None if known else x.bound
    if not floating:
        return Factor(x.value, no_bound(x.shape), bound, None)
    value = x.value.astype(np.float64, copy=False)  # integers would wrap in their own type
    magnitude = np.abs(value)
    if not np.isfinite(magnitude).all():
        magnitude = np.nan_to_num(magnitude, nan=0.0, posinf=0.0)
    return Factor(value, magnitude, bound, quantum(value) if known else None)


class Products:
    """A sum of products `(batch, rows, terms) @ (batch, terms, columns)`, gathered in pieces."""

    def __init__(self, shape: tuple[int, ...], terms: int, dtype: str) -> None:
        """`terms` is how many products the whole of each sum has."""
        self.dtype, self.floating = dtype, is_float(dtype)
        self.value: NDArray[Any] = np.zeros(shape, np.float64 if self.floating else np.int64)
        self.bound = np.zeros(shape)
        eps = PRECISIONS[accumulator(dtype)].eps if self.floating else 0.0
        self.growth = eps * sqrt(max(terms, 1))
        self.grid: float | None = 1.0
        """A power of two of which all products so far are multiples, while there is one."""

    def add(self, a: Factor, b: Factor, place: tuple[slice, ...] = ()) -> None:
        """Adds a product to the rows named by `place`."""
        shape = self.value[place].shape
        self.value[place] += self._product(a.value, b.value).reshape(shape)
        if not self.floating:
            known = a.bound is None and b.bound is None
            self.bound[place] += 0.0 if known else UNKNOWN
            return
        weight = self.growth * a.magnitude
        spread = _most(weight if a.bound is None else weight + a.bound, b.magnitude, self.dtype)
        if b.bound is not None:
            most = a.magnitude if a.bound is None else a.magnitude + a.bound
            spread = spread + _most(most, b.bound, self.dtype)
        self.bound[place] += spread.reshape(shape)
        if self.grid is not None and a.grid is not None and b.grid is not None:
            self.grid = min(self.grid, a.grid * b.grid)
        else:
            self.grid = None

    def _product(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        if self.floating:
            return _matmul(a, b)
        reach = float(np.abs(a.astype(np.float64)).max(initial=0)) * float(
            np.abs(b.astype(np.float64)).max(initial=0)
        )
        if reach * a.shape[-1] < 2**53:
            return _matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
        return _matmul(a.astype(np.int64), b.astype(np.int64))

    def finish(self) -> Bounded:
        """The sums, in the type of the result."""
        if not self.floating:
            value = self.value if self.dtype != "i1" else self.value != 0
            return Bounded(value.astype(numpy_dtype(self.dtype)), self.bound, self.dtype)
        return in_pieces(self._settled, Bounded(self.value, self.bound, self.dtype))

    def _settled(self, sums: Bounded) -> Bounded:
        # NaN is what an unknown factor makes beside a zero.
        bound = np.where(np.isnan(sums.bound), UNKNOWN, sums.bound)
        if self.grid is not None:
            digits = PRECISIONS[accumulator(self.dtype)].digits
            bound = np.where(bound <= self.growth * self.grid * 2.0**digits, 0.0, bound)
        return settle(sums.value, bound, self.dtype)


def _matmul(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    product: NDArray[Any] = np.multiply(a, b) if a.shape[-1] == 1 else np.matmul(a, b)
    return product


def _most(a: NDArray[Any], b: NDArray[Any], dtype: str) -> NDArray[Any]:
    """At least the product of two matrices without negative elements, and hardly more.

    A bound of results in f32 needs no more digits than f32 has, where its range is enough.
    """
    if dtype == "f64" or _largest(a) * _largest(b) * max(1, a.shape[-1]) > _MOST_IN_F32:
        return _matmul(a, b)
    product = _matmul(a.astype(np.float32), b.astype(np.float32))
    return product.astype(np.float64) * _ROUNDING_UP


def _largest(x: NDArray[Any]) -> float:
    return float(x.max(initial=0.0))
