"""What a kernel computes, before any schedule: tensors, and stages in order.

A stage runs over parallel and reduce axes.  For each point of its parallel axes it combines, over
its reduce axes, the values of its expressions, and stores each result at an affine place.  Later
stages load what earlier ones store.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Literal

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import (
    Affine,
    Expr,
    Load,
    Lookup,
    Terms,
    distinct_loads,
    distinct_operations,
    loads,
)
from hlotune.schedules.ir.monoids import Monoid

Role = Literal["argument", "constant", "result", "temporary", "guard"]


@dataclass(frozen=True, slots=True)
class Axis:
    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Digit:
    """`axis // below % extent`, by a name that index maps may use like an axis.

    The first digit of an axis is not cut off: beyond the axis it goes on.
    """

    name: str
    axis: str
    below: int
    extent: int


@dataclass(frozen=True)
class Tensor:
    """A row-major array.

    Its role `constant` is an argument whose values are known when the program is loaded.  A `guard`
    of i1 is true everywhere and takes no memory: a load of it says whether an index lies inside.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: Role

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * BYTES[self.dtype]

    @property
    def is_outer(self) -> bool:
        """Whether a kernel is given it, or gives it."""
        return self.role in ("argument", "constant", "result")

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each dimension."""
        return tuple(prod(self.shape[d + 1 :]) for d in range(len(self.shape)))


@dataclass(frozen=True)
class Store:
    """Where a result goes: tensor and index map over the parallel axes."""

    tensor: str
    index: tuple[Affine, ...]
    lookups: tuple[Lookup, ...] = ()
    """Places that data decides, by the names that the index has for them."""

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        """The terms of the index: what places that differ in constants have in common."""
        return tuple(e.terms for e in self.index)


@dataclass(frozen=True, slots=True)
class Maps:
    """The index maps of several loads along one dimension."""

    terms: frozenset[Terms]
    least: int
    """The least of the constants."""
    most: int


@dataclass(frozen=True)
class Stage:
    """`stores[k] = combine over reduce axes of values[k]`.

    A monoid of several parts takes as many neighbouring results at a time.  Without `combine` there
    are no reduce axes.

    A stage whose stores are along its reduce axis too is a *scan*: each result is the merge of all
    points up to its own, in the order of the axis.
    """

    name: str
    parallel: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    stores: tuple[Store, ...]
    values: tuple[Expr, ...]
    combine: Monoid | None = None
    digits: tuple[Digit, ...] = ()
    """Digits of parallel axes that index maps use; each axis's from the highest down."""
    begins: tuple[Load, ...] = ()
    """What each result of a scan begins with, over the parallel axes; () for the identities."""
    onto: bool = False
    """Whether its results are merged into what an earlier stage stored there, one point of the
    reduction after the other; then its stores may have lookups along the reduction."""
    ends: tuple[tuple[str, Affine], ...] = ()
    """(axis, end): from `end` on, which is affine in parallel axes, points of the axis change
    nothing.  What a reduction would add is nothing, and what is stored there is not needed."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.parallel + self.reduce

    @property
    def extents(self) -> dict[str, int]:
        return {a.name: a.extent for a in self.axes}

    @property
    def walked_extents(self) -> dict[str, int]:
        """Those of all names that index maps have, digits among them."""
        return self.extents | {d.name: d.extent for d in self.digits}

    @cached_property
    def scans(self) -> bool:
        """Whether every prefix of its reduction is a result."""
        reduce = {a.name for a in self.reduce}
        return any(a in reduce for x in self.stores for e in x.index for a, _ in e.terms)

    @cached_property
    def groups(self) -> tuple[range, ...]:
        """Positions of the results that its monoid merges together."""
        width = self.combine.arity if self.combine else 1
        return tuple(range(k, k + width) for k in range(0, len(self.values), width))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Distinct loads, in order of reading, those of its stores' lookups first."""
        places = (y.load for x in self.stores for y in x.lookups)
        return distinct_loads((*places, *self.values, *self.begins))

    @cached_property
    def lookups(self) -> tuple[Lookup, ...]:
        """Distinct lookups of its loads and stores; index maps use their names like axes."""
        stored = (y for x in self.stores for y in x.lookups)
        loaded = (y for x in self.loads for y in x.lookups)
        return tuple(dict.fromkeys((*stored, *loaded)))

    @cached_property
    def walked_loads(self) -> tuple[Load, ...]:
        """Its loads as models of memory see them.

        A looked-up place is taken to be the position of the load that gives it, so that each
        lookup finds an element of its own.
        """
        return tuple(map(self.walked, self.loads)) if self.lookups else self.loads

    def walked(self, load: Load) -> Load:
        """One of its loads without lookups, as `walked_loads` has it."""
        if not load.lookups:
            return load
        places = dict[str, Affine]()
        for x in load.lookups:
            place = Affine()
            for axis in x.load.axes:
                place = place * self.extents[axis] + Affine.axis(axis)
            places[x.name] = place
        return replace(load, index=tuple(e.substitute(places) for e in load.index), lookups=())

    @cached_property
    def stored_axes(self) -> tuple[str | None, ...] | None:
        """The axis along each dimension of its results; None for a dimension of constant places.

        None at all where results are no arrays over the parallel axes in order: these (tables of
        constants, parts of split dimensions) lie as their tensors do.
        """
        own = [Affine.axis(a.name) for a in self.parallel]
        places = {tuple(bool(e.terms) for e in x.index) for x in self.stores}
        if len(places) != 1 or any([e for e in x.index if e.terms] != own for x in self.stores):
            return None
        return tuple(e.terms[0][0] if e.terms else None for e in self.stores[0].index)

    @cached_property
    def stored(self) -> frozenset[str]:
        """The tensors that it stores to."""
        return frozenset(x.tensor for x in self.stores)

    @cached_property
    def maps(self) -> dict[str, tuple[Maps, ...]]:
        """By tensor that it loads, the index maps of each dimension."""
        found = dict[str, list[Load]]()
        for x in self.loads:
            found.setdefault(x.tensor, []).append(x)
        return {name: _maps(xs) for name, xs in found.items()}

    @cached_property
    def derived(self) -> dict[object, object]:
        """What was made of it, by what it was made for: candidates have stages in common."""
        return {}

    @property
    def points(self) -> int:
        return prod(a.extent for a in self.axes)

    @cached_property
    def needed_points(self) -> int:
        """Points ahead of the ends of axes."""
        kept = self.points
        for axis, end in self.ends:
            extents = self.extents
            walked = [range(extents[a]) for a, _ in end.terms]
            places = (dict(zip(end.coefficients, x, strict=True)) for x in product(*walked))
            ahead = sum(min(max(end.value(at), 0), extents[axis]) for at in places)
            kept = kept * ahead // max(1, extents[axis] * prod(map(len, walked)))
        return kept

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations, padding and inserted zeros included."""
        merges = 0
        if self.combine:
            types = [tuple(self.values[k].dtype for k in group) for group in self.groups]
            merges = sum(map(self.combine.operations, types))
        return (distinct_operations(self.values) + merges) * self.points


def _maps(found: list[Load]) -> tuple[Maps, ...]:
    """The maps of loads of one tensor, dimension by dimension."""
    result = []
    for along in zip(*(x.index for x in found), strict=True):
        constants = [e.constant for e in along]
        terms = frozenset(e.terms for e in along)
        result.append(Maps(terms, min(constants), max(constants)))
    return tuple(result)


@dataclass(frozen=True)
class Compute:
    """Tensors: arguments as the kernel takes them, results, temporaries.  Stages in order."""

    tensors: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    leaves_precision: bool = False
    """Whether the program leaves it to the device how f32 operands of products are rounded."""

    @cached_property
    def rewritten(self) -> dict[str, "Compute"]:
        """What algorithms made of it, by name: schedules of one kernel come by the hundred."""
        return {}

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        return {t.name: t for t in reversed(self.tensors)}

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def stage(self, name: str) -> Stage:
        return next(s for s in self.stages if s.name == name)

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role in ("argument", "constant"))

    @property
    def results(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role == "result")

    @cached_property
    def moved_bytes(self) -> int:
        """The bytes of arguments and results, each counted once; of an argument that is read only
        at places that data decides, no more than what is read.
        """
        return sum(t.bytes for t in self.results) + sum(map(self._read_bytes, self.arguments))

    def _read_bytes(self, argument: Tensor) -> int:
        loads = [(s, x) for s in self.stages for x in s.loads if x.tensor == argument.name]
        if not loads or not all(x.lookups for _, x in loads):
            return argument.bytes
        read = sum(prod(s.walked_extents[a] for a in x.axes) for s, x in loads)
        return min(argument.bytes, read * BYTES[argument.dtype])

    def producer(self, tensor: str) -> Stage | None:
        """The stage that stores a tensor, or None for an argument."""
        return next((s for s in self.stages if any(x.tensor == tensor for x in s.stores)), None)

    def __str__(self) -> str:
        return "\n".join(lines(self))


def lines(compute: Compute) -> Iterator[str]:
    for t in compute.tensors:
        yield f"{t.role} {t.name}: {'x'.join(map(str, (*t.shape, t.dtype)))}"
    for s in compute.stages:
        axes = ", ".join(f"{a.name}<{a.extent}" for a in s.axes)
        for store, value in zip(s.stores, s.values, strict=True):
            place = f"{store.tensor}[{', '.join(map(str, store.index))}]"
            over = "up to" if s.scans else "over"
            how = f" {s.combine} {over} {' '.join(a.name for a in s.reduce)}" if s.combine else ""
            how += " onto it" * s.onto
            until = "".join(f" until {axis} = {end}" for axis, end in s.ends)
            places = lookups_text(value, store.lookups)
            yield f"{s.name} ({axes}): {place} ={how} {value}{until}{places}"


def lookups_text(value: Expr, stored: tuple[Lookup, ...] = ()) -> str:
    """The places that data decides in an expression, as text behind it; "" where there are none."""
    found = dict.fromkeys((*stored, *(x for load in loads(value) for x in load.lookups)))
    return f" where {', '.join(map(str, found))}" if found else ""
