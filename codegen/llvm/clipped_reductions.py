"""Clipped reductions: the positions at which a window lies inside its tensor."""

from collections.abc import Iterator

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Point, end_of, known_size
from hlotune.schedules.ir.borders import forwards, leaving_along
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import LoopNest, StageNest

Discharged = frozenset[tuple[Load, int]]


def clipped_range(
    nest: LoopNest, f: Function, s: StageNest, root: str, point: Point
) -> tuple[str, str, Discharged]:
    """First and last-plus-one position of a reduction, and the checks that need not be made inside.

    A check is discharged where all points of the body agree on it; else the range is that of the
    points which reach furthest, and the check stays.
    """
    span = point.spans[root]
    low, high = f.integer(span.low), f.integer(end_of(f, span))
    discharged = set[tuple[Load, int]]()
    for index, extent, checks in _windows(nest, s, root):
        c = index.coefficients[root]
        rest, below, above = _rest(f, index, root, point)
        first = f.integer(rest * -1 + (c - 1 - above))
        last = f.integer(rest * -1 + (extent - 1 - below + c))
        low = f.larger(low, f.op(f"udiv i64 {f.larger(first, '0')}, {c}"))
        high = f.smaller(high, f.op(f"udiv i64 {f.larger(last, '0')}, {c}"))
        if below == above == 0:
            discharged |= checks
    return low, high, frozenset(discharged)


def _windows(nest: LoopNest, s: StageNest, root: str) -> Iterator[tuple[Affine, int, Discharged]]:
    """The windows that leave their tensors along a reduction, forwards, of the loads of a stage and
    of those beside them: each once, with its extent and the checks that are made of it."""
    found = dict[tuple[Affine, int], set[tuple[Load, int]]]()
    for x in s.stage.loads:
        beside = ((x.beside, len(x.index)),) if x.beside else ()
        for load, before in ((x, 0), *beside):
            for d in leaving_along(nest.compute, s.stage, load, root):
                extent = nest.compute.tensor(load.tensor).shape[d]
                window = forwards(load.index[d], root, extent), extent
                found.setdefault(window, set()).add((x.whole, before + d))
    for (index, extent), checks in found.items():
        yield index, extent, frozenset(checks)


def _rest(f: Function, index: Affine, root: str, point: Point) -> tuple[Affine, int, int]:
    """An index without one axis, and how far the spans inside take it below and above."""
    rest = Affine.of({a: n for a, n in index.terms if a != root}, index.constant)
    below = above = 0
    for axis, n in rest.terms:
        span = point.spans[axis]
        reach = n * ((known_size(f, span) or span.size) - 1)
        below, above = below + min(0, reach), above + max(0, reach)
    return rest.substitute(point.positions), below, above
