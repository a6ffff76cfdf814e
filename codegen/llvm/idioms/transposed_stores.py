"""Stores whose vectors lie across the memory that they go to: blocks of them, turned first.

Where the lanes of a result are far apart, but rows of its register tile are neighbours, the rows
wait for one another and are turned in registers: a few shuffles and one store for each lane, in the
place of a scatter for each row.
"""

from dataclasses import dataclass, field

from hlotune.codegen.llvm.addresses import elements
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.idioms.transposed_copies import turned
from hlotune.codegen.llvm.math.values import HELD, STORED, Value, splat, to_memory, vector
from hlotune.codegen.llvm.points import Lane, Point, moved
from hlotune.codegen.llvm.stores import store, write_run
from hlotune.schedules.ir.compute import Store
from hlotune.schedules.ir.expr import Affine, Terms
from hlotune.schedules.ir.nest import StageNest

BITS = {"bf16": "ui16", "f16": "ui16", "i1": "ui8"}
"""Types whose values are held wider than they lie in memory, and integers of that width."""


@dataclass(frozen=True, slots=True)
class Row:
    """A vector that waits, and where it belongs."""

    store: Store
    offset: int
    """Elements behind the part of its address that all its neighbours share."""
    line: tuple[int, ...]
    """Constants of its index in all dimensions but the last, where it may lie outside: its offset
    alone does not tell its neighbours then."""
    value: Value
    point: Point


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rows of a stage's register tile, until all of them are there."""

    stage: str
    rows: dict[tuple[str, tuple[Terms, ...], Lane, Affine], list[Row]] = field(default_factory=dict)
    """By tensor, index but for constants, lanes, and what addresses of neighbours share."""
    places: dict[str, Place] = field(default_factory=dict)

    def takes(self, place: Place, x: Store, point: Point) -> bool:
        """Whether to wait with a store: its lanes lie apart."""
        lane = point.lane
        if lane is None or lane.lanes & (lane.lanes - 1) or place.layout:
            return False
        steps = (
            e.coefficients.get(lane.root, 0) * place.strides[d, 1] for d, e in enumerate(x.index)
        )
        return sum(steps) not in (0, 1)

    def add(self, f: Function, place: Place, x: Store, value: Value, point: Point) -> None:
        assert point.lane is not None, "it was asked whether it has lanes"
        where = [e.substitute(point.positions) for e in x.index]
        at = elements(f, place, where)
        line = tuple(e.constant for e in where[:-1]) if place.nowhere else ()
        row = Row(x, at.constant, line, _as_stored(f, splat(f, value, point.lane.lanes)), point)
        key = x.tensor, x.terms, point.lane, Affine(at.terms)
        self.rows.setdefault(key, []).append(row)
        self.places[x.tensor] = place

    def write(self, f: Function) -> None:
        """Stores what waits, neighbours at once."""
        for (tensor, _, lane, _), rows in self.rows.items():
            for block in _blocks(rows, lane.lanes):
                _store_block(f, self.places[tensor], lane, block)
        self.rows.clear()


def _as_stored(f: Function, value: Value) -> Value:
    """The bits that memory has of a value, which are turned as they are."""
    if HELD[value.dtype] == STORED[value.dtype]:
        return value
    bits = vector(STORED[BITS[value.dtype]], value.lanes)
    stored = vector(STORED[value.dtype], value.lanes)
    name = to_memory(f, value)
    name = name if stored == bits else f.op(f"bitcast {stored} {name} to {bits}")
    return Value(name, BITS[value.dtype], value.lanes)


def waits(s: StageNest, first: int) -> bool:
    """Whether rows of a stage are written out, from loop `first` on, and are nothing's sums."""
    written_out = any(x.kind == "unroll" for x in s.loops[first:])
    return written_out and s.stage.combine is None and not s.layout and s.vector_root is not None


def _blocks(rows: list[Row], longest: int) -> list[list[Row]]:
    """Runs of neighbours."""
    blocks: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: (row.line, row.offset)):
        last = blocks[-1] if blocks else []
        is_next = last and (row.line, row.offset) == (last[-1].line, last[-1].offset + 1)
        if is_next and len(last) < longest:
            last.append(row)
        else:
            blocks.append([row])
    return blocks


def _store_block(f: Function, place: Place, lane: Lane, rows: list[Row]) -> None:
    first = rows[0]
    if len(rows) == 1:
        store(f, place, first.store, first.value, first.point)
        return
    size = 1 << (len(rows) - 1).bit_length()
    names = [row.value.name for row in rows] + ["poison"] * (size - len(rows))
    columns = turned(f, names, first.value.type, lane.lanes)
    across = Lane(lane.root, size, len(rows))
    for k in range(lane.active):
        part = _part(f, columns[k % size], first.value, k - k % size, size)
        at = moved(first.point, lane.root, first.point.spans[lane.root].low + k).positions
        write_run(f, place, [e.substitute(at) for e in first.store.index], part, across)


def _part(f: Function, name: str, like: Value, start: int, size: int) -> Value:
    """A vector of `size` lanes of another one, from `start` on."""
    if size == like.lanes:
        return Value(name, like.dtype, size)
    mask = ", ".join(f"i32 {start + k}" for k in range(size))
    text = f"shufflevector {like.type} {name}, {like.type} poison, <{size} x i32> <{mask}>"
    return Value(f.op(text), like.dtype, size)
