"""From a kernel's graph to its compute.

A kernel is one dot or convolution, with elementwise operations, views and constants before and
after it.  It becomes

    pre*       what varies along fewer axes than its user (per-channel scales), tables of constants,
               operands whose prologue is not zero where the convolution pads, and results that
               the contraction has no part in
    contract   the sum of products into `acc`, the prologues of its operands in its value
    out        the epilogue, over the same parallel axes

Axes of extent 1 are left out, axes always walked together are merged (`collapse_axes.py`).  A
kernel without a contraction is an `out` stage alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from hlotune.hlo.graph import Graph, Literal, Op, numpy_dtype
from hlotune.hlo.to_compute.collapse_axes import collapse
from hlotune.hlo.to_compute.contractions import CONTRACTIONS, Contraction, Place, contraction
from hlotune.hlo.to_compute.dilation_phases import phases
from hlotune.hlo.to_compute.expressions import Known, Reader, converted, followed, narrowed
from hlotune.hlo.to_compute.index_maps import Domain, Index, unravel
from hlotune.hlo.to_compute.prologues import (
    hoisted,
    is_zero_of_zeros,
    placed,
    vanishes,
    varying,
    walks_alone,
)
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.ir.monoids import SUM

TABLE_ELEMENTS = 64
"""Longer constants are arguments of a kernel."""
RADIX = 16
"""Integers from 0 up are computed as digits of this base."""


def compute_of(graph: Graph) -> Compute:
    """The compute of a kernel.

    Raises:
        UnsupportedKernel: an operation that has no compute, several contractions, an empty result,
            or a reshape that is not affine however axes are split.
    """
    _refuse_empty(graph)
    anchors = [op for op in graph.ops if op.name in CONTRACTIONS]
    if len(anchors) > 1:
        raise UnsupportedKernel(
            f"expected one dot_general or convolution, got {len(anchors)}; cut one kernel for each"
        )
    assembly = _Assembly(graph)
    if anchors:
        assembly.contraction(anchors[0])
    else:
        assembly.elementwise()
    return collapse(phases(Compute(assembly.tensors(), tuple(assembly.stages))))


def _refuse_empty(graph: Graph) -> None:
    """Sums of no products are zeros; of other operations none makes something of nothing."""
    empty = [0 in t.shape for t in graph.types]
    for op in graph.ops:
        whole = not any(empty[v] for v in op.results)
        if whole and op.name not in CONTRACTIONS and any(empty[v] for v in op.operands):
            raise UnsupportedKernel(
                f"expected operands with elements, got {op.name} of an empty tensor; "
                "the kernel stays with the default compiler"
            )
    if any(empty[v] for v in graph.results):
        raise UnsupportedKernel(
            "expected results with elements, got an empty one, which takes no time; "
            "the kernel stays with the default compiler"
        )


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a contraction: its value over `domain`, and where the axes of that stand."""

    domain: Domain
    expr: Expr
    places: tuple[Place, ...]

    def at(self, outer: Domain) -> Expr:
        """The value over the contraction's axes; raises SplitAxis where they straddle a reshape."""
        moved: dict[str, Place] = {}
        for d, place in enumerate(self.places):
            index = place.index.substitute(outer.places)
            axes = self.axes(d)
            if len(axes) == 1:
                moved[axes[0].name] = Place(index, place.divisor)
            else:
                split = unravel(index, [a.extent for a in axes], outer.extents)
                moved |= {a.name: Place(e) for a, e in zip(axes, split, strict=True)}
        return placed(self.expr, moved)

    def axes(self, dimension: int) -> list[Axis]:
        """What has become of the axis of a dimension: itself, or its parts in order."""
        names = self.domain.places[f"d{dimension}"].coefficients
        return [a for a in self.domain.parallel if a.name in names]


@dataclass(frozen=True, slots=True)
class _Output:
    """A result of the kernel that the contraction reaches: its position, its index, its value."""

    position: int
    index: Index
    expr: Expr


@dataclass(slots=True)
class _Assembly:
    """The compute of one graph, while it grows."""

    graph: Graph
    stages: list[Stage] = field(default_factory=list)
    temporaries: list[Tensor] = field(default_factory=list)
    tables: dict[Literal | int, str] = field(default_factory=dict)
    hoists: dict[tuple[Expr, tuple[Axis, ...]], Load] = field(default_factory=dict)

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
        return Reader(self.graph, names, self.table, domain.extents, known)

    def contraction(self, op: Op) -> None:
        """The stages of a kernel around its contraction."""
        dtype = self.sum_type(op)
        if dtype == "i1":
            raise UnsupportedKernel(
                f"expected a contraction of numbers, got {op.name} of i1; "
                "the kernel stays with the default compiler"
            )
        terms = contraction(self.graph, op)
        if any(0 in self.graph.types[v].shape for v in op.operands):
            self.no_products(op, terms)
            return
        start = Domain.of(terms.parallel, terms.reduce)
        pairs = zip(op.operands, terms.places, strict=True)
        operands = [self.operand(v, p, start.extents) for v, p in pairs]
        domain, factors, outputs = start.settle(
            lambda d: (d, [x.at(d) for x in operands], self.outputs(op, terms, d))
        )
        product = Apply("multiply", tuple(converted(x, dtype) for x in factors), dtype)
        self.sums(domain, outputs, product)

    def no_products(self, op: Op, terms: Contraction) -> None:
        """The stages around sums of nothing, which are zeros."""
        found = Domain.of(terms.parallel).settle(lambda d: (d, self.outputs(op, terms, d)))
        self.sums(*found, Const(0, self.sum_type(op)))

    def sum_type(self, op: Op) -> str:
        return accumulator(self.graph.types[op.results[0]].dtype)

    def sums(self, domain: Domain, outputs: list[_Output], value: Expr) -> None:
        """The stage that sums a value up, those beside it, and the one behind it."""
        self.aside({x.position for x in outputs})
        epilogue = self.out(domain, outputs)
        domain = domain.filled()
        self.temporary("acc", tuple(a.extent for a in domain.parallel), value.dtype)
        store = Store("acc", _identity(domain.parallel))
        contract = Stage("contract", domain.parallel, domain.reduce, (store,), (value,), SUM)
        self.stages += contract, epilogue

    def elementwise(self) -> None:
        """The one stage of a kernel without a contraction, over the axes of its first result."""
        shapes = [t.shape for t in self.graph.result_types]
        if len(set(shapes)) > 1:
            raise UnsupportedKernel(
                f"expected results of one shape where nothing is contracted, got {shapes}; "
                "cut one kernel for each"
            )

        def build(domain: Domain) -> tuple[Domain, list[_Output]]:
            index = tuple(domain.places[f"d{d}"] for d in range(len(shapes[0])))
            reader = self.reader(domain)
            results = enumerate(self.graph.results)
            return domain, [_Output(k, index, reader.read(v, index)) for k, v in results]

        domain, outputs = Domain.of(_dimensions(shapes[0])).settle(build)
        self.stages.append(self.out(domain, outputs))

    def outputs(self, op: Op, terms: Contraction, domain: Domain) -> list[_Output]:
        """The results behind the contraction."""
        load = Load("acc", _identity(domain.filled().parallel), self.sum_type(op))
        index = tuple(e.substitute(domain.places) for e in terms.output)
        found = followed(self.graph, op.results[0], index, domain.extents)
        reader = self.reader(domain, Known(op.results[0], index, load))
        return [
            _Output(k, found[v], reader.read(v, found[v]))
            for k, v in enumerate(self.graph.results)
            if v in found
        ]

    def out(self, domain: Domain, outputs: list[_Output]) -> Stage:
        types = self.graph.result_types
        stores = tuple(Store(f"y{x.position}", x.index) for x in outputs)
        values = tuple(
            narrowed(self.hoist(x.expr, domain.parallel), types[x.position].dtype) for x in outputs
        )
        return Stage("out", domain.filled().parallel, (), stores, values)

    def aside(self, done: set[int]) -> None:
        """Stages for the results that the contraction has no part in."""
        for k, v in enumerate(self.graph.results):
            if k not in done:
                domain, expr = self.view(v)
                self.materialise(f"y{k}", self.graph.types[v].dtype, domain, expr)

    def view(self, value: int) -> tuple[Domain, Expr]:
        """A value over the axes `d0 d1 ...` of its own dimensions."""
        shape = self.graph.types[value].shape

        def build(domain: Domain) -> tuple[Domain, Expr]:
            index = tuple(domain.places[f"d{d}"] for d in range(len(shape)))
            return domain, self.reader(domain).read(value, index)

        domain, expr = Domain.of(_dimensions(shape), units=True).settle(build)
        return domain, self.hoist(expr, tuple(a for a in domain.parallel if a.extent > 1))

    def operand(
        self, value: int, places: tuple[Place, ...], extents: Mapping[str, int]
    ) -> _Operand:
        """An operand, its prologue in a stage of its own where padding must come after it, or where
        phases could not leave out what it makes of inserted zeros."""
        kind = self.graph.types[value]
        domain, expr = self.view(value)
        ranges = {a: (0, n - 1) for a, n in extents.items()}
        units = {a: Affine() for p in places for a in p.index.coefficients if a not in extents}
        padded = {}
        for d, place in enumerate(places):
            low, high = place.index.substitute(units).bounds(ranges)
            if place.divisor > 1 or low < 0 or high >= kind.shape[d]:
                padded[f"d{d}"] = kind.shape[d]
        shapes = {t.name: t.shape for t in (*self.arguments(), *self.temporaries)}
        dilated = any(place.divisor > 1 for place in places)
        if padded and not (
            vanishes(expr, padded, shapes)
            and all(walks_alone(expr, a) for a in padded)
            and not (dilated and not is_zero_of_zeros(expr))
        ):
            name = self.temporary("pre", kind.shape, kind.dtype)
            self.materialise(name, kind.dtype, domain, expr)
            domain = Domain.of(_dimensions(kind.shape), units=True)
            expr = Load(name, _identity(domain.parallel), kind.dtype)
        return _Operand(domain, narrowed(expr, kind.dtype), places)

    def materialise(self, tensor: str, dtype: str, domain: Domain, expr: Expr) -> None:
        """A stage that stores a value over its own dimensions."""
        kept = tuple(a for a in domain.parallel if a.extent > 1)
        pinned = _pinned(domain.extents, kept)
        zero = {a: place.index for a, place in pinned.items()}
        index = tuple(e.substitute(zero) for e in domain.places.values())
        value = placed(narrowed(expr, dtype), pinned)
        self.stage(kept or (Axis("unit", 1),), (Store(tensor, index),), (value,))

    def hoist(self, expr: Expr, axes: tuple[Axis, ...]) -> Expr:
        """The expression with what varies along fewer than `axes` in stages of its own."""

        def save(part: Expr, used: frozenset[str]) -> Load:
            kept = tuple(a for a in axes if a.name in used)
            part = placed(part, _pinned(varying(part), kept))
            if (part, kept) not in self.hoists:
                value = hoisted(part, used, save)
                name = self.temporary("pre", tuple(a.extent for a in kept), part.dtype)
                self.stage(kept, (Store(name, _identity(kept)),), (value,))
                self.hoists[part, kept] = Load(name, _identity(kept), part.dtype)
            return self.hoists[part, kept]

        return hoisted(expr, frozenset(a.name for a in axes), save)

    def table(self, content: Literal | int) -> str:
        """A tensor with a constant's values, or with the integers from 0 to at least n - 1."""
        if content not in self.tables:
            if isinstance(content, int):
                self.tables[content] = self.integers(content)
            else:
                self.tables[content] = self.constants(content)
        return self.tables[content]

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
        high = Load(self.table(rows), (Affine.axis("h"),), "i32")
        low = Load(self.table(RADIX), (Affine.axis("l"),), "i32")
        name = self.temporary("pre", (rows * RADIX,), "i32")
        store = Store(name, (Affine.of({"h": RADIX, "l": 1}),))
        value = Apply("add", (Apply("multiply", (high, Const(RADIX, "i32")), "i32"), low), "i32")
        self.stage((Axis("h", rows), Axis("l", RADIX)), (store,), (value,))
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


def _identity(axes: tuple[Axis, ...]) -> Index:
    return tuple(Affine.axis(a.name) for a in axes)


def _dimensions(shape: tuple[int, ...]) -> tuple[Axis, ...]:
    return tuple(Axis(f"d{d}", n) for d, n in enumerate(shape))


def _pinned(names: Iterable[str], kept: tuple[Axis, ...]) -> dict[str, Place]:
    """Places that keep the axes of `kept`, and put 0 for the others."""
    stay = {a.name for a in kept}
    return {a: Place(Affine.axis(a) if a in stay else Affine()) for a in names}
