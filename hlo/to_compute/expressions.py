"""The value of a graph's element as an expression over loads.

Narrow floats are computed in f32: an operation of the program on bf16 or f16 is an `Apply` in f32,
and the rounding happens once, where the chain ends: at a store, the operand of a dot, and in front
of an operation that jumps (a floor, a comparison, a conversion to integers), whose result would
otherwise be off by a whole step.  A convert that the program itself writes from a wider type is
kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op, numpy_dtype
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.conversions import converted, rounded, short_name, unsupported, widened
from hlotune.hlo.to_compute.index_maps import Index, reshape_index, unravel
from hlotune.hlo.to_compute.indexed import operand_places, update_places
from hlotune.hlo.to_compute.updates import UPDATES, box_start, updates
from hlotune.schedules.dtypes import accumulator, is_float
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import (
    Affine,
    Apply,
    Const,
    Expr,
    Load,
    Lookup,
    loads,
    map_loads,
)
from hlotune.schedules.ir.monoids import Monoid
from hlotune.schedules.ir.operations import OPERATIONS, named

Shape = tuple[int, ...]
Extents = Mapping[str, int]

ELEMENTWISE = named(lambda row: row.kernels)
JUMPS = named(lambda row: row.error is not None and row.error.kind == "step") | {
    "compare", "remainder",
}  # fmt: skip
"""Operations whose results jump where an operand moves by little."""
INDEXED = frozenset({"gather", "dynamic_slice"})
"""Operations whose operand is read at places that data decides."""
VIEWS = frozenset({"reshape", "transpose", "broadcast_in_dim", "reverse", "slice"})
OPERATIONS_LIMIT = 4096
"""Expressions are trees: values used twice double them, and kernels of this size are not fast."""


@dataclass(frozen=True, slots=True)
class Known:
    """A value that an earlier stage computes: at `index`, and nowhere else, it is `expr`."""

    value: int
    index: Index
    expr: Expr


@dataclass(frozen=True, slots=True)
class Held:
    """A value that an earlier stage stores whole, in a tensor of its own."""

    tensor: str
    dtype: str
    parts: tuple[tuple[int, ...], ...]
    """For each dimension of the value the extents of the tensor's dimensions that make it up."""
    monoid: Monoid | None = None
    """The monoid by which what is stored is still to be merged with `start`."""
    start: Expr | None = None

    def at(self, index: Index, extents: Extents) -> Expr:
        """The element at an index; raises SplitAxis where an axis straddles parts."""
        found: list[Affine] = []
        for place, parts in zip(index, self.parts, strict=True):
            found += unravel(place, parts, extents)
        load = Load(self.tensor, tuple(found) or (Affine(),), self.dtype)
        if self.monoid is None or self.start is None:
            return load
        return self.monoid.merge((load,), (self.start,))[0]


@dataclass(slots=True)
class Reader:
    """Reads elements of a graph's values, at indices affine in axes of the given extents."""

    graph: Graph
    tensors: Mapping[int, str]
    """Names of the tensors that hold the arguments."""
    table: Callable[[Literal | int], str]
    """Names a tensor that holds a constant, or the first n integers in i32."""
    guard: Callable[[Shape], str]
    """Names a guard of a shape."""
    extents: Mapping[str, int]
    known: Known | None = None
    held: Mapping[int, Held] = field(default_factory=dict)
    lookup: Callable[[Expr, int], Lookup] | None = None
    """Makes a lookup of a place and the largest one; None where places must be known beforehand."""
    lookups: dict[str, Lookup] = field(default_factory=dict)
    """By name: those that indices have."""
    _producers: dict[int, Op] = field(init=False)
    _memo: dict[tuple[int, Index], tuple[Expr, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producers = {r: op for op in self.graph.ops for r in op.results}

    def read(self, value: int, index: Index) -> Expr:
        """The element at `index`, in f32 where the program's type is narrower.

        Raises:
            SplitAxis: an axis straddles a reshape.
            UnsupportedKernel: an operation without an expression, or no affine index map.
        """
        return self._counted(value, index)[0]

    def _counted(self, value: int, index: Index) -> tuple[Expr, int]:
        """The element and the number of its operations."""
        if (value, index) not in self._memo:
            self._memo[value, index] = self._element(value, index)
        return self._memo[value, index]

    def _element(self, value: int, index: Index) -> tuple[Expr, int]:
        if self.known and value == self.known.value:
            return self._known_at(index), 0
        if value in self.tensors:
            load = Load(self.tensors[value], index, self.graph.types[value].dtype)
            return widened(self._looking_up(load)), 0
        if value in self.held:
            found = self.held[value].at(index, self.extents)
            loads_ = {x: self._looking_up(x) for x in loads(found)} if self.lookups else {}
            return map_loads(found, loads_), 0
        op = self._producers[value]
        name = short_name(op)
        if name in VIEWS:
            return self._counted(op.operands[0], self._through(op, index))
        if name == "constant":
            return self._constant(cast(Literal, op["value"]), index), 0
        if name == "iota":
            return self._iota(op, index), 0
        if name == "pad":
            return self._pad(op, index)
        if name == "concatenate":
            return self._concatenate(op, index)
        if name in INDEXED:
            return self._indexed(op, index)
        if op.name in UPDATES:
            return self._updated(op, index)
        if name not in ELEMENTWISE or op.regions:
            raise unsupported(op)
        return self._apply(op, name, index)

    def _indexed(self, op: Op, index: Index) -> tuple[Expr, int]:
        """The element of a gather or a dynamic slice, at places that data decides."""
        if self.lookup is None:
            raise unsupported(op)
        places, count = list[Affine](), 0
        for place in operand_places(self.graph, op, index):
            at = place.offset
            if place.start is not None and place.most:
                start, more = self._counted(*place.start)
                at, count = at + self._place(self.lookup, start, place.most), count + more
            places.append(at)
        value, more = self._counted(op.operands[0], tuple(places))
        return value, count + more

    def updated(self, op: Op, index: Index) -> tuple[Index, tuple[Lookup, ...], list[Expr]]:
        """Where a scatter stores the update at an index, with lookups; and that it lies inside."""
        assert self.lookup, "a group has lookups"
        places, inside = list[Affine](), list[Expr]()
        for place in update_places(self.graph, op, index):
            at = place.offset
            if place.start is not None:
                start = self.read(*place.start)
                at = at + self._place(self.lookup, start, place.most)
                for name, limit in (("compare_GE", 0), ("compare_LE", place.most)):
                    inside.append(Apply(name, (start, Const(limit, start.dtype)), "i1"))
            places.append(at)
        names = dict.fromkeys(a for e in places for a, _ in e.terms if a in self.lookups)
        return tuple(places), tuple(self.lookups[a] for a in names), inside

    def _place(self, lookup: Callable[[Expr, int], Lookup], start: Expr, most: int) -> Affine:
        """A place that data decides, clamped to `0 .. most`, by the name that indices have."""
        if isinstance(start, Const):
            return Affine((), min(max(int(start.value), 0), most))
        found = lookup(start, most)
        self.lookups[found.name] = found
        self.extents = {**self.extents, found.name: most + 1}
        return Affine.axis(found.name)

    def _looking_up(self, load: Load) -> Load:
        """The load with the lookups whose names its index has."""
        if not self.lookups:
            return load
        names = dict.fromkeys(a for e in load.index for a, _ in e.terms if a in self.lookups)
        return replace(load, lookups=tuple(self.lookups[a] for a in names)) if names else load

    def _known_at(self, index: Index) -> Expr:
        assert self.known
        if index != self.known.index:
            raise UnsupportedKernel(
                f"expected every reader of the contraction to read [{_commas(self.known.index)}], "
                f"got [{_commas(index)}]; the kernel stays with the default compiler"
            )
        return self.known.expr

    def _through(self, op: Op, index: Index) -> Index:
        """The index of the operand of a view, from the index of its result."""
        shape, result = (self.graph.types[v].shape for v in (op.operands[0], op.results[0]))
        return view_index(op, shape, result, index, self.extents)

    def _constant(self, literal: Literal, index: Index) -> Expr:
        dtype = accumulator(literal.type.dtype)
        if literal.splat or literal.type.elements == 1:
            first = np.frombuffer(literal.data, numpy_dtype(literal.type.dtype))[:1]
            return Const(first.astype(numpy_dtype(dtype)).item(), dtype)
        if not any(place.terms for place in index):  # one element, whatever the kernel is at
            return Const(literal.array()[tuple(p.constant for p in index)].item(), dtype)
        return self._looking_up(Load(self.table(literal), index, dtype))

    def _iota(self, op: Op, index: Index) -> Expr:
        kind, dimension = self.graph.types[op.results[0]], cast(int, op["iota_dimension"])
        load = Load(self.table(kind.shape[dimension]), (index[dimension],), "i32")
        return widened(converted(self._looking_up(load), kind.dtype))

    def _pad(self, op: Op, index: Index) -> tuple[Expr, int]:
        """The operand's element where there is one, else the padding."""
        low, inner = numbers(op, "edge_padding_low"), numbers(op, "interior_padding")
        places = tuple(e + -n for e, n in zip(index, low, strict=True))
        padding, count = self._counted(op.operands[1], ())
        shape = self.graph.types[op.operands[0]].shape
        # between the elements of a dimension of one there is nothing
        between = [n if extent > 1 else 0 for n, extent in zip(inner, shape, strict=True)]
        divisors = tuple(n + 1 for n in between) if any(between) else ()
        value, more = self._bordered(op, op.operands[0], places, padding, divisors)
        return value, count + more

    def windowed(self, op: Op, value: int, index: Index, padding: Expr) -> Expr:
        """The element of a window's operand, or the padding, at an index that may be outside."""
        return self._bordered(op, value, index, padding)[0]

    def spread(self, load: Load, index: Index, strides: Shape, outside: int) -> Load:
        """The element of a tensor at an index divided by strides, where these divide it."""
        divisors = strides if any(n > 1 for n in strides) else ()
        return replace(load, index=index, divisors=divisors, outside=outside)

    def _bordered(
        self, op: Op, value: int, places: Index, padding: Expr, divisors: tuple[int, ...] = ()
    ) -> tuple[Expr, int]:
        """The element of a value where there is one, else the padding."""
        plain = self._plain_load(value, places, divisors)
        if plain is not None and isinstance(padding, Const):
            return widened(self._looking_up(replace(plain, outside=padding.value))), 0
        if divisors:
            raise UnsupportedKernel(
                f"expected padding between the elements of an argument or of what a stage stores, "
                f"got it around {op.name} of a computed value; the kernel stays with the default "
                "compiler"
            )
        found, count = self._counted(value, places)
        here = self._inside(places, self.graph.types[value].shape)
        if here is None:
            return found, count
        return Apply("select", (here, found, padding), found.dtype), count + 1

    def _inside(self, places: Index, shape: Shape) -> Expr | None:
        """Whether an index lies inside of a shape; None where it does everywhere."""
        ranges = {a: (0, n - 1) for a, n in self.extents.items()}
        bounds = [e.bounds(ranges) for e in places]
        may_leave = [
            d
            for d, ((low, high), n) in enumerate(zip(bounds, shape, strict=True))
            if low < 0 or high >= n
        ]
        if not may_leave:
            return None
        name = self.guard(tuple(shape[d] for d in may_leave))
        return self._looking_up(Load(name, tuple(places[d] for d in may_leave), "i1"))

    def _plain_load(self, value: int, places: Index, divisors: tuple[int, ...]) -> Load | None:
        """A load of the value's tensor, where it stands in one of its own."""
        if value in self.tensors:
            return Load(self.tensors[value], places, self.graph.types[value].dtype, divisors)
        held = self.held.get(value)
        if held is None or held.start is not None:
            return None
        one = all(
            len(p) == 1 or (not p and e == Affine())
            for p, e in zip(held.parts, places, strict=True)
        )
        kept = [d for d, p in enumerate(held.parts) if p]
        if not one or not kept:
            return None
        index, own = tuple(places[d] for d in kept), tuple(divisors[d] for d in kept if divisors)
        return Load(held.tensor, index, held.dtype, own)

    def _concatenate(self, op: Op, index: Index) -> tuple[Expr, int]:
        """The element of the operand in whose part of the result the index lies."""
        d = cast(int, op["dimension"])
        extents = [self.graph.types[v].shape[d] for v in op.operands]
        place, end = index[d], sum(extents)
        value: Expr | None = None
        count = 0
        for operand, extent in reversed(list(zip(op.operands, extents, strict=True))):
            end -= extent
            inner = (*index[:d], place + -end, *index[d + 1 :])
            found, more = self._counted(operand, inner)
            count += more + 1
            here = self._inside((inner[d],), (extent,)) if extent else None
            if value is None or (here is None and extent):
                value = found
            elif here is not None:
                value = Apply("select", (here, found, value), found.dtype)
        assert value is not None, "a concatenation has operands"
        return value, count

    def _updated(self, op: Op, index: Index) -> tuple[Expr, int]:
        """The element of the box that is updated, or of the tensor around it."""
        start = box_start(self.graph, op, self._producers)
        if start is None:
            raise unsupported(op)
        places = tuple(e + -n for e, n in zip(index, start, strict=True))
        inside, count = self._counted(updates(op), places)
        here = self._inside(places, self.graph.types[updates(op)].shape)
        if here is None:
            return inside, count
        outside, more = self._counted(op.operands[0], index)
        return Apply("select", (here, inside, outside), inside.dtype), count + more + 1

    def _apply(self, op: Op, name: str, index: Index) -> tuple[Expr, int]:
        read = [self._counted(v, index if self.graph.types[v].shape else ()) for v in op.operands]
        args = tuple(expr for expr, _ in read)
        count = sum(n for _, n in read) + (name != "convert")
        if count > OPERATIONS_LIMIT:
            raise UnsupportedKernel(
                f"expected at most {OPERATIONS_LIMIT} operations an element, got {count} up to "
                f"{op.name}; cut a smaller kernel, or leave it to the default compiler"
            )
        result = self.graph.types[op.results[0]].dtype
        if name in JUMPS or (name == "convert" and not is_float(result)):
            types = (self.graph.types[v].dtype for v in op.operands)
            args = tuple(rounded(x, dtype) for x, dtype in zip(args, types, strict=True))
        if name == "convert":
            return self._convert(args[0], self.graph.types[op.operands[0]].dtype, result), count
        if name == "compare":
            return Apply(f"compare_{direction(op)}", args, "i1"), count
        definition = OPERATIONS[name].definition
        if definition is not None:
            return definition(*args), count
        return Apply(name, args, accumulator(result)), count

    def _convert(self, arg: Expr, source: str, target: str) -> Expr:
        if accumulator(source) == target == arg.dtype:
            return arg
        return arg if source == target else widened(converted(arg, target))


def view_index(op: Op, shape: Shape, result: Shape, index: Index, extents: Extents) -> Index:
    """Where the operand of a view, of `shape`, holds what the view has at `index`."""
    name = short_name(op)
    if name == "reshape":
        return reshape_index(index, result, shape, extents)
    if name == "transpose":
        place = {p: index[d] for d, p in enumerate(numbers(op, "permutation"))}
        return tuple(place[d] for d in range(len(shape)))
    if name == "broadcast_in_dim":
        targets = numbers(op, "broadcast_dimensions")
        return tuple(index[t] if shape[d] == result[t] else Affine() for d, t in enumerate(targets))
    if name == "reverse":
        flipped = numbers(op, "dimensions")
        return tuple(e * -1 + (shape[d] - 1) if d in flipped else e for d, e in enumerate(index))
    starts, strides = numbers(op, "start_indices"), numbers(op, "strides")
    return tuple(e * strides[d] + starts[d] for d, e in enumerate(index))


def direction(op: Op) -> str:
    if op["compare_type"] == "TOTALORDER":
        raise UnsupportedKernel(
            "expected a comparison of numbers, got one in total order; "
            "the kernel stays with the default compiler"
        )
    return str(op["comparison_direction"])


def _commas(index: Index) -> str:
    return ", ".join(map(str, index))
