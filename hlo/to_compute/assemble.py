"""From a kernel's graph to its compute.

A kernel is one dot or convolution, with elementwise operations, views and constants before and
after it.  It becomes

    pre*       what varies along fewer axes than its user (per-channel scales), tables of constants,
               operands whose prologue is not zero where the convolution pads, or is long and of few
               numbers that are used often, and results that the contraction has no part in
    contract   the sum of products into `acc`, the prologues of its operands in its value
    out        the epilogue, over the same parallel axes

Axes of extent 1 are left out, axes always walked together are merged (`collapse_axes.py`).  The
stages of a kernel without a contraction are those of `group_stages.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from hlotune.hlo.default_precision import all_leave_precision
from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.to_compute.assembly import Assembly, dimensions, identity, pinned
from hlotune.hlo.to_compute.collapse_axes import collapse
from hlotune.hlo.to_compute.contractions import CONTRACTIONS, Contraction, Place, contraction
from hlotune.hlo.to_compute.conversions import converted, narrowed
from hlotune.hlo.to_compute.dilation_phases import phases
from hlotune.hlo.to_compute.expressions import Known
from hlotune.hlo.to_compute.few_terms import as_map, has_few_terms
from hlotune.hlo.to_compute.followed import followed
from hlotune.hlo.to_compute.group_stages import group_compute
from hlotune.hlo.to_compute.index_maps import Domain, Index, unravel
from hlotune.hlo.to_compute.prologues import (
    is_zero_of_zeros,
    placed,
    vanishes,
    varying,
    walks_alone,
)
from hlotune.hlo.to_compute.short_axes import written_out
from hlotune.hlo.to_compute.triangles import with_ends
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, distinct_operations
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.split_stored import split_stored

MOST_AHEAD = {"stablehlo.dot_general": 1 << 20, "stablehlo.convolution": 1 << 14}
"""Elements of an operand up to which a prologue is computed ahead.  More of a product are more
likely weights; a convolution's are read by windows where they are."""
MANY_USES = 256
"""Times that a sum uses each element from which on."""
LONG_PROLOGUE = 2
"""Operations of a prologue from which on they are felt beside the multiply-adds of a tile."""


def compute_of(graph: Graph) -> Compute:
    """The compute of a kernel.

    Raises:
        UnsupportedKernel: an operation that has no compute, several contractions, an empty result,
            or a reshape that is not affine however axes are split.
    """
    compute = _computed(graph)
    return replace(compute, leaves_precision=True) if all_leave_precision(graph) else compute


def _computed(graph: Graph) -> Compute:
    _refuse_empty(graph)
    anchors = [op for op in graph.ops if op.name in CONTRACTIONS]
    if len(anchors) > 1 and any(op.name == "stablehlo.convolution" for op in anchors):
        raise UnsupportedKernel(
            "expected one convolution, or dot_generals alone, got "
            f"{len(anchors)} contractions with a convolution; cut one kernel for each"
        )
    if len(anchors) != 1:
        compute = collapse(group_compute(graph))
        return with_ends(split_stored(compute)) if anchors else written_out(compute)
    assembly = _AroundContraction(graph)
    assembly.contraction(anchors[0])
    compute = collapse(phases(Compute(assembly.tensors(), tuple(assembly.stages))))
    return as_map(compute) if _has_few_terms(graph, anchors[0]) else compute


def _has_few_terms(graph: Graph, op: Op) -> bool:
    return has_few_terms(op, [graph.types[v] for v in op.operands], graph.types[op.results[0]])


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


def _repays_a_stage(
    op: Op, expr: Expr, elements: int, extents: Mapping[str, int], places: Sequence[Place]
) -> bool:
    """Whether the prologue of numbers that are each used very often is computed once a call.

    In the sum it would be computed again for every register tile, beside few multiply-adds.
    """
    walked = {a for p in places for a in p.index.coefficients}
    uses = prod(n for a, n in extents.items() if a not in walked)
    few = elements <= MOST_AHEAD[op.name] and uses >= MANY_USES
    return few and distinct_operations((expr,)) >= LONG_PROLOGUE


@dataclass(frozen=True, slots=True)
class _Output:
    """A result of the kernel that the contraction reaches: its position, its index, its value."""

    position: int
    index: Index
    expr: Expr


@dataclass(slots=True)
class _AroundContraction(Assembly):
    """The compute of a kernel with one contraction, while it grows."""

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
        operands = [self.operand(op, v, p, start.extents) for v, p in pairs]
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
        store = Store("acc", identity(domain.parallel))
        contract = Stage("contract", domain.parallel, domain.reduce, (store,), (value,), SUM)
        self.stages += contract, epilogue

    def outputs(self, op: Op, terms: Contraction, domain: Domain) -> list[_Output]:
        """The results behind the contraction."""
        load = Load("acc", identity(domain.filled().parallel), self.sum_type(op))
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
                dtype = self.graph.types[v].dtype
                self.materialise(f"y{k}", dtype, domain, expr, domain.parallel)

    def view(self, value: int) -> tuple[Domain, Expr]:
        """A value over the axes `d0 d1 ...` of its own dimensions."""
        shape = self.graph.types[value].shape

        def build(domain: Domain) -> tuple[Domain, Expr]:
            index = tuple(domain.places[f"d{d}"] for d in range(len(shape)))
            return domain, self.reader(domain).read(value, index)

        domain, expr = Domain.of(dimensions(shape), units=True).settle(build)
        return domain, self.hoist(expr, tuple(a for a in domain.parallel if a.extent > 1))

    def operand(
        self, op: Op, value: int, places: tuple[Place, ...], extents: Mapping[str, int]
    ) -> _Operand:
        """An operand, its prologue in a stage of its own where padding must come after it, where
        phases could not leave out what it makes of inserted zeros, or where that saves time."""
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
        after_padding = padded and not (
            vanishes(expr, padded, shapes)
            and all(walks_alone(expr, a) for a in padded)
            and not (dilated and not is_zero_of_zeros(expr))
        )
        if after_padding or _repays_a_stage(op, expr, kind.elements, extents, places):
            domain, expr = self.ahead(kind, domain, expr, padded)
        return _Operand(domain, narrowed(expr, kind.dtype), places)

    def ahead(
        self, kind: TensorType, domain: Domain, expr: Expr, padded: Collection[str]
    ) -> tuple[Domain, Expr]:
        """A value that a stage of its own computes, and the domain of its dimensions.

        Along those where it is the same everywhere, and where it is not padded, it is stored once:
        of the gradient of a sum, which is ones, one row.
        """
        used = varying(expr)
        stays = [
            not used.isdisjoint(domain.places[d].coefficients) or d in padded
            for d in (f"d{k}" for k in range(len(kind.shape)))
        ]
        shape = tuple(n if stay else 1 for n, stay in zip(kind.shape, stays, strict=True))
        name = self.temporary("pre", shape, kind.dtype)
        places = [domain.places[f"d{k}"] for k, stay in enumerate(stays) if not stay]
        left_out = {a for place in places for a in place.coefficients}
        kept = tuple(a for a in domain.parallel if a.name not in left_out)
        self.materialise(name, kind.dtype, domain, expr, kept)
        whole = Domain.of(dimensions(kind.shape), units=True)
        index = zip(identity(whole.parallel), stays, strict=True)
        return whole, Load(name, tuple(e if stay else Affine() for e, stay in index), kind.dtype)

    def materialise(
        self, tensor: str, dtype: str, domain: Domain, expr: Expr, axes: tuple[Axis, ...]
    ) -> None:
        """A stage that stores a value over some axes of its own dimensions."""
        kept = tuple(a for a in axes if a.extent > 1)
        kept_places = pinned(domain.extents, kept)
        zero = {a: place.index for a, place in kept_places.items()}
        index = tuple(e.substitute(zero) for e in domain.places.values())
        value = placed(narrowed(expr, dtype), kept_places)
        self.stage(kept or (Axis("unit", 1),), (Store(tensor, index),), (value,))
