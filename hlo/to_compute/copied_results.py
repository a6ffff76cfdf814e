"""Results that a last stage copies, stored by the stage that computes them."""

from collections.abc import Sequence
from dataclasses import replace

from hlotune.hlo.to_compute.assembly import identity
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Expr, Load, loads, map_loads


def without_copies(compute: Compute) -> Compute:
    """The compute with results stored by the stage that computes them where a last one copies."""
    stages = compute.stages
    for out in [s for s in stages if s.name.startswith("out")]:
        for store, value in zip(out.stores, out.values, strict=True):
            maker = _maker(compute, stages, out, store, value)
            if maker is not None and isinstance(value, Load):
                stages = _stored_at_once(stages, maker, value.tensor, out.name, store)
                stages = _read_there(stages, value.tensor, store.tensor)
    stored = {x.tensor for s in stages for x in s.stores}
    tensors = tuple(t for t in compute.tensors if t.role != "temporary" or t.name in stored)
    return Compute(tensors, tuple(s for s in stages if s.stores))


def _maker(
    compute: Compute, stages: Sequence[Stage], out: Stage, store: Store, value: Expr
) -> Stage | None:
    """The stage whose result a last stage copies, where nobody else reads it, or may as well read
    the copy."""
    if not isinstance(value, Load) or value.divisors or value.index != identity(out.parallel):
        return None
    reads = [v for s in stages for v in s.values if value.tensor in {x.tensor for x in loads(v)}]
    maker = next((s for s in stages if value.tensor in s.stored), None)
    if maker is None or (reads != [value] and not _reads_copy(compute, stages, out, store, value)):
        return None
    if maker.scans:
        return maker if _names(maker) == _names(out) else None
    placed = Store(value.tensor, value.index) in maker.stores
    return maker if placed and maker.parallel == out.parallel else None


def _reads_copy(
    compute: Compute, stages: Sequence[Stage], out: Stage, store: Store, value: Load
) -> bool:
    """Whether all that read a tensor may as well read the copy of it that a last stage makes.

    What the last stage waits for had better share its loops over rows, and so the tensor a row of
    which they compute.
    """
    tensor, copy = compute.tensor(value.tensor), compute.tensor(store.tensor)
    alike = (tensor.shape, tensor.dtype) == (copy.shape, copy.dtype) and store.index == value.index
    before, needed = list[Stage](), {x.tensor for x in out.loads}
    place = next(k for k, s in enumerate(stages) if s.name == out.name)
    for stage in reversed(stages[:place]):
        if needed & stage.stored:
            before.append(stage)
            needed |= {x.tensor for x in stage.loads}
    scans = any(s.scans for s in stages if value.tensor in s.stored)
    shared = any(value.tensor in {x.tensor for x in s.loads} for s in before)
    return alike and not scans and not shared


def _read_there(stages: Sequence[Stage], old: str, new: str) -> tuple[Stage, ...]:
    """The stages with one tensor read in the place of another of its shape."""
    found = []
    for stage in stages:
        moved = {x: replace(x, tensor=new) for x in stage.loads if x.tensor == old}
        values = tuple(map_loads(v, moved) for v in stage.values) if moved else stage.values
        found.append(replace(stage, values=values))
    return tuple(found)


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
