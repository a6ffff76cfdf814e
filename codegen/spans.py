"""Where a statement stands: the part of each axis that is left to it, and its lanes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hlotune.codegen.text import Function
from hlotune.schedules.expr import Affine, Load


@dataclass(frozen=True, slots=True)
class Span:
    """Elements `low .. min(low + size, extent)` of a root; `extent` None: nothing is cut off."""

    low: Affine
    size: int
    extent: int | None


@dataclass(frozen=True, slots=True)
class Lane:
    """The vectorized root, the lanes of a vector, and how many of them are in use."""

    root: str
    lanes: int
    active: int


@dataclass(frozen=True, slots=True)
class Point:
    """Where a statement is executed: spans, lanes, and the checks that loops have made for it."""

    spans: Mapping[str, Span]
    lane: Lane | None = None
    discharged: frozenset[tuple[Load, int]] = frozenset()

    @property
    def positions(self) -> dict[str, Affine]:
        return {root: span.low for root, span in self.spans.items()}


def moved(point: Point, root: str, low: Affine) -> Point:
    return resized(point, root, low, point.spans[root].size)


def resized(point: Point, root: str, low: Affine, size: int) -> Point:
    return replace(point, spans={**point.spans, root: Span(low, size, point.spans[root].extent)})


def known_size(f: Function, span: Span) -> int | None:
    """The size of a span where it is the same each time the code runs."""
    if span.extent is None or f.bounds(span.low)[1] + span.size <= span.extent:
        return span.size
    return None if span.low.terms else min(span.size, span.extent - span.low.constant)


def end_of(f: Function, span: Span) -> Affine:
    """Where a span stops: at its own size, or at the end of the axis."""
    end = span.low + span.size
    if span.extent is None or f.bounds(end)[1] <= span.extent:
        return end
    if not span.low.terms:
        return Affine((), span.extent)
    depth, text = f.depth_of(end), f.integer(end)
    less = f.hoisted(depth, f"icmp slt i64 {text}, {span.extent}")
    cut = f.hoisted(depth, f"select i1 {less}, i64 {text}, i64 {span.extent}")
    return f.variable(cut, (0, span.extent), depth=depth)
