"""Sums about a mean in the pass that finds the mean, over pieces with a pivot each.

    sum[i] = sum over r of x[r, i]                      m[i] = sum[i] / n, or any other number
    var[i] = sum over r of (x[r, i] - m[i]) ** 2

        ->   s[p0, i], a[p0, i], b[p0, i] = sum over r of its piece of x, x - k, (x - k) ** 2
             sum[i] = sum over p0 of s
             var[i] = sum over p0 of b + 2 (k - m) a + n (k - m) ** 2

    where k[p0, i] is x at the first r of the piece, which has n points

Where lanes lie along the reduction, neighbours begin pieces of their own, each of which has every
so-manieth element: s[i, p0, p1] and so on, with p1 along the lanes.

The tensor is read once, and not again for what is about the mean.  Pieces are short, and the pivot
is one of the elements: as the square of its distance from the mean is a part of the sum, what is
lost to cancellation is at most half as many units of the last place as the square of a piece's
points, where all pieces begin far from all other elements, and next to nothing elsewhere.  For sums
of plain differences the same holds beside the sum of their sizes.  It does not for products
`g (x - m)`, as a gradient has them: where g is zero at a pivot far from all others, nothing of its
size is in the sum.  These are left to two passes.

Where a pivot lies far from the rest of its piece, the squares of all distances from it come up to
as many times its own as the piece has points.  With 64 points of f32 they are infinite from a
distance of about 2.3e18 on, and the sum is then infinite or undefined; that of two passes is from
1.8e19 on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, loads, map_loads
from hlotune.schedules.ir.monoids import SUM

PIECE, NEIGHBOUR = "p0", "p1"
"""The axes of the pieces: that along which they follow one another, and that of neighbours."""
SUMS = "pieces"
"""The stage that adds up the pieces."""


@dataclass(frozen=True, slots=True)
class OnePass:
    """Takes sums about a mean with the mean, over pieces of so many points of the longest axis."""

    points: int
    neighbours: int = 1
    """Elements side by side along the axis that are in pieces of their own."""

    def __str__(self) -> str:
        beside = f", {self.neighbours}" if self.neighbours > 1 else ""
        return f"one_pass({self.points}{beside})"

    def __call__(self, compute: Compute) -> Compute:
        """Raises ScheduleError where no stage has sums about the mean of an earlier one, or pieces
        do not divide the axis."""
        found = about_a_mean(compute)
        if found is None:
            raise ScheduleError(f"{self}: expected sums about a sum of the same, got none")
        together = self.points * self.neighbours
        if self.points < 2 or found.axis.extent % together:
            raise ScheduleError(
                f"{self}: expected pieces that divide {found.axis.extent}, got {together}"
            )
        return _rewritten(compute, found, self)


@dataclass(frozen=True, slots=True)
class Apart:
    """A value that is `(x - mean) ** power`; with power 0 one that reads no mean."""

    value: Expr
    mean: Expr | None
    power: int


@dataclass(frozen=True, slots=True)
class AboutAMean:
    """A stage that sums an element, and a later one that sums what is about its mean."""

    first: Stage
    last: Stage
    element: Expr
    apart: tuple[Apart, ...]
    """The values of the last stage."""

    @property
    def axis(self) -> Axis:
        """The reduction that pieces are of."""
        return max(self.first.reduce, key=lambda r: r.extent)


def about_a_mean(compute: Compute) -> AboutAMean | None:
    """The first such pair of stages; None where there is none."""
    sums = [s for s in compute.stages if _is_plain_sum(s)]
    pairs = ((a, b) for k, a in enumerate(sums) for b in sums[k + 1 :] if _alike(a, b))
    found = (_pair(compute, a, b, x) for a, b in pairs for x in a.values)
    return next((f for f in found if f is not None), None)


def _is_plain_sum(stage: Stage) -> bool:
    special = stage.scans or stage.onto or stage.begins or stage.digits or stage.ends
    floats = all(is_float(v.dtype) for v in stage.values)
    return stage.combine is SUM and bool(stage.reduce) and not (special or stage.lookups) and floats


def _alike(a: Stage, b: Stage) -> bool:
    new = {PIECE, NEIGHBOUR}
    return (a.parallel, a.reduce) == (b.parallel, b.reduce) and not new & a.extents.keys()


def _pair(compute: Compute, first: Stage, last: Stage, element: Expr) -> AboutAMean | None:
    later = _stored_from(compute, first)
    if _reads(element, later):
        return None
    reduced = {r.name for r in first.reduce}
    apart = [_apart(v, element, later, reduced) for v in last.values]
    kept = tuple(a for a in apart if a is not None)
    if len(kept) < len(apart) or not any(a.power for a in kept):
        return None
    return AboutAMean(first, last, element, kept)


def _stored_from(compute: Compute, first: Stage) -> frozenset[str]:
    """The tensors that a stage and those behind it store."""
    at = compute.stages.index(first)
    return frozenset(x.tensor for s in compute.stages[at:] for x in s.stores)


def _reads(value: Expr, tensors: frozenset[str]) -> bool:
    return any(x.tensor in tensors for x in loads(value))


def _apart(value: Expr, element: Expr, later: frozenset[str], reduced: set[str]) -> Apart | None:
    """A value as a power of a difference from a mean, or as one that reads nothing later; None
    where it is neither."""
    if not _reads(value, later):
        return Apart(value, None, 0)
    means = [_subtracted(factor, element, later, reduced) for factor in _factors(value)]
    if None in means or len(set(means)) > 1 or len(means) > 2:
        return None
    return Apart(value, means[0], len(means))


def _factors(value: Expr) -> Iterator[Expr]:
    if isinstance(value, Apply) and value.op == "multiply":
        for x in value.args:
            yield from _factors(x)
    else:
        yield value


def _subtracted(
    factor: Expr, element: Expr, later: frozenset[str], reduced: set[str]
) -> Expr | None:
    """What a factor subtracts from the element, if that is a later number of each result."""
    if not isinstance(factor, Apply) or factor.op != "subtract" or factor.args[0] != element:
        return None
    mean = factor.args[1]
    varies = any(reduced & set(x.axes) for x in loads(mean))
    return mean if _reads(mean, later) and not varies else None


def _times(a: Expr, b: Expr) -> Expr:
    return Apply("multiply", (a, b), a.dtype)


def _plus(a: Expr, b: Expr) -> Expr:
    return Apply("add", (a, b), a.dtype)


def _less(a: Expr, b: Expr) -> Expr:
    return Apply("subtract", (a, b), a.dtype)


class _Pieces:
    """The stage that adds up the pieces, while it grows."""

    def __init__(self, found: AboutAMean, cut: OnePass) -> None:
        self.axis, first = found.axis, found.first
        self.parallel, self.over = _axes_of_pieces(found, cut)
        self.reduce = tuple(
            replace(r, extent=cut.points) if r == self.axis else r for r in first.reduce
        )
        self.index = tuple(Affine.axis(a.name) for a in self.parallel)
        begins = Affine.axis(PIECE, cut.points * cut.neighbours)
        if cut.neighbours > 1:
            begins += Affine.axis(NEIGHBOUR)
        self.inside = {self.axis.name: Affine.axis(self.axis.name, cut.neighbours) + begins}
        begin = {r.name: Affine() for r in first.reduce} | {self.axis.name: begins}
        self.pivot = _moved(found.element, begin)
        self.apart = _less(_moved(found.element, self.inside), self.pivot)
        self.tensors, self.values = list[Tensor](), list[Expr]()

    @property
    def each(self) -> int:
        """Points of a piece."""
        return prod(r.extent for r in self.reduce)

    def sum(self, value: Expr) -> Load:
        """What a value comes to in each piece."""
        if value not in self.values:
            shape = tuple(a.extent for a in self.parallel)
            name = f"{SUMS}.{len(self.values)}"
            self.tensors.append(Tensor(name, shape, value.dtype, "temporary"))
            self.values.append(value)
        kept = self.tensors[self.values.index(value)]
        return Load(kept.name, self.index, kept.dtype)

    def of(self, value: Expr) -> Expr:
        """What a value of either stage comes to in a piece."""
        return self.sum(_moved(value, self.inside))

    def of_apart(self, x: Apart) -> Expr:
        """What a value of the last stage comes to in a piece."""
        if x.mean is None:
            return self.of(x.value)
        shift = _less(self.pivot, x.mean)
        if x.power == 1:
            return _plus(self.sum(self.apart), _times(self.count, shift))
        squares, about = self.sum(_times(self.apart, self.apart)), self.sum(self.apart)
        twice = _times(Const(2.0, self.pivot.dtype), about)
        return _plus(squares, _times(shift, _plus(twice, _times(self.count, shift))))

    @property
    def count(self) -> Expr:
        return Const(float(self.each), self.pivot.dtype)

    def stage(self) -> Stage:
        stores = tuple(Store(t.name, self.index) for t in self.tensors)
        return Stage(SUMS, self.parallel, self.reduce, stores, tuple(self.values), SUM)


def _moved(value: Expr, places: dict[str, Affine]) -> Expr:
    return map_loads(value, {x: x.substitute(places) for x in loads(value)})


def _axes_of_pieces(found: AboutAMean, cut: OnePass) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """The parallel axes of the stage of the pieces, and those of them that these are added up
    over: of rows a row's pieces lie together, and of columns the pieces of one place."""
    own = found.first.parallel
    piece = Axis(PIECE, found.axis.extent // (cut.points * cut.neighbours))
    if cut.neighbours == 1:
        return (piece, *own), (piece,)
    over = piece, Axis(NEIGHBOUR, cut.neighbours)
    return (*own, *over), over


def _rewritten(compute: Compute, found: AboutAMean, cut: OnePass) -> Compute:
    pieces = _Pieces(found, cut)
    sums = tuple(pieces.of(v) for v in found.first.values)
    about = tuple(pieces.of_apart(x) for x in found.apart)
    over = pieces.over
    changed = {
        found.first.name: (pieces.stage(), replace(found.first, reduce=over, values=sums)),
        found.last.name: (replace(found.last, reduce=over, values=about),),
    }
    stages = [new for s in compute.stages for new in changed.get(s.name, (s,))]
    return Compute((*compute.tensors, *pieces.tensors), tuple(stages), compute.leaves_precision)


def points_of(extent: int, others: int, most: int, least: int) -> int | None:
    """The most points along an axis, up to a number with those along others, that divide it; None
    where all are fewer than what a piece is worth."""
    fitting = (n for n in range(min(extent // 2, max(1, most // others)), 1, -1) if extent % n == 0)
    found = next(fitting, 1)
    return found if found * others >= least and found > 1 else None
