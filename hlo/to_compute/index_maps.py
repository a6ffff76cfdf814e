"""Index maps of reshapes as affine functions, and the domains (axes) that make them affine.

A reshape is affine only where axes end at the borders of its dimensions.  Where an axis straddles
a border, `unravel` raises `SplitAxis`; `Domain.settle` splits that axis and tries again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis
from hlotune.schedules.ir.expr import Affine

T = TypeVar("T")
Index = tuple[Affine, ...]


class SplitAxis(Exception):
    """Asks the owner of the domain to split `axis` so that its inner part has extent `inner`."""

    def __init__(self, axis: str, inner: int) -> None:
        super().__init__(f"split {axis} by {inner}")
        self.axis, self.inner = axis, inner


@dataclass(frozen=True, slots=True)
class Domain:
    """Axes of a stage, and what each axis it began with is in terms of the present ones."""

    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    places: Mapping[str, Affine]

    @staticmethod
    def of(
        parallel: Sequence[Axis], reduce: Sequence[Axis] = (), *, units: bool = False
    ) -> "Domain":
        """Axes of extent 1 become the index 0, unless `units` are wanted."""

        def kept(axes: Sequence[Axis]) -> tuple[Axis, ...]:
            return tuple(a for a in axes if units or a.extent > 1)

        stay = (*kept(parallel), *kept(reduce))
        places = {a.name: Affine.of({a.name: int(a in stay)}) for a in (*parallel, *reduce)}
        return Domain(kept(parallel), kept(reduce), places)

    @property
    def extents(self) -> dict[str, int]:
        return {a.name: a.extent for a in self.parallel + self.reduce}

    def split(self, name: str, inner: int) -> "Domain":
        """`name` becomes `name.0`, `name.1`, the latter of extent `inner`, which must divide."""

        def parts(axes: tuple[Axis, ...]) -> Iterator[Axis]:
            for a in axes:
                halves = (Axis(f"{name}.0", a.extent // inner), Axis(f"{name}.1", inner))
                yield from halves if a.name == name else (a,)

        place = {name: Affine.of({f"{name}.0": inner, f"{name}.1": 1})}
        places = {a: e.substitute(place) for a, e in self.places.items()}
        return Domain(tuple(parts(self.parallel)), tuple(parts(self.reduce)), places)

    def settle(self, build: Callable[["Domain"], T]) -> T:
        """`build` on this domain, its axes split as often as reshapes ask for."""
        domain = self
        while True:
            try:
                return build(domain)
            except SplitAxis as wanted:
                domain = domain.split(wanted.axis, wanted.inner)

    def filled(self) -> "Domain":
        """The domain, with an axis of extent 1 where it has no parallel or no reduce axis."""
        parallel, reduce = self.parallel or (Axis("unit", 1),), self.reduce or (Axis("once", 1),)
        return replace(self, parallel=parallel, reduce=reduce)


def ravel(index: Sequence[Affine], shape: Sequence[int]) -> Affine:
    """Row-major position of an element."""
    result = Affine()
    for d, place in enumerate(index):
        result = result + place * prod(shape[d + 1 :])
    return result


def unravel(linear: Affine, shape: Sequence[int], extents: Mapping[str, int]) -> Index:
    """The index of row-major position `linear`.

    Raises:
        SplitAxis: an axis straddles a border of the shape, and splitting it helps.
        UnsupportedKernel: no splitting of axes makes the index affine.
    """
    if not shape:
        return ()
    index: list[Affine] = []
    for size in reversed(shape[1:]):
        linear, remainder = _divide(linear, size, extents)
        index.append(remainder)
    return (linear, *reversed(index))


def _divide(linear: Affine, size: int, extents: Mapping[str, int]) -> tuple[Affine, Affine]:
    """Quotient and remainder of an affine by a constant."""
    remainder = Affine.of({a: c for a, c in linear.terms if c % size}, linear.constant % size)
    low, high = remainder.bounds({a: (0, n - 1) for a, n in extents.items()})
    if low < 0 or high >= size:
        raise _straddling(remainder, size, extents)
    terms = {a: c // size for a, c in linear.terms if c % size == 0}
    return Affine.of(terms, linear.constant // size), remainder


def _straddling(remainder: Affine, size: int, extents: Mapping[str, int]) -> Exception:
    for axis, c in remainder.terms:
        if c > 0 and size % c == 0:
            inner = size // c
            if inner < extents[axis] and extents[axis] % inner == 0:
                return SplitAxis(axis, inner)
    return UnsupportedKernel(
        f"expected a reshape that is affine after splitting axes, got {remainder} over a dimension "
        f"of {size}; the kernel stays with the default compiler"
    )


def reshape_index(
    index: Index, shape: tuple[int, ...], onto: tuple[int, ...], extents: Mapping[str, int]
) -> Index:
    """The index in an array of shape `onto` of the element that is at `index` in one of `shape`."""
    result: list[Affine] = []
    for source, target in reshape_groups(shape, onto):
        if len(source) == len(target) == 1:
            result.append(index[source.start])
        else:
            linear = ravel(index[source.start : source.stop], shape[source.start : source.stop])
            result.extend(unravel(linear, onto[target.start : target.stop], extents))
    return tuple(result)


def reshape_groups(
    source: tuple[int, ...], target: tuple[int, ...]
) -> Iterator[tuple[range, range]]:
    """The smallest runs of dimensions with equal products; a 1 may stand against nothing."""
    s = t = 0
    while s < len(source) or t < len(target):
        s0, t0 = s, t
        left = source[s] if s < len(source) else 0
        right = target[t] if t < len(target) else 0
        if left == 1 and right != 1:
            s += 1
        elif right == 1 and left != 1:
            t += 1
        else:
            s, t = s + 1, t + 1
            while left != right:
                if left < right:
                    left, s = left * source[s], s + 1
                else:
                    right, t = right * target[t], t + 1
        yield range(s0, s), range(t0, t)
