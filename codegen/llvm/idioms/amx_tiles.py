"""Products of tiles on a processor's matrix unit (AMX), and its eight registers.

A stage that is tensorized keeps its sums in registers 0 and on, row by row of tiles; behind them
are the tiles of the left operand, then those of the right.  Each register has its shape from a
configuration, which takes as long as twenty products to load and clears all of them.  So one for
whole tiles is loaded as a task begins; where tiles are cut short, theirs is loaded around them, and
sums that go on meanwhile wait in memory.

The intrinsics with numbers of registers are not moved by LLVM, nor is memory around them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from hlotune.codegen.llvm.access_forms import constants_of, form_of
from hlotune.codegen.llvm.buffers import Place, Places
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Lane, Point, known_sizes
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.compute import Store
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import LoopNest, StageNest, region
from hlotune.schedules.steps.tile_products import Product, product_of
from hlotune.schedules.targets.units import AMX_ROWS

INTRINSIC = {"bf16x2": "llvm.x86.tdpbf16ps", "i8x4": "llvm.x86.tdpbssd"}
"""By the type of the groups.  The first rounds after each product and flushes what is subnormal."""
CONFIG_BYTES, ROW_BYTES, WIDTHS, HEIGHTS = 64, 4, 16, 48
"""Bytes of a configuration and of an element in a row, and where widths and heights stand in it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the tiles of a stage."""

    rows: tuple[tuple[tuple[int, ...], int], ...]
    """For each tile of rows its offsets along the parallel axes, and how many rows it has."""
    lanes: tuple[int, ...]
    """The lanes of each tile."""
    groups: int

    @property
    def config(self) -> bytes:
        heights = [n for _, n in self.rows]
        sums = [(n, w) for n, w in product(heights, self.lanes)]
        left = [(n, self.groups) for n in heights]
        right = [(self.groups, n) for n in self.lanes]
        data = bytearray(CONFIG_BYTES)
        data[0] = 1
        for k, (height, width) in enumerate((*sums, *left, *right)):
            data[WIDTHS + 2 * k] = ROW_BYTES * width
            data[HEIGHTS + k] = height
        return bytes(data)


class Tiles:
    """Writes tensorized stages into a function."""

    def __init__(self, nest: LoopNest, root: StageNest, f: Function, places: Places) -> None:
        self.nest, self.f, self.places = nest, f, places
        found = [s for s in nest.stages if s.tiles and _root(nest, s) is root]
        self.whole = _whole(nest, found[0]) if found else None
        self.shape = self.whole
        """The shape of what is being written."""

    def open(self) -> None:
        if self.whole:
            self._configure(self.whole)

    def close(self) -> None:
        if self.whole:
            self.f.intrinsic("llvm.x86.tilerelease", "void")

    # sums -----------------------------------------------------------------------------------------

    def begin(self, s: StageNest, point: Point, first: str) -> None:
        """Sums at nothing where `first` holds, else as they are in memory."""
        sizes = known_sizes(self.f, s.stage, point.spans, "tiles")
        self._change(_shape(s, sizes, _depth(self.nest, s)))
        if first == "true":
            self._clear()
        elif first == "false":
            self._move("load", s, point)
        else:
            later = self.f.op(f"xor i1 {first}, true")
            self.f.when(first, self._clear)
            self.f.when(later, lambda: self._move("load", s, point))

    def end(self, s: StageNest, point: Point) -> None:
        self._move("store", s, point)
        assert self.whole is not None
        self._change(self.whole)

    def _clear(self) -> None:
        assert self.shape is not None
        for k in range(len(self.shape.rows) * len(self.shape.lanes)):
            self.f.intrinsic("llvm.x86.tilezero", "void", ("i8", str(k)))

    def _move(self, how: str, s: StageNest, point: Point) -> None:
        """All sums into memory, or back."""
        assert self.shape is not None and s.tiles is not None
        (x,), shape = s.stage.stores, self.shape
        place = self._place(x.tensor)
        for i, (offsets, _) in enumerate(shape.rows):
            for j, lanes in enumerate(shape.lanes):
                at = self._at(s, point, offsets, j)
                pointer = self._pointer(place, x, replace(point, lane=self._lane(s, lanes)), at)
                number = i * len(shape.lanes) + j
                self._access(how, number, pointer, _stride(place, x, s.tiles[0]))

    # products -------------------------------------------------------------------------------------

    def product(self, s: StageNest, point: Point, groups: int) -> None:
        """One tile of the reduction, for all tiles of sums."""
        assert self.shape is not None
        outside = self.shape
        if groups != outside.groups:
            self._meanwhile(s, point, replace(outside, groups=groups))
        self._products(s, point)
        if groups != outside.groups:
            self._meanwhile(s, point, outside)

    def _meanwhile(self, s: StageNest, point: Point, shape: Shape) -> None:
        """Changes the shape of operands while sums wait in memory."""
        self._move("store", s, point)
        self._change(shape)
        self._move("load", s, point)

    def _products(self, s: StageNest, point: Point) -> None:
        assert self.shape is not None and s.tiles is not None
        found, shape = _product(s), self.shape
        sums, columns = len(shape.rows) * len(shape.lanes), len(shape.lanes)
        for i, (offsets, _) in enumerate(shape.rows):
            at = self._at(s, point, offsets, 0)
            self._operand(found.left, sums + i, replace(point, lane=None), at, s.tiles[0])
            for j, lanes in enumerate(shape.lanes):
                right = sums + len(shape.rows) + j
                if i == 0:
                    like = replace(point, lane=self._lane(s, lanes))
                    at = self._at(s, point, offsets, j)
                    self._operand(found.right, right, like, at, s.tiles[1])
                numbers = i * columns + j, sums + i, right
                name = INTRINSIC[found.right.dtype]
                self.f.intrinsic(name, "void", *(("i8", str(k)) for k in numbers))

    def _operand(
        self, x: Load, number: int, like: Point, at: Mapping[str, int], along: str
    ) -> None:
        """A tile of an operand, whose rows lie along an axis."""
        place = self._place(x.tensor)
        pointer = self._pointer(place, x, like, at)
        self._access("load", number, pointer, _stride(place, x, along))

    # memory ---------------------------------------------------------------------------------------

    def _access(self, how: str, number: int, pointer: str, stride: int) -> None:
        name = {"load": "llvm.x86.tileloadd64", "store": "llvm.x86.tilestored64"}[how]
        operands = ("i8", str(number)), ("ptr", pointer), ("i64", str(stride))
        self.f.intrinsic(name, "void", *operands)

    def _pointer(self, place: Place, x: Load | Store, like: Point, at: Mapping[str, int]) -> str:
        return form_of(self.f, place, x, like).pointer(constants_of(x.index, at))

    def _place(self, tensor: str) -> Place:
        place = self.places[tensor]
        if not isinstance(place, Place):
            raise BuildError(f"expected {tensor} in memory for tiles, got it in registers")
        return place

    def _lane(self, s: StageNest, active: int) -> Lane:
        return Lane(s.vector_root or "", s.lanes, active)

    def _at(
        self, s: StageNest, point: Point, offsets: tuple[int, ...], column: int
    ) -> dict[str, int]:
        """Constants of the positions at the first element of a tile."""
        at = dict(point.constants)
        for axis, offset in zip(s.stage.parallel, offsets, strict=True):
            at[axis.name] += offset
        at[s.vector_root or ""] += column * s.lanes
        return at

    # configurations -------------------------------------------------------------------------------

    def _change(self, shape: Shape) -> None:
        assert self.shape is not None
        if shape.config != self.shape.config:
            self._configure(shape)
        self.shape = shape

    def _configure(self, shape: Shape) -> None:
        text = "".join(f"\\{byte:02X}" for byte in shape.config)
        name = f"@tiles.{shape.config.hex().rstrip('0')}"
        self.f.module.declare(
            name,
            f'{name} = internal constant [{CONFIG_BYTES} x i8] c"{text}", align {CONFIG_BYTES}',
        )
        self.f.intrinsic("llvm.x86.ldtilecfg", "void", ("ptr", name))


def _shape(s: StageNest, sizes: Mapping[str, int], groups: int) -> Shape:
    assert s.tiles is not None
    rows, vector = s.tiles[0], s.vector_root
    steps = {a.name: 1 for a in s.stage.parallel} | {rows: AMX_ROWS}
    starts = [
        range(0, 1 if a.name == vector else sizes[a.name], steps[a.name]) for a in s.stage.parallel
    ]
    number = [a.name for a in s.stage.parallel].index(rows)
    heights = tuple((at, min(AMX_ROWS, sizes[rows] - at[number])) for at in product(*starts))
    wide = sizes[vector or ""]
    lanes = tuple(min(s.lanes, wide - n) for n in range(0, wide, s.lanes))
    return Shape(heights, lanes, groups)


def _whole(nest: LoopNest, s: StageNest) -> Shape:
    """The shape of most tiles."""
    sizes = s.sizes_inside(s.written_out - 1, region(nest, s))
    return _shape(s, sizes, _depth(nest, s))


def _depth(nest: LoopNest, s: StageNest) -> int:
    assert s.tiles is not None
    return s.sizes_inside(s.written_out - 1, region(nest, s))[s.tiles[1]]


def _product(s: StageNest) -> Product:
    assert s.tiles is not None
    found = product_of(s.stage, *s.tiles, s.vector_root or "")
    if found is None:
        raise BuildError(f"{s.stage.name}: expected a product of tiles along {s.tiles}")
    return found


def _stride(place: Place, x: Load | Store, axis: str) -> int:
    """Bytes between neighbours along an axis."""
    steps = (e.coefficients.get(axis, 0) * place.strides[d, 1] for d, e in enumerate(x.index))
    return sum(steps) * BYTES[place.dtype]


def _root(nest: LoopNest, s: StageNest) -> StageNest:
    while s.at is not None:
        s = nest.stage(s.at[0])
    return s
