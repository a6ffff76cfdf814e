"""Factors taken out of sums, where a compute then reads its tensors in fewer passes.

    sum over r of x[r] * (y[r] * c)   ->   (sum over r of x[r] * y[r]) * c

The gradients of norms have sums of equal products, each times another factor that does not vary
along the sum, and such a factor is often known only after another sum.  Without it they are one,
or go over the tensor together with others.  Products are rounded in another order, as any order of
a sum is; a sum of differences is never taken apart, as its parts may cancel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from hlotune.hlo.to_compute.joined_reductions import joined_reductions
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.compute import Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Apply, Const, Expr, Load, loads, map_all_loads
from hlotune.schedules.ir.monoids import SUM


def fewest_passes(compute: Compute, ties: Mapping[str, str]) -> Compute:
    """The compute with reductions of the same tensors joined, and without factors in its sums where
    more of them are joined then.

    `ties` are those of `joined_reductions`.
    """
    joined = joined_reductions(compute, ties)
    if passes(joined) < 2 or not all(map(_is_plain, compute.stages)):
        return joined
    stages, tensors = list[Stage](), list(compute.tensors)
    for stage in compute.stages:
        found, kept = _factored(compute, stage)
        stages += found
        tensors += kept
    apart = _shared(Compute(tuple(tensors), tuple(stages)))
    apart = replace(apart, stages=_early(apart.stages))
    factored = joined_reductions(apart, ties)
    return factored if passes(factored) < passes(joined) else joined


def passes(compute: Compute) -> int:
    """Stages that reduce."""
    return sum(bool(s.reduce) for s in compute.stages)


def _is_plain(stage: Stage) -> bool:
    special = stage.scans or stage.onto or stage.begins or stage.digits or stage.ends
    return not special and not stage.lookups


@dataclass(frozen=True, slots=True)
class _Product:
    """`inside * over / under`, each a product; what is inside varies along a sum."""

    inside: tuple[Expr, ...]
    over: tuple[Expr, ...] = ()
    under: tuple[Expr, ...] = ()

    @property
    def has_factors(self) -> bool:
        return bool(self.inside) and bool(self.over or self.under)

    @property
    def summed(self) -> Expr:
        """What is left in the sum, factors of equal products in equal order."""
        return _times(sorted(self.inside, key=repr))

    def scaled(self, total: Expr) -> Expr:
        """The value of the whole sum, by that of `summed`."""
        found = _times([*self.over, total])
        return Apply("divide", (found, _times(self.under)), total.dtype) if self.under else found


def _times(factors: Sequence[Expr]) -> Expr:
    return reduce(lambda a, b: Apply("multiply", (a, b), a.dtype), factors)


def _product(value: Expr, reduced: frozenset[str]) -> _Product:
    """A value as a product of what varies along the axes of a sum, and of what does not."""
    if not any(reduced & set(x.axes) for x in loads(value)):
        return _Product((), (value,))
    if isinstance(value, Apply) and value.op == "negate":
        inner = _product(value.args[0], reduced)
        return replace(inner, over=(Const(-1.0, value.dtype), *inner.over))
    if isinstance(value, Apply) and value.op == "multiply":
        a, b = (_product(x, reduced) for x in value.args)
        return _Product(a.inside + b.inside, a.over + b.over, a.under + b.under)
    if isinstance(value, Apply) and value.op == "divide":
        a, b = (_product(x, reduced) for x in value.args)
        if not b.inside:
            return replace(a, under=(*a.under, value.args[1]))
    return _Product((value,))


def _factored(compute: Compute, stage: Stage) -> tuple[list[Stage], list[Tensor]]:
    """The stage without factors in its sums, and one that multiplies by these; with the tensors
    between the two."""
    reduced = frozenset(a.name for a in stage.reduce)
    if stage.combine is not SUM or not all(is_float(v.dtype) for v in stage.values):
        return [stage], []
    found = [_product(v, reduced) for v in stage.values]
    if not any(p.has_factors for p in found):
        return [stage], []
    stores, values, tensors, scaled = list[Store](), list[Expr](), list[Tensor](), list[Expr]()
    own = list[Store]()
    for store, value, product in zip(stage.stores, stage.values, found, strict=True):
        if not product.has_factors:
            stores.append(store)
            values.append(value)
            continue
        tensor = compute.tensor(store.tensor)
        total = replace(tensor, name=f"{tensor.name}.sum", role="temporary")
        tensors.append(total)
        stores.append(replace(store, tensor=total.name))
        values.append(product.summed)
        own.append(store)
        scaled.append(product.scaled(Load(total.name, store.index, value.dtype)))
    sums = replace(stage, stores=tuple(stores), values=tuple(values))
    factors = Stage(f"{stage.name}.scaled", stage.parallel, (), tuple(own), tuple(scaled))
    return [sums, factors], tensors


def _shared(compute: Compute) -> Compute:
    """The compute without temporaries that hold what an earlier one holds."""
    known, same, stages = dict[object, str](), dict[str, str](), list[Stage]()
    for stage in compute.stages:
        change = {x: replace(x, tensor=same[x.tensor]) for x in stage.loads if x.tensor in same}
        values, kept = map_all_loads(stage.values, change), list[int]()
        for k, (store, value) in enumerate(zip(stage.stores, values, strict=True)):
            key = stage.parallel, stage.reduce, stage.combine, store.index, value
            alone = compute.tensor(store.tensor).role == "temporary" and len(stage.groups[0]) == 1
            if alone and key in known:
                same[store.tensor] = known[key]
                continue
            if alone:
                known[key] = store.tensor
            kept.append(k)
        stores = tuple(stage.stores[k] for k in kept)
        stages += [replace(stage, stores=stores, values=tuple(values[k] for k in kept))][
            : len(kept)
        ]
    stored = {x.tensor for s in stages for x in s.stores}
    tensors = tuple(t for t in compute.tensors if t.role != "temporary" or t.name in stored)
    return Compute(tensors, tuple(stages))


def _early(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages in an order that has each reduction as soon as what it reads is there."""
    found = list[Stage]()
    for stage in stages:
        read = set(stage.maps)
        ready = 1 + max((k for k, s in enumerate(found) if s.stored & read), default=-1)
        found.insert(ready if stage.reduce else len(found), stage)
    return tuple(found)
