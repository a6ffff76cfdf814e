"""Where the tensors of a kernel lie: in its arguments and results, in scratch, in registers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.points import Span
from hlotune.codegen.runtime.abi import ARGUMENTS, RESULTS, SCRATCH
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.borders import index_ranges
from hlotune.schedules.ir.compute import Store, Tensor
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.kept_in_results import result_around
from hlotune.schedules.ir.load_time import constant_of, offset_bytes
from hlotune.schedules.ir.nest import (
    Layout,
    LoopNest,
    StageNest,
    is_in_own_order,
    stored_bytes,
    stored_shape,
    strides,
)
from hlotune.schedules.targets.cpu import LINE_BYTES

APART_BYTES = 8 * LINE_BYTES
"""What is left free between buffers of the scratch.

Equal offsets in two buffers, or in one and an argument, are then in different sets of the first
cache, and so far apart modulo a page that a load does not seem to read what the stores of the
vectors just before it write.
"""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A tensor in memory: pointer, the index of its first element, layout."""

    base: str
    """An SSA name that holds in the whole function."""
    shape: tuple[int, ...]
    """Extents of what is stored there."""
    dtype: str
    origin: tuple[Affine, ...]
    strides: Mapping[tuple[int, int], int]
    layout: Layout = ()
    checked: bool = False
    """Whether loads may lie outside, or are inside by construction."""
    constant: bool = False
    """Whether nothing writes there while the function runs."""
    nowhere: str = ""
    """Where checked stores go that lie outside."""
    is_guard: bool = False
    """Whether nothing is read there: a load only says whether it lies inside."""
    beside: int = 0
    """Dimensions at the end that take no memory: those of a load which must be real as well."""

    @cached_property
    def blocks(self) -> dict[int, int]:
        """The blocks of the dimensions that have some."""
        return {d: b for d, b in self.layout if b > 1}

    @cached_property
    def checks(self) -> range:
        """Dimensions along which loads may lie outside."""
        return range(0 if self.checked else len(self.shape) - self.beside, len(self.shape))

    @cached_property
    def forms(self) -> dict[object, object]:
        """What accesses to it have in common, as `access_forms.py` keeps it."""
        return {}

    @cached_property
    def _besides(self) -> dict[tuple[int, ...], "Place"]:
        return {}

    def with_beside(self, shape: tuple[int, ...]) -> "Place":
        """The place for a load that is real only where another is, of a tensor of that shape."""
        if shape not in self._besides:
            none = {(len(self.shape) + d, 1): 0 for d in range(len(shape))}
            self._besides[shape] = replace(
                self, shape=self.shape + shape, origin=self.origin + _zeros(shape),
                strides={**self.strides, **none}, beside=len(shape),
            )  # fmt: skip
        return self._besides[shape]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in registers: the position of its first element on each axis."""

    stage: str
    origin: dict[str, Affine]
    dtype: str


class Scratch:
    """Where temporaries lie: those of a call first, then for each slot those of its task."""

    def __init__(self, nest: LoopNest) -> None:
        self.offsets: dict[str, int] = {}
        self.call_bytes = self.slot_bytes = 0
        for s in nest.stages:
            if s.scope == "call":
                self.call_bytes = self._add(s, stored_bytes(nest, s), self.call_bytes)
            elif s.scope == "task":
                size = 0 if result_around(nest, s) else stored_bytes(nest, s)
                self.slot_bytes = self._add(s, size, self.slot_bytes)
        self.nowhere = self.slot_bytes
        self.slot_bytes += _nowhere_bytes(nest)
        self.bytes = self.call_bytes + nest.target.threads * self.slot_bytes

    def _add(self, s: StageNest, size: int, used: int) -> int:
        self.offsets[s.stage.name] = used
        return used + ceil(size / LINE_BYTES) * LINE_BYTES + (APART_BYTES if size else 0)


def may_overrun(nest: LoopNest, s: StageNest) -> bool:
    """Whether some store of a stage's results lies outside of its tensor at some point."""
    return any(_may_lie_outside(nest, s, x) for x in s.stage.stores)


def _may_lie_outside(nest: LoopNest, s: StageNest, x: Store) -> bool:
    ranges = index_ranges(s.stage)
    for e, extent in zip(x.index, nest.compute.tensor(x.tensor).shape, strict=True):
        low, high = e.bounds(ranges)
        if low < 0 or high >= extent:
            return True
    return False


def _nowhere_bytes(nest: LoopNest) -> int:
    """Room for any vector that nobody reads, in lines.

    A vector has the lanes of its stage, which are those of the sums; its elements may be wider.
    """
    sizes = [
        s.lanes * BYTES[nest.compute.tensor(x.tensor).dtype]
        for s in nest.stages
        for x in s.stage.stores
        if _may_lie_outside(nest, s, x)
    ]
    return ceil(max(sizes, default=0) / LINE_BYTES) * LINE_BYTES


class Places:
    """The places of one root stage's function, made as its stages are entered."""

    def __init__(self, nest: LoopNest, root: StageNest, f: Function, scratch: Scratch) -> None:
        self.nest, self.root, self.f, self.scratch = nest, root, f, scratch
        self._places: dict[str, Place | Held] = {}
        self.version = 0
        """Grows as tensors are placed anew."""

    def __getitem__(self, tensor: str) -> Place | Held:
        return self._places[tensor]

    def __setitem__(self, tensor: str, place: Place | Held) -> None:
        self._places[tensor] = place
        self.version += 1

    def open(self, s: StageNest, spans: Mapping[str, Span]) -> None:
        """Says where a stage's results go, and where its loads from outside the function come from.

        `spans` is the region that the stage is about to compute.
        """
        origin = {a.name: spans[a.name].low for a in s.stage.parallel}
        corner = tuple(origin.get(a or "", Affine()) for a in s.stage.stored_axes or ())
        for name in dict.fromkeys(x.tensor for x in s.stage.stores):
            tensor = self.nest.compute.tensor(name)
            if s.scope == "register":
                self[tensor.name] = Held(s.stage.name, origin, tensor.dtype)
            elif tensor.role == "result":
                self[tensor.name] = self._result(s, tensor)
            else:
                self[tensor.name] = self._temporary(s, tensor, corner)
        for name in dict.fromkeys(x.tensor for x in s.stage.loads):
            maker = self.nest.producer(name)
            if name not in self._places and (maker is None or maker.at is None):
                self[name] = self._source(name)

    def _argument(self, tensor: Tensor) -> Place:
        compute = self.nest.compute
        is_result = tensor.role == "result"
        position = (compute.results if is_result else compute.arguments).index(tensor)
        if self.root.scope == "load":
            position = 0
        base = self._call_pointer(RESULTS if is_result else ARGUMENTS, position)
        return Place(
            base=base, shape=tensor.shape, dtype=tensor.dtype, strides=strides((), tensor.shape),
            origin=_zeros(tensor.shape), checked=not is_result, constant=not is_result,
        )  # fmt: skip

    def _result(self, s: StageNest, tensor: Tensor) -> Place:
        """A result; what a stage stores beyond its end goes nowhere."""
        place = self._argument(tensor)
        if not may_overrun(self.nest, s):
            return place
        return replace(place, checked=True, nowhere=self._slot_pointer(self.scratch.nowhere))

    def _source(self, name: str) -> Place:
        """A tensor that an earlier root stage made, or an argument; results are where they go."""
        tensor, maker = self.nest.compute.tensor(name), self.nest.producer(name)
        if tensor.role == "guard":
            return _guard(tensor)
        if maker is None or tensor.role == "result":
            return replace(self._argument(tensor), checked=True)
        return self._temporary(maker, tensor, _zeros(tensor.shape))

    def _temporary(self, s: StageNest, tensor: Tensor, origin: tuple[Affine, ...]) -> Place:
        around = result_around(self.nest, s)
        if around is not None:
            return self._argument(around)
        shape, own = stored_shape(self.nest, s), is_in_own_order(s.stage)
        layout = s.layout or (_vector_last(s, len(shape)) if own else ())
        return Place(
            base=self._packed(s) if s.scope == "load" else self._scratch(s, tensor),
            shape=shape,
            dtype=tensor.dtype,
            strides=strides(layout, shape, s.spacing),
            origin=origin if own else _zeros(shape),
            layout=layout,
            checked=not s.layout and s.at is None,
            constant=self.root is not s and s.at is None,
        )

    def _packed(self, s: StageNest) -> str:
        """What is made of a constant at load time stands in its argument's place."""
        offset = offset_bytes(self.nest, s)
        if self.root.scope == "load":
            return self._at(self._call_pointer(RESULTS, 0), offset)
        source = self.nest.compute.tensor(constant_of(self.nest, s))
        position = self.nest.compute.arguments.index(source)
        return self._at(self._call_pointer(ARGUMENTS, position), offset)

    def _scratch(self, s: StageNest, tensor: Tensor) -> str:
        names = dict.fromkeys(x.tensor for x in s.stage.stores)
        stored = [t for t in map(self.nest.compute.tensor, names) if t.role == "temporary"]
        sizes = [BYTES[t.dtype] for t in stored]
        elements = stored_bytes(self.nest, s) // sum(sizes)
        part = elements * sum(sizes[: stored.index(tensor)])
        offset = self.scratch.offsets[s.stage.name] + part
        start = self.f.hoisted(0, f"load ptr, ptr {self._at('%call', SCRATCH)}")
        if s.scope == "call":
            return self._at(start, offset)
        return self._slot_pointer(offset)

    def _slot_pointer(self, offset: int) -> str:
        start = self.f.hoisted(0, f"load ptr, ptr {self._at('%call', SCRATCH)}")
        slot = self.f.hoisted(0, f"mul nsw i64 %slot, {self.scratch.slot_bytes}")
        mine = self.f.hoisted(0, f"getelementptr i8, ptr {start}, i64 {slot}")
        return self._at(mine, self.scratch.call_bytes + offset)

    def _call_pointer(self, field: int, position: int) -> str:
        table = self.f.hoisted(0, f"load ptr, ptr {self._at('%call', field)}")
        return self.f.hoisted(0, f"load ptr, ptr {self._at(table, 8 * position)}")

    def _at(self, pointer: str, offset: int) -> str:
        if not offset:
            return pointer
        return self.f.hoisted(0, f"getelementptr i8, ptr {pointer}, i64 {offset}")


def _guard(tensor: Tensor) -> Place:
    none = {(d, 1): 0 for d in range(len(tensor.shape))}
    return Place(
        base="null", shape=tensor.shape, dtype=tensor.dtype, strides=none, is_guard=True,
        origin=_zeros(tensor.shape), checked=True, constant=True,
    )  # fmt: skip


def _zeros(shape: tuple[int, ...]) -> tuple[Affine, ...]:
    return tuple(Affine() for _ in shape)


def _vector_last(s: StageNest, rank: int) -> Layout:
    """Row-major, but with the vectorized axis fastest, so that vectors are neighbours."""
    names = s.stage.stored_axes or ()
    order = [d for d in range(rank) if names[d] != s.vector_root]
    order += [d for d in range(rank) if names[d] == s.vector_root]
    return tuple((d, 1) for d in order)
