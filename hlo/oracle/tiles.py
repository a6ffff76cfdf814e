"""How far Winograd's convolution may be off: the bound of its rounding error, to first order.

F(m, 3) gives `A' (sum over channels of (G g G') * (B' d B)) A` of taps g and a tile d.  Each
rounding on the way is of a sum of at most the same terms taken absolutely, and passes through what
follows linearly: `|A'| (sum |G g G'| * (|B'| |d| |B|)) |A|` is what a unit of rounding is worth,
and independent roundings grow with the root of their number, as the oracle has it for all sums.
Cancellation between the points is what makes this larger than the sum of |g d|.  Taps that are
transformed in the type of the results round on their own: by units of `|G| |g| |G'|`, which may be
far above what is left of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.oracle.bounded import PRECISIONS
from hlotune.hlo.oracle.convolution import Convolution
from hlotune.schedules.algorithms.winograd.transforms import (
    TAPS,
    Matrix,
    WindowAxis,
    input_matrix,
    inputs,
    output_matrix,
    tap_matrix,
    transformed,
)

Array = NDArray[np.floating[Any]]
Place = tuple[slice, ...]
"""Taps of each axis of a window."""


@dataclass(frozen=True, slots=True)
class Line:
    """Positions along a spatial axis: `first + step * q` for each q from `low` to before `high`."""

    first: int
    step: int
    low: int
    high: int
    tiled: bool
    """Whether tiles of these q are computed."""

    def within(self, start: int) -> slice:
        """Where they stand in a box that begins at `start` and ends with the last of them."""
        return slice(self.first + self.step * self.low - start, None, self.step)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a unit of rounding is worth behind the taps of some features of a convolution."""

    features: tuple[int, int]
    parts: tuple[Array, ...]
    """For each part of the window that is summed, (points..., channels, feature)."""

    def of(self, features: tuple[int, int]) -> Sequence[Array]:
        """Those of fewer features."""
        low, high = (f - self.features[0] for f in features)
        return [part[..., low:high] for part in self.parts]


def worth_of(c: Convolution, m: int) -> Worth | None:
    """None where F(m, 3) can take no axis of a convolution."""
    axes = steps_of(c)
    is_empty = not c.channels or 0 in c.request.shape
    if not any(axes) or is_empty or c.request.result.dtype not in ("f32", "f64"):
        return None
    # A bound of f32 results needs no more digits, and many weights take their time.
    weights = c.weights().value.astype(c.request.result.dtype.replace("f", "float"))
    taps = weights.reshape(*c.window, *weights.shape[-2:])
    places, tiled = _places(c, axes), [d for d, steps in enumerate(axes) if steps]
    roundings = c.channels * len(places) + 2 * len(tiled) * inputs(m)
    return Worth(c.features, tuple(_worth(taps[at], tiled, m, roundings) for at in places))


def amplified(c: Convolution, m: int, known: Worth) -> Array:
    """Bound by (group, batch, spatial..., feature) of F(m, 3) along the axes that it takes."""
    axes, worth = steps_of(c), known.of(c.features)
    places = _places(c, axes)
    extents = [high - low for low, high in (c.batch, *c.spatial)]
    bound: Array = np.zeros((*extents, worth[0].shape[-1]), dtype=worth[0].dtype)
    for lines in product(*(_lines(*box, n) for box, n in zip(c.spatial, axes, strict=True))):
        found = sum(_sums(c, lines, m, at, w) for at, w in zip(places, worth, strict=True))
        where = (x.within(low) for x, (low, _) in zip(lines, c.spatial, strict=True))
        bound[(slice(None), *where)] = PRECISIONS[c.request.result.dtype].eps * found
    return bound[None]


def _lines(low: int, high: int, steps: int) -> list[Line]:
    """The positions of a box; of a dilated axis those of each phase, which have their own tiles."""
    if not steps:
        return [Line(0, 1, low, high, tiled=False)]
    phases = [(s, ceil((low - s) / steps), ceil((high - s) / steps)) for s in range(steps)]
    return [Line(s, steps, first, last, tiled=True) for s, first, last in phases if first < last]


def _worth(taps: Array, axes: Sequence[int], m: int, roundings: int) -> Array:
    """What the roundings of the sums with transformed taps are worth, and those of the taps
    themselves.
    """
    rows = _rows(tap_matrix, m).astype(taps.dtype)
    plain, apart = taps, np.abs(taps)
    for d in axes:
        plain, apart = _along(plain, d, rows), _along(apart, d, np.abs(rows))
    worth: Array = np.abs(plain, out=plain)
    worth *= sqrt(roundings)
    worth += np.multiply(apart, sqrt(len(axes)), out=apart)
    return worth


def _sums(c: Convolution, lines: Sequence[Line], m: int, place: Place, taps: Array) -> Array:
    """`|A'| (sum taps * (|B'| |d| |B|)) |A|` at the lines, by (batch, spatial..., feature).

    `place` is where in the window: three taps of each axis of tiles, one of each other.
    """
    axes = [d for d, x in enumerate(lines) if x.tiled]
    image, input_rows = np.abs(_image(c, lines, m, place)), np.abs(_rows(input_matrix, m))
    for k, d in enumerate(axes):  # each moves its points in front of the other axes
        image = _tiles(image, d + 1 + k, m, input_rows)
    sums = _products(image.astype(taps.dtype), taps, len(axes))
    output_rows = np.abs(_rows(output_matrix, m))
    for k, d in enumerate(axes):
        sums = _outputs(sums, len(axes) - k + d, output_rows)
    starts = [x.low % m if x.tiled else 0 for x in lines]
    cut = (slice(n, n + x.high - x.low) for n, x in zip(starts, lines, strict=True))
    return sums[(slice(None), *cut)]


def steps_of(c: Convolution) -> tuple[int, ...]:
    """For each spatial axis the step between positions of a tile; 0 for an axis without tiles."""
    if c.feature_groups * c.batch_groups > 1:
        return (0,) * len(c.window)
    window = _window(c)
    taken = transformed([a.by_steps for a in window])
    return tuple(a.by_steps.steps if d in taken else 0 for d, a in enumerate(window))


def _places(c: Convolution, axes: Sequence[int]) -> list[Place]:
    """The parts of the window that are summed."""
    counts = [a.phases if steps else a.taps for a, steps in zip(_window(c), axes, strict=True)]
    return [*product(*([slice(k, None, n) for k in range(n)] for n in counts))]


def _window(c: Convolution) -> list[WindowAxis]:
    strides, spread = c.request.ints("window_strides"), c.request.ints("rhs_dilation")
    holes, shape = c.request.ints("lhs_dilation"), c.request.result.shape
    positions = [shape[d] for d in c.outputs[1:-1]]
    facts = zip(c.window, positions, strides, spread, holes, strict=True)
    return [WindowAxis(*fact) for fact in facts]


def _image(c: Convolution, lines: Sequence[Line], m: int, at: Place) -> Array:
    """(batch, spatial..., channels): all inputs of the lines' tiles, zeros beyond the image."""
    strides, padding = c.request.ints("window_strides"), c.request.pairs("padding")
    spread = c.request.ints("rhs_dilation")
    shape = c.request.type(0).shape
    box: list[tuple[int, int]] = [(0, n) for n in shape]
    box[c.inputs[0]] = c.batch
    places = []
    for d, x in enumerate(lines):
        first = x.low // m * m if x.tiled else x.low
        last = ceil(x.high / m) * m + TAPS - 1 if x.tiled else x.high
        position = x.first + x.step * np.arange(first, last)
        place = position * strides[d] - padding[d][0] + at[d].start * spread[d]
        inside = place[(place >= 0) & (place < shape[c.inputs[d + 1]])]
        box[c.inputs[d + 1]] = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
        places.append(place)
    image = c.request.operand(0, tuple(box)).value.astype(np.float64).transpose(c.inputs)
    for d, place in enumerate(places):
        low, high = box[c.inputs[d + 1]]
        real = (place >= low) & (place < high)
        wide = np.zeros((*image.shape[: d + 1], len(place), *image.shape[d + 2 :]))
        wide[(slice(None),) * (d + 1) + (real,)] = np.take(image, place[real] - low, axis=d + 1)
        image = wide
    return image


def _tiles(x: Array, axis: int, m: int, rows: Array) -> Array:
    """An axis of positions becomes one of tiles; what they are at the points comes foremost."""
    count = (x.shape[axis] - (TAPS - 1)) // m
    places = np.arange(count)[:, None] * m + np.arange(inputs(m))
    cut = _along(np.take(x, places, axis=axis), axis + 1, rows)
    return np.moveaxis(cut, axis + 1, 0)


def _products(image: Array, taps: Array, axes: int) -> Array:
    """Sums over the channels at each point: (points..., batch, spatial..., feature)."""
    points, rest = image.shape[:axes], image.shape[axes:-1]
    # the points of the last axis that was taken apart stand foremost
    image = image.transpose(*reversed(range(axes)), *range(axes, image.ndim))
    rows = image.reshape(-1, int(np.prod(rest)), image.shape[-1])
    found: Array = rows @ taps.reshape(len(rows), *taps.shape[-2:])
    return found.reshape(*reversed(points), *rest, taps.shape[-1])


def _outputs(x: Array, axis: int, rows: Array) -> Array:
    """The foremost points become outputs along an axis of tiles, numbered without them."""
    by_tile = np.moveaxis(np.tensordot(rows, x, (1, 0)), 0, axis + 1)
    shape = by_tile.shape
    return by_tile.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def _along(x: Array, axis: int, rows: Array) -> Array:
    """A matrix applied along an axis, where the elements lie."""
    ahead, behind = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
    found: Array = np.matmul(rows, x.reshape(ahead, x.shape[axis], behind))
    return found.reshape(*x.shape[:axis], len(rows), *x.shape[axis + 1 :])


@cache
def _rows(matrix: Callable[[int], Matrix], m: int) -> Array:
    return np.array([[float(v) for v in row] for row in matrix(m)])
