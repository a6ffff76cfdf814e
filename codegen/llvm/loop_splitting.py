"""Where loops are cut, so that each copy of a body has static sizes."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Span, known_size
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.borders import bordering, pieces
from hlotune.schedules.ir.nest import LoopNest, StageNest


def special_positions(nest: LoopNest, s: StageNest, k: int, span: Span) -> list[int]:
    """Positions written apart: a ragged end that a static body would meet, peeled borders."""
    loop, result = s.loops[k], set[int]()
    if span.extent is None:
        return []
    if is_static_inside(s, k) and span.extent % loop.step:
        result.add(span.extent // loop.step * loop.step)
    if loop.border == "peel":
        result.update(bordering(nest, s, k))
    return sorted(result)


def seams(nest: LoopNest, s: StageNest, k: int, span: Span) -> list[int]:
    """Positions at which a new copy of a peeled loop begins, as other loads lie inside from there
    on."""
    if s.loops[k].border != "peel" or span.extent is None:
        return []
    return [x.first for x in pieces(nest, s, k)]


def runs(positions: range, special: Sequence[int], cuts: Sequence[int]) -> list[range]:
    """Positions that are one loop each, in order; those written apart stand alone.

    A loop may have millions of positions, which are not gone through.
    """
    apart = [positions.index(p) for p in special if p in positions]
    after = (k + 1 for k in apart)
    cut = (bisect_left(positions, c) for c in cuts)
    bounds = sorted({0, *apart, *after, *cut, len(positions)})
    return [positions[begin:end] for begin, end in pairwise(bounds)]


def is_static_inside(s: StageNest, k: int) -> bool:
    """Whether the next loop of the same root must know its size while emitting."""
    inner = next((x for x in s.loops[k + 1 :] if x.root == s.loops[k].root), None)
    return inner is not None and inner.kind in ("unroll", "vectorize")


def static_size(f: Function, s: StageNest, k: int, span: Span) -> int:
    """The size of a loop that is written out.

    Raises BuildError where it differs from one iteration around it to the next.
    """
    size = known_size(f, span)
    if size is None:
        raise BuildError(
            f"{s.stage.name}: expected {s.loops[k].kind} {s.loops[k].axis} to have a known "
            f"size, got {span}; put a loop of the same axis around it"
        )
    return size


def position_range(f: Function, span: Span, step: int) -> tuple[int, int]:
    """Least and largest position of a loop over a span."""
    least, most = f.bounds(span.low)
    most += (ceil(span.size / step) - 1) * step
    if span.extent is not None:
        most = min(most, (span.extent - 1) // step * step)
    return least, most
