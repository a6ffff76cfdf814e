"""Dimensions of sums that several axes walk together, written as a dimension for each.

t[64*h + f, i] = ...   y[i, j] = t[j, i]
t[h, f, i] = ...       y[i, 64*j.0 + j.1] = t[j.0, j.1, i]
"""

from collections.abc import Mapping
from dataclasses import replace

from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Expr, Load, map_all_loads


def digits(index: Affine, extents: Mapping[str, int]) -> tuple[str, ...] | None:
    """The axes of an index as digits of a number, the highest first; None where it is none.

    The index is their number in row-major order, from its constant on.
    """
    below, found = 1, list[str]()
    for axis, factor in sorted(index.terms, key=lambda term: term[1]):
        if factor != below:
            return None
        found.append(axis)
        below *= extents[axis]
    return tuple(reversed(found))


def split_stored(compute: Compute) -> Compute:
    """The compute with such dimensions split, where all that reads them walks along one axis."""
    for stage in (s for s in compute.stages if s.combine):
        for store in stage.stores:
            tensor = compute.tensor(store.tensor)
            for d, place in enumerate(store.index):
                if tensor.role != "temporary" or len(place.terms) < 2 or len(stage.stores) > 1:
                    continue
                made = _split(compute, stage, store, d)
                if made is not None:
                    return split_stored(made)
    return compute


def _split(compute: Compute, stage: Stage, store: Store, d: int) -> Compute | None:
    """The compute with one dimension of one tensor split."""
    tensor, place = compute.tensor(store.tensor), store.index[d]
    axes = digits(place, stage.extents)
    if axes is None or place.constant:
        return None
    extents = [stage.extents[a] for a in axes]
    stages = list[Stage]()
    for s in compute.stages:
        if s is stage:
            index = (*store.index[:d], *map(Affine.axis, axes), *store.index[d + 1 :])
            stages.append(replace(s, stores=(Store(store.tensor, index),)))
            continue
        reader = _reading_apart(s, tensor.name, d, extents)
        if reader is None:
            return None
        stages.append(reader)
    shape = (*tensor.shape[:d], *extents, *tensor.shape[d + 1 :])
    tensors = tuple(replace(t, shape=shape) if t is tensor else t for t in compute.tensors)
    return Compute(tensors, tuple(stages))


def _reading_apart(s: Stage, tensor: str, d: int, extents: list[int]) -> Stage | None:
    """A stage whose loads of a tensor walk a split dimension along axes of their own."""
    read = [x for x in s.loads if x.tensor == tensor]
    if not read:
        return s
    names = {x.index[d].terms[0][0] for x in read if x.index[d].terms}
    if len(names) != 1 or any(x.index[d] != Affine.axis(n) for x in read for n in names):
        return None
    (old,) = names
    own = next(a for a in s.axes if a.name == old)
    below = [1] * len(extents)
    for n in reversed(range(len(extents) - 1)):
        below[n] = below[n + 1] * extents[n + 1]
    if own.extent != below[0] * extents[0] or s.digits or s.ends:
        return None
    new = [Axis(f"{old}.{n}", extent) for n, extent in enumerate(extents)]
    places = {old: Affine.of({a.name: n for a, n in zip(new, below, strict=True)})}
    change: dict[Load, Expr] = {}
    for x in s.loads:
        moved = x.substitute(places)
        if x.tensor == tensor:
            apart = tuple(Affine.axis(a.name) for a in new)
            moved = replace(moved, index=(*moved.index[:d], *apart, *moved.index[d + 1 :]))
        change[x] = moved
    stores = tuple(
        Store(x.tensor, tuple(e.substitute(places) for e in x.index), x.lookups) for x in s.stores
    )
    return replace(
        s,
        parallel=_with(s.parallel, old, new),
        reduce=_with(s.reduce, old, new),
        stores=stores,
        values=map_all_loads(s.values, change),
    )


def _with(axes: tuple[Axis, ...], old: str, new: list[Axis]) -> tuple[Axis, ...]:
    return tuple(b for a in axes for b in (new if a.name == old else [a]))
