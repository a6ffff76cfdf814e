"""Boxes of tensors, and the arithmetic of strided, dilated, padded windows on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

Box = tuple[tuple[int, int], ...]
"""Half-open range of every dimension."""


def whole(shape: Sequence[int]) -> Box:
    return tuple((0, extent) for extent in shape)


def extents(box: Box) -> tuple[int, ...]:
    return tuple(high - low for low, high in box)


def elements(box: Box) -> int:
    return prod(extents(box))


def slices(box: Box, inside: Box | None = None) -> tuple[slice, ...]:
    """Slices that cut `box` out of an array that covers the box `inside`, or the whole tensor."""
    origins = [low for low, _ in inside] if inside is not None else [0] * len(box)
    return tuple(slice(low - o, high - o) for (low, high), o in zip(box, origins, strict=True))


@dataclass(frozen=True, slots=True)
class Run:
    """Outputs from `first` by `step` read inputs from `source` by `source_step`; `count` each."""

    first: int
    step: int
    source: int
    source_step: int
    count: int

    @property
    def outputs(self) -> slice:
        return slice(self.first, self.first + (self.count - 1) * self.step + 1, self.step)

    def inputs(self, origin: int) -> slice:
        """The inputs, in an array that starts at input `origin`."""
        start = self.source - origin
        return slice(start, start + (self.count - 1) * self.source_step + 1, self.source_step)


def run(low: int, high: int, stride: int, offset: int, dilation: int, extent: int) -> Run | None:
    """Which outputs of `low .. high`, counted from `low`, read a real input.

    Output o reads place `o * stride + offset` of an input of `extent` elements with `dilation - 1`
    holes between neighbours.
    """
    step = dilation // gcd(stride, dilation)
    last_place = (extent - 1) * dilation
    first = max(low, -(offset // stride))
    last = min(high - 1, (last_place - offset) // stride)
    while first <= last and (first * stride + offset) % dilation:
        first += 1
    if first > last or extent == 0:
        return None
    count = (last - first) // step + 1
    return Run(
        first - low, step, (first * stride + offset) // dilation, stride * step // dilation, count
    )


def covering(runs: Sequence[Run | None]) -> tuple[int, int]:
    """The range of inputs that any of the runs reads; empty where none reads one."""
    real = [r for r in runs if r is not None]
    if not real:
        return 0, 0
    return min(r.source for r in real), max(
        r.source + (r.count - 1) * r.source_step for r in real
    ) + 1


def assemble(rank: int, *parts: tuple[Sequence[int], Box]) -> Box:
    """A box from ranges of some dimensions and ranges of the others."""
    ranges = {d: r for dimensions, box in parts for d, r in zip(dimensions, box, strict=True)}
    return tuple(ranges[d] for d in range(rank))


def slabs(shape: tuple[int, ...], limit: int) -> Iterator[Box]:
    """Cuts the contracted dimensions into boxes of about `limit` elements, along the longest."""
    if not shape:
        yield ()
        return
    d = max(range(len(shape)), key=lambda i: shape[i])
    others = prod(shape) // max(shape[d], 1)
    size = max(1, limit // max(others, 1))
    full = [(0, n) for n in shape]
    for low in range(0, shape[d], size):
        yield (*full[:d], (low, min(low + size, shape[d])), *full[d + 1 :])


def pieces(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Cuts all of a tensor along its first dimensions into parts of about `most` elements."""
    row = prod(shape[1:])
    if not shape or row * shape[0] <= most:
        yield ()
    elif row > most:
        for place in range(shape[0]):
            for rest in pieces(shape[1:], most):
                yield (slice(place, place + 1), *rest)
    else:
        step = max(1, most // max(row, 1))
        for low in range(0, shape[0], step):
            yield (slice(low, min(low + step, shape[0])),)
