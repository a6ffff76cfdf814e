"""The stage of a product in a kernel that has several."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.assembly import identity
from hlotune.hlo.to_compute.contractions import contraction
from hlotune.hlo.to_compute.conversions import converted, narrowed
from hlotune.hlo.to_compute.expressions import Reader
from hlotune.hlo.to_compute.index_maps import Domain
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Apply, Expr
from hlotune.schedules.ir.monoids import SUM


class Stages(Protocol):
    """What of a group of stages a product is put together with."""

    graph: Graph
    stages: list[Stage]

    @property
    def names(self) -> Mapping[int, tuple[str, ...]]: ...

    def cut(self, domain: Domain) -> Domain: ...

    def reader(self, domain: Domain) -> Reader: ...

    def hoist(self, expr: Expr, axes: tuple[Axis, ...]) -> Expr: ...

    def hold(self, value: int, own: tuple[str, ...], axes: tuple[Axis, ...], dtype: str) -> str: ...


def product_stage(group: Stages, op: Op) -> Stage:
    """The stage of a product, whose results are held."""
    terms, result = contraction(group.graph, op), op.results[0]
    own = group.names[result]
    names = dict(zip((a.name for a in terms.parallel), own, strict=True))
    names |= {r.name: f"{own}{r.name}" for r in terms.reduce}
    domain = group.cut(Domain.of(
        [replace(a, name=names[a.name]) for a in terms.parallel],
        [replace(r, name=names[r.name]) for r in terms.reduce],
    ))  # fmt: skip
    axes = {a: domain.places[name] for a, name in names.items()}
    reader, factors = group.reader(domain), list[Expr]()
    dtype = accumulator(group.graph.types[result].dtype)
    for operand, places in zip(op.operands, terms.places, strict=True):
        index = tuple(p.index.substitute(axes) for p in places)
        read = narrowed(reader.read(operand, index), group.graph.types[operand].dtype)
        factors.append(converted(group.hoist(read, domain.parallel + domain.reduce), dtype))
    domain = domain.filled()
    held = group.hold(result, own, domain.parallel, dtype)
    store, value = Store(held, identity(domain.parallel)), Apply("multiply", tuple(factors), dtype)
    name = f"product{len(group.stages)}"
    return Stage(name, domain.parallel, domain.reduce, (store,), (value,), SUM)
