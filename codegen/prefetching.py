"""Requests for the next panel of a packed operand, spread over the loops inside a panel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from hlotune.codegen.addresses import elements
from hlotune.codegen.places import Place
from hlotune.codegen.spans import Point
from hlotune.codegen.text import Function
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.expr import Affine, Load
from hlotune.schedules.nest import Loop
from hlotune.schedules.target import LINE_BYTES

MOST_LINES = 4
"""Requests in one iteration; a panel that needs more is not worth waiting for."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A loop around a statement: its iterations, and where it and the loop outside it stand."""

    loop: Loop
    trips: int
    outside: Point
    inside: Point


def prefetch(f: Function, place: Place, x: Load, entered: Sequence[Entered]) -> None:
    """Asks for a part of the panel after the present one; none where there is but one."""
    dimension, block = place.layout[0]
    root = x.index[dimension].terms[0][0]
    panel_loops = [n for n, e in enumerate(entered) if e.loop.root == root and e.trips > 1]
    if not panel_loops or entered[panel_loops[-1]].loop.step != block:
        return
    panel, inner = entered[panel_loops[-1]], entered[panel_loops[-1] + 1 :]
    size = BYTES[place.dtype]
    panel_bytes = place.strides[dimension, block] * size
    lines = ceil(panel_bytes / (LINE_BYTES * prod(e.trips for e in inner)))
    if lines > MOST_LINES:
        return
    index = [Affine() for _ in place.shape]
    index[dimension] = panel.inside.spans[root].low + block
    _ask(f, place, elements(f, place, index) * size + _spread(inner, lines * LINE_BYTES), lines)


def stream(f: Function, place: Place, x: Load, axis: str, entered: Sequence[Entered]) -> None:
    """Asks for a part of what the next iteration of a loop reads, as it lies from there on."""
    at = next(n for n, e in reversed([*enumerate(entered)]) if e.loop.axis == axis)
    outer, inner, size = entered[at], entered[at + 1 :], BYTES[place.dtype]
    root, step = outer.loop.root, outer.loop.step
    dimension = next(d for d, e in enumerate(x.index) if root in e.coefficients)
    each_bytes = (
        step * abs(x.index[dimension].coefficients[root]) * place.strides[dimension, 1] * size
    )
    lines = ceil(each_bytes / (LINE_BYTES * prod(e.trips for e in inner)))
    if lines > MOST_LINES:
        return
    starts = outer.inside.positions | {root: outer.inside.spans[root].low + step}
    index = [e.substitute(starts) for e in x.index]
    _ask(f, place, elements(f, place, index) * size + _spread(inner, lines * LINE_BYTES), lines)


def _ask(f: Function, place: Place, offset: Affine, lines: int) -> None:
    """Requests for lines from a byte of a buffer on, into the second cache."""
    pointer, _ = f.pointer(place.base, offset)
    for line in range(lines):
        at = f.once(f"getelementptr i8, ptr {pointer}, i64 {offset.constant + line * LINE_BYTES}")
        wanted = (("ptr", at), ("i32", "0"), ("i32", "2"), ("i32", "1"))
        f.intrinsic("llvm.prefetch.p0", "void", *wanted)


def _spread(inner: Sequence[Entered], each_bytes: int) -> Affine:
    """Bytes between the first iteration of the loops and the present one."""
    total = Affine()
    for e in reversed(inner):
        root = e.loop.root
        gone = e.inside.spans[root].low + e.outside.spans[root].low * -1
        total = total + gone * max(1, each_bytes // e.loop.step)
        each_bytes *= e.trips
    return total
