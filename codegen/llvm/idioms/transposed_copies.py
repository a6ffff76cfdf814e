"""Copies whose vectors lie across the memory that they read: whole squares at once, transposed.

Where the lanes of a packed vector are far apart in the source, but what follows each of them is
needed next, as many rows are loaded as vectors have lanes, and turned in registers: a few shuffles
an element's vector in the place of a gather.
"""

from dataclasses import dataclass, replace

from hlotune.codegen.llvm.buffers import Place, Places
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.loads import load, read_run
from hlotune.codegen.llvm.math.values import HELD, STORED, Value, splat, vector
from hlotune.codegen.llvm.points import Lane, Point, known_size, moved, resized
from hlotune.codegen.llvm.stores import store
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import LoopNest, StageNest

PIECE_BYTES = 16
"""Processors interleave elements of vectors within so many bytes by one instruction without a
mask, which other shuffles of short elements need a register for."""
WIDTHS = {"i8": 1, "i16": 2}
LEAST_BYTES = 4
"""Bytes of an element from which on LLVM finds as short a way by itself."""


@dataclass(frozen=True, slots=True)
class Run:
    """Loops of a copy that walk its source element by element, as one loop."""

    first: int
    """The outermost of them, among the loops of the stage."""
    root: str
    """The innermost of them."""
    length: int
    is_checked: bool = False
    """Whether some of its rows may lie outside of the source."""


def run_of(nest: LoopNest, f: Function, places: Places, s: StageNest, point: Point) -> Run | None:
    """The run that a copy is turned along; None where it is no such copy."""
    x, root = _source(s), s.vector_root
    if x is None or root is None or not s.layout or x.divisors or s.accumulate is not None:
        return None
    place, outside = places[x.tensor], _outside(nest, f, x, point)
    if not isinstance(place, Place) or place.layout or place.dtype != x.dtype:
        return None
    if HELD[x.dtype] != STORED[x.dtype]:
        return None
    steps = {a: c * place.strides[d, 1] for d, e in enumerate(x.index) for a, c in e.terms}
    if s.lanes < 4 or s.lanes & (s.lanes - 1) or steps.get(root, 0) <= 1:
        return None
    onto = _steps_into(places, s)
    first, length, longest = len(s.loops) - 2, 1, 1 if outside else len(s.loops)
    while first > max(0, len(s.loops) - 2 - longest) and _joins(
        f, s, s.loops[first - 1].root, point, steps, onto, length
    ):
        first -= 1
        length *= known_size(f, point.spans[s.loops[first].root]) or 1
    if first == len(s.loops) - 2 or length < s.lanes:
        return None
    last = s.loops[len(s.loops) - 3].root
    if any(d not in place.checks or last in x.index[d].coefficients for d in outside):
        return None
    return Run(first, last, length, bool(outside))


def _outside(nest: LoopNest, f: Function, x: Load, point: Point) -> list[int]:
    """Dimensions in which some of what is read may not be real.

    The region of a copy may also reach over the end of a tensor.
    """
    ranges = {}
    for a, span in point.spans.items():
        low, high = f.bounds(span.low)
        last = high + span.size - 1
        ranges[a] = low, last if span.extent is None else min(last, span.extent - 1)
    bounds = [e.bounds(ranges) for e in x.index]
    shape = nest.compute.tensor(x.tensor).shape
    return [d for d, (low, high) in enumerate(bounds) if low < 0 or high >= shape[d]]


def _steps_into(places: Places, s: StageNest) -> dict[str, int]:
    """Elements between what neighbours along each axis are copied to; none along blocks."""
    (x,) = s.stage.stores
    place = places[x.tensor]
    assert isinstance(place, Place), "a copy lies in memory"
    free = [d for d in range(len(x.index)) if d not in place.blocks]
    return {a: c * place.strides[d, 1] for d in free for a, c in x.index[d].terms}


def _joins(
    f: Function, s: StageNest, root: str, point: Point, steps: dict[str, int],
    onto: dict[str, int], length: int,
) -> bool:  # fmt: skip
    """Whether a loop goes on where the run inside it, if any, ends: in the source and the copy."""
    size = known_size(f, point.spans[root])
    plain = size is not None and root != s.vector_root and steps.get(root, 0) == length
    # what the copy holds lies row by row: a loop around a run must find it whole
    inner = [x.root for x in s.loops[:-2] if x.root != s.vector_root]
    below = inner[inner.index(root) + 1 :] if root in inner else []
    last = s.loops[len(s.loops) - 3].root
    alike = root == last or (root in onto and onto[root] == length * onto.get(last, 0))
    return plain and alike and all(point.spans[r].size == s.stage.extents[r] for r in below)


def _source(s: StageNest) -> Load | None:
    """What a stage copies, where it does nothing else."""
    value = s.stage.values[0]
    alone = s.stage.combine is None and len(s.stage.values) == 1
    return value if alone and isinstance(value, Load) and value.along is None else None


def copy(f: Function, places: Places, s: StageNest, point: Point, run: Run) -> None:
    """Squares along the run, for the vector of lanes at a point."""
    whole = run.length // s.lanes * s.lanes
    start = point.spans[run.root].low

    def square(at: Affine, columns: int) -> None:
        _square(f, places, s, moved(point, run.root, start + at), run, columns)

    if whole > s.lanes:
        last = (0, whole - s.lanes)
        f.loop("0", str(whole), s.lanes, last, lambda m: square(m, s.lanes), nonempty=True)
    elif whole:
        square(Affine(), s.lanes)
    if whole < run.length:
        square(Affine((), whole), run.length - whole)


def _square(
    f: Function, places: Places, s: StageNest, point: Point, run: Run, columns: int
) -> None:
    lane, x, store_ = point.lane, _source(s), s.stage.stores[0]
    assert lane is not None, "a copy has lanes"
    assert x is not None, "a copy has a source"
    source, target = places[x.tensor], places[store_.tensor]
    assert isinstance(source, Place), "a source lies in memory"
    assert isinstance(target, Place), "a copy lies in memory"
    root, across = run.root, Lane(run.root, lane.lanes, columns)
    rows = []
    for k in range(lane.active):
        at = moved(point, lane.root, point.spans[lane.root].low + k)
        index = [e.substitute(at.positions) for e in x.index]
        if run.is_checked:
            row = splat(f, load(f, source, x, replace(at, lane=across)), lane.lanes)
        else:
            row = read_run(f, source, index, across)
        rows.append(row.name)
    kind = vector(HELD[x.dtype], lane.lanes)
    rows += ["zeroinitializer"] * (lane.lanes - lane.active)
    for k, name in enumerate(turned(f, rows, kind, lane.lanes)[:columns]):
        value = Value(name, x.dtype, lane.lanes)
        low = point.spans[root].low + k
        store(f, target, store_, value, resized(point, root, low, 1))


def turned(f: Function, rows: list[str], kind: str, lanes: int) -> list[str]:
    """Transposes the squares that lie side by side in vectors of one type.

    There are as many vectors as a square has rows, a power of two up to their lanes.
    """
    rows, distance = list(rows), 1
    piece = min(lanes, PIECE_BYTES // _bytes(kind))
    if _bytes(kind) < LEAST_BYTES and piece <= len(rows):
        groups = (rows[k : k + piece] for k in range(0, len(rows), piece))
        rows = [name for group in groups for name in _interleaved(f, group, kind, lanes)]
        if len(rows) == lanes:
            return _pieces_together(f, rows, kind, piece)
        distance = piece
    while distance < len(rows):
        for a in (k for k in range(len(rows)) if not k & distance):
            b = a + distance
            low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
            high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
            rows[a], rows[b] = (_shuffled(f, rows[a], rows[b], kind, x) for x in (low, high))
        distance *= 2
    return rows


def _interleaved(f: Function, rows: list[str], kind: str, lanes: int) -> list[str]:
    """Transposes squares of 16 bytes across, or of whole shorter vectors.

    Each round interleaves the first half of the rows with the second, and so moves the first bit of
    a row's number behind those of its columns.
    """
    size = len(rows)
    starts = range(0, lanes, size)
    low, high = (
        [at + j + side for at in starts for j in range(first, first + size // 2)
         for side in (0, lanes)]
        for first in (0, size // 2)
    )  # fmt: skip
    for _ in range(size.bit_length() - 1):
        pairs = zip(rows[: size // 2], rows[size // 2 :], strict=True)
        rows = [_shuffled(f, a, b, kind, x) for a, b in pairs for x in (low, high)]
    return rows


def _pieces_together(f: Function, rows: list[str], kind: str, piece: int) -> list[str]:
    """Whole vectors of the pieces that several groups of rows have at the same place.

    Each round takes every second piece of two vectors, which needs no mask in a register either.
    """
    lanes, found = len(rows), dict[int, str]()
    starts = range(0, 2 * lanes, 2 * piece)
    even, odd = ([at + j for at in starts for j in range(first, first + piece)]
                 for first in (0, piece))  # fmt: skip
    for k in range(piece):
        group = rows[k::piece]
        for _ in range(len(group).bit_length() - 1):
            pairs = list(zip(group[::2], group[1::2], strict=True))
            group = [_shuffled(f, a, b, kind, x) for x in (even, odd) for a, b in pairs]
        found |= {k + n * piece: name for n, name in enumerate(group)}
    return [found[k] for k in range(lanes)]


def _bytes(kind: str) -> int:
    """Bytes of an element of a vector's type."""
    element = kind.rpartition(" ")[2].rstrip(">")
    return WIDTHS.get(element, LEAST_BYTES)


def _shuffled(f: Function, a: str, b: str, kind: str, lanes: list[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in lanes)
    return f.op(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>")
