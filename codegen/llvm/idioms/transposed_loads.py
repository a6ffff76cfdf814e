"""Loads of one statement that are neighbours, while the lanes of each lie far apart.

The inputs of a tile, where channels come first: lane by lane the neighbours are read as one row,
and the rows turned in registers, in the place of a gather for each neighbour.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from math import ceil

from hlotune.codegen.llvm.buffers import Place, Places
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.idioms.transposed_copies import turned
from hlotune.codegen.llvm.loads import At, Found, load_run
from hlotune.codegen.llvm.math.values import HELD, STORED, Value, vector
from hlotune.codegen.llvm.points import Lane, Point, moved, standing
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Load

FEWEST = 3
"""Neighbours; a gather takes about as long as to read and turn the rows of two."""


@dataclass(frozen=True, slots=True)
class Square:
    place: Place
    first: Load
    loads: tuple[int, ...]
    """Among those of the stage, in order along the last dimension."""


def squares_of(stage: Stage, places: Places, point: Point) -> tuple[Square, ...]:
    """The squares of a statement's vector; none where it has no lanes."""
    lane = point.lane
    if lane is None or lane.lanes & (lane.lanes - 1) or lane.lanes < FEWEST:
        return ()
    lines = dict[object, tuple[Place, list[int]]]()
    most_stride = places.f.module.rates.most_stride
    for n, x in enumerate(stage.loads):
        place = places[x.tensor]
        if isinstance(place, Place) and _lies_apart(place, x, lane, most_stride):
            line = x.terms, tuple(e.constant for e in x.index[:-1]), x.tensor
            lines.setdefault(line, (place, []))[1].append(n)
    return tuple(
        Square(place, stage.loads[run[0]], tuple(run))
        for place, line in lines.values()
        for run in _runs(stage, line, lane.lanes)
    )


def _lies_apart(place: Place, x: Load, lane: Lane, most_stride: int) -> bool:
    plain = not x.divisors and x.beside is None and x.along is None and not place.layout
    plain = plain and not x.lookups
    whole = x.dtype == place.dtype and HELD[x.dtype] == STORED[x.dtype]
    if not (plain and whole and x.index and x.outside == 0):
        return False
    steps = [e.coefficients.get(lane.root, 0) * place.strides[d, 1] for d, e in enumerate(x.index)]
    return abs(sum(steps)) > most_stride and steps[-1] == 0


def _runs(stage: Stage, line: list[int], longest: int) -> Iterator[list[int]]:
    """Neighbours along the last dimension, in even parts; those that are worth it."""
    place = {n: stage.loads[n].index[-1].constant for n in line}
    runs = list[list[int]]()
    for n in sorted(line, key=place.__getitem__):
        if runs and place[n] == place[runs[-1][-1]] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    parts = (part for run in runs for part in _even_parts(run, longest))
    return (part for part in parts if len(part) >= FEWEST)


def _even_parts(run: list[int], longest: int) -> list[list[int]]:
    """The parts of a run, of even lengths, so that none is left too short: six in vectors of four
    are twice three.
    """
    count = ceil(len(run) / longest)
    ends = [len(run) * k // count for k in range(count + 1)]
    return [run[start:end] for start, end in pairwise(ends)]


def read_in_squares(f: Function, square: Square, like: Point, at: At) -> list[Found]:
    """What the loads of a square give; all are written when the first of them is read."""
    lane = like.lane
    assert lane is not None, "a square has lanes"

    @cache
    def values() -> list[Value]:
        return _turned(f, square, standing(like, at), lane)

    def read(n: int) -> Value:
        return values()[n]

    return [Found(lane.lanes, partial(read, n)) for n in range(len(square.loads))]


def _turned(f: Function, square: Square, point: Point, lane: Lane) -> list[Value]:
    """Row by row from memory, side by side in whole vectors, column by column out of these."""
    x, count = square.first, len(square.loads)
    size = 1 << (count - 1).bit_length()
    across, low = Lane(lane.root, size, count), point.spans[lane.root].low
    rows = []
    for k in range(lane.active):
        at = moved(point, lane.root, low + k).positions
        rows.append(load_run(f, square.place, x, [e.substitute(at) for e in x.index], across).name)
    rows += ["zeroinitializer"] * (lane.lanes - lane.active)
    whole = [_side_by_side(f, rows[k::size], x.dtype, size) for k in range(size)]
    kind = vector(HELD[x.dtype], lane.lanes)
    columns = turned(f, whole, kind, lane.lanes)
    return [Value(name, x.dtype, lane.lanes) for name in columns[:count]]


def _side_by_side(f: Function, rows: list[str], dtype: str, size: int) -> str:
    """Vectors of one size as one."""
    while len(rows) > 1:
        kind, both = vector(HELD[dtype], size), range(2 * size)
        mask = ", ".join(f"i32 {k}" for k in both)
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [
            f.op(f"shufflevector {kind} {a}, {kind} {b}, <{2 * size} x i32> <{mask}>")
            for a, b in pairs
        ]
        size *= 2
    return rows[0]
