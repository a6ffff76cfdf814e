"""Results that a last stage copies, stored by the stage that computes them."""

from collections.abc import Sequence
from dataclasses import replace

from hlotune.hlo.to_compute.assembly import identity
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Expr, Load, loads


def without_copies(compute: Compute) -> Compute:
    """The compute with results stored by the stage that computes them where a last one copies."""
    stages = compute.stages
    for out in [s for s in stages if s.name.startswith("out")]:
        for store, value in zip(out.stores, out.values, strict=True):
            maker = _maker(stages, out, value)
            if maker is not None and isinstance(value, Load):
                stages = _stored_at_once(stages, maker, value.tensor, out.name, store)
    stored = {x.tensor for s in stages for x in s.stores}
    tensors = tuple(t for t in compute.tensors if t.role != "temporary" or t.name in stored)
    return Compute(tensors, tuple(s for s in stages if s.stores))


def _maker(stages: Sequence[Stage], out: Stage, value: Expr) -> Stage | None:
    """The stage whose result a last stage copies, where nobody else reads it."""
    if not isinstance(value, Load) or value.divisors or value.index != identity(out.parallel):
        return None
    reads = [v for s in stages for v in s.values if value.tensor in {x.tensor for x in loads(v)}]
    maker = next((s for s in stages if value.tensor in s.stored), None)
    if reads != [value] or maker is None:
        return None
    if maker.scans:
        return maker if _names(maker) == _names(out) else None
    placed = Store(value.tensor, value.index) in maker.stores
    return maker if placed and maker.parallel == out.parallel else None


def _names(stage: Stage) -> list[str]:
    """The names of the axes that a stage walks, in one order."""
    return sorted(a.name for a in stage.axes if a.extent > 1)


def _moved(store: Store, before: Store, axes: tuple[Axis, ...]) -> Store:
    """Where a copy over some axes, one a dimension, puts what was stored before it."""
    places = {a.name: e for a, e in zip(axes, before.index, strict=True)}
    return Store(store.tensor, tuple(e.substitute(places) for e in store.index))


def _stored_at_once(
    stages: Sequence[Stage], maker: Stage, tensor: str, copier: str, store: Store
) -> tuple[Stage, ...]:
    """The stages with a tensor of one stage stored where another one copies it to."""
    found, copied = [], next(s for s in stages if s.name == copier).parallel
    for stage in stages:
        if stage is maker:
            stores = tuple(
                _moved(store, x, copied) if x.tensor == tensor else x for x in stage.stores
            )
            stage = replace(stage, stores=stores)
        elif stage.name == copier:
            kept = [k for k, x in enumerate(stage.stores) if x != store]
            stores = tuple(stage.stores[k] for k in kept)
            stage = replace(stage, stores=stores, values=tuple(stage.values[k] for k in kept))
        found.append(stage)
    return tuple(found)
