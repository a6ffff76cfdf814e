"""Where a statement stands: the part of each axis that is left to it, and its lanes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hlotune.codegen.llvm.function import Function
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.compute import Digit, Stage
from hlotune.schedules.ir.expr import Affine, Load, Terms
from hlotune.schedules.ir.nest import StageNest


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


LEAST_LANES = 8
"""A vector is made shorter down to so many, half of those of AVX-512; shorter was not tried."""


def lane_of(s: StageNest, root: str, active: int) -> Lane:
    """The vector of a stage of which so many lanes are in use, half as long where they fit.

    Cores that take long vectors in two halves compute half of one in half of the time, and what
    fills its vector is loaded and stored without a mask.  Lanes that are points of a reduction stay
    as many, since they are merged with those of whole vectors, and so do those of packed copies,
    whose blocks are whole.
    """
    lanes = s.lanes
    if not (s.layout or s.reduces_lanes or lanes & (lanes - 1)):
        while lanes > LEAST_LANES and 2 * active <= lanes:
            lanes //= 2
    return Lane(root, lanes, active)


@dataclass(frozen=True)
class Point:
    """Where a statement is executed: spans, lanes, and the checks that loops have made for it."""

    spans: Mapping[str, Span]
    lane: Lane | None = None
    discharged: frozenset[tuple[Load, int]] = frozenset()

    @cached_property
    def positions(self) -> dict[str, Affine]:
        return {root: span.low for root, span in self.spans.items()}

    @cached_property
    def constants(self) -> dict[str, int]:
        """The constants of the positions."""
        return {root: span.low.constant for root, span in self.spans.items()}

    @cached_property
    def terms(self) -> tuple[tuple[str, ...], tuple[Terms, ...]]:
        """The terms of the positions, by root: what copies of a statement have in common."""
        return tuple(self.spans), tuple([span.low.terms for span in self.spans.values()])


def standing(point: Point, at: Mapping[str, int]) -> Point:
    """The point whose positions have these constants."""
    spans = {
        root: Span(Affine(span.low.terms, at[root]), span.size, span.extent)
        for root, span in point.spans.items()
    }
    return Point(spans, point.lane, point.discharged)


def moved(point: Point, root: str, low: Affine) -> Point:
    return resized(point, root, low, point.spans[root].size)


def resized(point: Point, root: str, low: Affine, size: int) -> Point:
    spans = {**point.spans, root: Span(low, size, point.spans[root].extent)}
    return Point(spans, point.lane, point.discharged)


def with_digits(f: Function, stage: Stage, axis: str, point: Point) -> Point:
    """A point on an axis, with the positions of the axis's digits."""
    digits = [x for x in stage.digits if x.axis == axis]
    if not digits:
        return point
    low, spans = point.spans[axis].low, dict(point.spans)
    for k, digit in enumerate(digits):
        spans[digit.name] = Span(_digit(f, low, digit, is_first=k == 0), 1, None)
    return Point(spans, point.lane, point.discharged)


def _digit(f: Function, low: Affine, digit: Digit, *, is_first: bool) -> Affine:
    if digit.extent == 1 and not is_first:
        return Affine()
    if not low.terms:
        place = low.constant // digit.below
        return Affine((), place if is_first else place % digit.extent)
    most, depth = f.bounds(low)[1] // digit.below, f.depth_of(low)
    whole = f.hoisted(depth, f"udiv i64 {f.integer(low)}, {digit.below}")
    if is_first or most < digit.extent:
        return f.variable(whole, (0, most), depth=depth)
    rest = f.hoisted(depth, f"urem i64 {whole}, {digit.extent}")
    return f.variable(rest, (0, digit.extent - 1), depth=depth)


def known_size(f: Function, span: Span) -> int | None:
    """The size of a span where it is the same each time the code runs."""
    if span.extent is None or f.bounds(span.low)[1] + span.size <= span.extent:
        return span.size
    return None if span.low.terms else min(span.size, span.extent - span.low.constant)


def known_sizes(f: Function, stage: Stage, spans: Mapping[str, Span], tile: str) -> dict[str, int]:
    """The sizes of a stage's tile along its parallel axes.

    Raises BuildError where one changes as the code runs; `tile` is what the message calls it.
    """
    sizes = {}
    for axis in stage.parallel:
        size = known_size(f, spans[axis.name])
        if size is None:
            raise BuildError(
                f"{stage.name}: expected {tile} of known size along {axis.name}, got "
                f"{spans[axis.name]}; split the axis by the tile"
            )
        sizes[axis.name] = size
    return sizes


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


def smaller_of(f: Function, a: Affine, b: Affine) -> Affine:
    """The smaller of two positions, where both are known."""
    if f.bounds(a)[1] <= f.bounds(b)[0]:
        return a
    if f.bounds(b)[1] <= f.bounds(a)[0]:
        return b
    depth, first, second = max(f.depth_of(a), f.depth_of(b)), f.integer(a), f.integer(b)
    less = f.hoisted(depth, f"icmp slt i64 {first}, {second}")
    chosen = f.hoisted(depth, f"select i1 {less}, i64 {first}, i64 {second}")
    lows, highs = zip(f.bounds(a), f.bounds(b), strict=True)
    return f.variable(chosen, (min(lows), min(highs)), depth=depth)
