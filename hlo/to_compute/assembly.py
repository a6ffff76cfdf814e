"""What all kernels' computes are put together with: tensors, tables of constants, hoisted parts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from hlotune.hlo.graph import Graph, Literal, numpy_dtype
from hlotune.hlo.to_compute.contractions import Place
from hlotune.hlo.to_compute.expressions import Held, Known, Reader
from hlotune.hlo.to_compute.index_maps import Domain, Index
from hlotune.hlo.to_compute.prologues import hoisted, placed, varying
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, Lookup, only_moves

TABLE_ELEMENTS = 64
"""Longer constants are arguments of a kernel."""
RADIX = 16
"""Integers from 0 up are computed as digits of this base."""


@dataclass(slots=True)
class Assembly:
    """The compute of one graph, while it grows."""

    graph: Graph
    stages: list[Stage] = field(default_factory=list)
    temporaries: list[Tensor] = field(default_factory=list)
    tables: dict[Literal | int, str] = field(default_factory=dict)
    hoists: dict[tuple[Expr, tuple[Axis, ...]], Load] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)
    """By value: those that stages store whole."""
    lookups: dict[tuple[Load, int], str] = field(default_factory=dict)
    """Names of the places that data decides, by the load and the largest place."""

    def tensors(self) -> tuple[Tensor, ...]:
        return (*self.arguments(), *self.results(), *self.temporaries)

    def arguments(self) -> list[Tensor]:
        constant = self.graph.constants
        return [
            Tensor(f"a{k}", t.shape, t.dtype, "constant" if v in constant else "argument")
            for k, (v, t) in enumerate(
                zip(self.graph.arguments, self.graph.argument_types, strict=True)
            )
        ]

    def results(self) -> list[Tensor]:
        types = self.graph.result_types
        return [Tensor(f"y{k}", t.shape, t.dtype, "result") for k, t in enumerate(types)]

    def reader(self, domain: Domain, known: Known | None = None) -> Reader:
        names = {v: f"a{k}" for k, v in enumerate(self.graph.arguments)}
        lookup = None if known else partial(self.lookup, domain.parallel + domain.reduce)
        extents = domain.extents
        tensors = self.graph, names, self.table, self.guard
        return Reader(*tensors, extents, known, self.held, lookup)

    def lookup(self, axes: tuple[Axis, ...], place: Expr, most: int) -> Lookup:
        """A place that data decides; what is computed for it has a stage of its own."""
        used = varying(place)
        kept = tuple(a for a in axes if a.name in used)
        load = place if isinstance(place, Load) else self.saved(place, kept, place)
        name = self.lookups.setdefault((load, most), f"@{len(self.lookups)}")
        return Lookup(name, load, most)

    def hoist(self, expr: Expr, axes: tuple[Axis, ...]) -> Expr:
        """The expression with what varies along fewer than `axes` in stages of its own.

        One that only moves elements stays whole: each is read where it goes to.
        """
        guards = {t.name for t in self.temporaries if t.role == "guard"}
        if only_moves(expr, guards):
            return expr

        def save(part: Expr, used: frozenset[str]) -> Load:
            kept = tuple(a for a in axes if a.name in used)
            part = placed(part, pinned(varying(part), kept))
            if (part, kept) in self.hoists:
                return self.hoists[part, kept]
            return self.saved(part, kept, hoisted(part, used, save))

        return hoisted(expr, frozenset(a.name for a in axes), save)

    def saved(self, part: Expr, kept: tuple[Axis, ...], value: Expr) -> Load:
        """A load of what a stage of its own stores: `value`, which is `part` over some axes."""
        if (part, kept) not in self.hoists:
            axes = kept or (Axis("unit", 1),)
            name = self.temporary("pre", tuple(a.extent for a in axes), part.dtype)
            index = identity(kept) or (Affine(),)
            store = Store(name, identity(axes))
            self.stage(axes, (store,), (value,))
            self.hoists[part, kept] = Load(name, index, part.dtype)
        return self.hoists[part, kept]

    def table(self, content: Literal | int) -> str:
        """A tensor with a constant's values, or with the integers from 0 to at least n - 1."""
        if content not in self.tables:
            if isinstance(content, int):
                self.tables[content] = self.integers(content)
            else:
                self.tables[content] = self.constants(content)
        return self.tables[content]

    def guard(self, shape: tuple[int, ...]) -> str:
        """A guard of a shape."""
        name = "inside" + "x".join(map(str, shape))
        if all(t.name != name for t in self.temporaries):
            self.temporaries.append(Tensor(name, shape, "i1", "guard"))
        return name

    def constants(self, literal: Literal) -> str:
        shape, dtype = literal.type.shape, accumulator(literal.type.dtype)
        if literal.type.elements > TABLE_ELEMENTS:
            raise UnsupportedKernel(
                f"expected constants of at most {TABLE_ELEMENTS} elements, got {literal.type}; "
                "make it an argument marked hlotune.constant"
            )
        name = self.temporary("pre", shape, dtype)
        values = literal.array().astype(numpy_dtype(dtype))
        stores = tuple(Store(name, tuple(Affine((), i) for i in at)) for at in np.ndindex(shape))
        self.stage((Axis("unit", 1),), stores, tuple(Const(x.item(), dtype) for x in values.flat))
        return name

    def integers(self, n: int) -> str:
        if n <= RADIX:
            name = self.temporary("pre", (n,), "i32")
            stores = tuple(Store(name, (Affine((), i),)) for i in range(n))
            self.stage((Axis("unit", 1),), stores, tuple(Const(i, "i32") for i in range(n)))
            return name
        rows = -(-n // RADIX)
        high_axis, low_axis = f"h{n}", f"l{n}"  # stages with equal axes walk them together
        high = Load(self.table(rows), (Affine.axis(high_axis),), "i32")
        low = Load(self.table(RADIX), (Affine.axis(low_axis),), "i32")
        name = self.temporary("pre", (rows * RADIX,), "i32")
        store = Store(name, (Affine.of({high_axis: RADIX, low_axis: 1}),))
        value = Apply("add", (Apply("multiply", (high, Const(RADIX, "i32")), "i32"), low), "i32")
        self.stage((Axis(high_axis, rows), Axis(low_axis, RADIX)), (store,), (value,))
        return name

    def temporary(self, name: str, shape: tuple[int, ...], dtype: str) -> str:
        """A new temporary tensor; `pre` gets a number."""
        if name == "pre":
            name = f"t{len(self.temporaries)}"
        self.temporaries.append(Tensor(name, shape, dtype, "temporary"))
        return name

    def stage(
        self, axes: tuple[Axis, ...], stores: tuple[Store, ...], values: tuple[Expr, ...]
    ) -> None:
        self.stages.append(Stage(f"pre{len(self.stages)}", axes, (), stores, values))


def identity(axes: tuple[Axis, ...]) -> Index:
    return tuple(Affine.axis(a.name) for a in axes)


def dimensions(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(f"d{d}", n) for d, n in enumerate(shape))


def pinned(names: Iterable[str], kept: tuple[Axis, ...]) -> dict[str, Place]:
    """Places that keep the axes of `kept`, and put 0 for the others."""
    stay = {a.name for a in kept}
    return {a: Place(Affine.axis(a) if a in stay else Affine()) for a in names}
