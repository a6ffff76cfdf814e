"""Requests for what is read next: a panel, a slice, the rows of the next chunk of a reduction."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from hlotune.codegen.llvm.addresses import elements
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Point
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import Loop, StageNest
from hlotune.schedules.targets.cpu import LINE_BYTES

MOST_ROW_LINES = 32
"""Requests in one iteration for the rows of its own steps."""
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
    at = elements(f, place, index) * size + _spread(inner, lines * LINE_BYTES)
    _ask(f, place, at, _run(lines))


def stream(f: Function, place: Place, x: Load, axis: str, entered: Sequence[Entered]) -> None:
    """Asks for a part of what the next iteration of a loop reads, as it lies from there on."""
    outer, inner = _around(axis, entered)
    size = BYTES[place.dtype]
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
    at = elements(f, place, index) * size + _spread(inner, lines * LINE_BYTES)
    _ask(f, place, at, _run(lines))


def _around(axis: str, entered: Sequence[Entered]) -> tuple[Entered, Sequence[Entered]]:
    """A loop, and those inside it."""
    at = next(n for n, e in reversed([*enumerate(entered)]) if e.loop.axis == axis)
    return entered[at], entered[at + 1 :]


def rows_ahead(
    f: Function, place: Place, x: Load, axis: str, s: StageNest, entered: Sequence[Entered]
) -> None:
    """Asks for what the written-out steps around here read in the next iteration of a loop.

    Each step has lines of its own, a row of them.  Tiles that read the same rows share the work.
    """
    size = BYTES[place.dtype]
    chunk, inside = _around(axis, entered)
    here, root = entered[-1].inside, chunk.loop.root
    starts = here.positions | {root: here.spans[root].low + chunk.loop.step}
    offset = elements(f, place, [e.substitute(starts) for e in x.index]) * size
    tile = {loop.root: loop.step for loop in s.loops if loop.kind == "serial"}
    steps = _strides(place, x, size)
    lines = max(ceil(tile.get(a, 1) * n / LINE_BYTES) for a, n in steps.items() if n < LINE_BYTES)
    inner = [a.name for a in s.stage.reduce if a.name in steps]
    last = min(inner, key=lambda a: [loop.root for loop in reversed(s.loops)].index(a))
    rows, share = _shared(tile[last], steps[last], x, s, inside)
    asked = [row * steps[last] + k * LINE_BYTES for row in range(rows) for k in range(lines)]
    if len(asked) <= MOST_ROW_LINES:
        _ask(f, place, offset + share, asked)


def _strides(place: Place, x: Load, size: int) -> dict[str, int]:
    """Bytes between what neighbouring points of each axis load."""
    found: dict[str, int] = {}
    for d, e in enumerate(x.index):
        for a, c in e.terms:
            found[a] = found.get(a, 0) + abs(c) * place.strides[d, 1] * size
    return found


def _shared(
    rows: int, row_bytes: int, x: Load, s: StageNest, inside: Sequence[Entered]
) -> tuple[int, Affine]:
    """Rows that one tile asks for of those that several read alike, and where its own begin."""
    parallel = {a.name for a in s.stage.parallel} - set(x.axes)
    alike = [e for e in inside if e.loop.root in parallel and e.trips > 1]
    if not alike:
        return rows, Affine()
    e = alike[-1]
    own = ceil(rows / e.trips)
    if own * row_bytes % e.loop.step:
        return rows, Affine()
    gone = e.inside.spans[e.loop.root].low + e.outside.spans[e.loop.root].low * -1
    return own, gone * (own * row_bytes // e.loop.step)


def _ask(f: Function, place: Place, offset: Affine, asked: Sequence[int]) -> None:
    """Requests for lines at bytes behind one of a buffer, into the second cache."""
    pointer, _ = f.pointer(place.base, offset)
    for behind in asked:
        at = f.once(f"getelementptr i8, ptr {pointer}, i64 {offset.constant + behind}")
        wanted = (("ptr", at), ("i32", "0"), ("i32", "2"), ("i32", "1"))
        f.intrinsic("llvm.prefetch.p0", "void", *wanted)


def ask(f: Function, pointer: str, behind: int, size: int, cache: int) -> None:
    """Asks for the lines of `size` bytes so far behind an address, into the first or second
    cache."""
    locality = str(4 - cache)
    for k in range(0, size, LINE_BYTES):
        at = f.once(f"getelementptr i8, ptr {pointer}, i64 {behind + k}")
        wanted = (("ptr", at), ("i32", "0"), ("i32", locality), ("i32", "1"))
        f.intrinsic("llvm.prefetch.p0", "void", *wanted)


def _run(lines: int) -> range:
    return range(0, lines * LINE_BYTES, LINE_BYTES)


def _spread(inner: Sequence[Entered], each_bytes: int) -> Affine:
    """Bytes between the first iteration of the loops and the present one."""
    total = Affine()
    for e in reversed(inner):
        root = e.loop.root
        gone = e.inside.spans[root].low + e.outside.spans[root].low * -1
        total = total + gone * max(1, each_bytes // e.loop.step)
        each_bytes *= e.trips
    return total
