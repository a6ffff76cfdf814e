"""Reductions that walk one tensor alike, as one stage that reads it once.

The gradients of a norm's scale and bias are sums over the same rows of the same gradient.  Sums of
squared differences along each axis of an image read the same tensor, each without its last row
along another axis: where such slices are reduced to one element each, the one stage goes over the
longest extents, and a point outside of a slice gives what changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from hlotune.hlo.to_compute.contractions import Place
from hlotune.hlo.to_compute.prologues import placed
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Expr, Load

SHARE = 7 / 8
"""A slice is joined with another where each of its extents is at least this share of the longest
one; a shorter slice reads less in a pass of its own.
"""


def joined_reductions(compute: Compute, ties: Mapping[str, str]) -> Compute:
    """The compute with such reductions joined.

    `ties` has a name for each axis that those have in common which slices of one tensor walk.
    """
    while True:
        pairs = combinations([s for s in compute.stages if s.combine and s.reduce], 2)
        pair = next((p for p in pairs if _fit(compute, *p, ties)), None)
        if pair is None:
            return compute
        compute = _joined(compute, *pair)


def _fit(compute: Compute, a: Stage, b: Stage, ties: Mapping[str, str]) -> bool:
    """Whether two reductions walk the same axes of one tensor, and do not wait for each other."""
    plain = all(x.extent == 1 for s in (a, b) for x in s.parallel)
    special = any(s.scans or s.onto or s.begins or s.digits or s.ends for s in (a, b))
    if special or a.combine != b.combine or len(a.reduce) != len(b.reduce):
        return False
    if not plain and not _alike(a.parallel, b.parallel, ties, share=1):
        return False
    if not _alike(a.reduce, b.reduce, ties, share=SHARE if plain else 1):
        return False
    first, last = compute.stages.index(a), compute.stages.index(b)
    between = compute.stages[first + 1 : last + 1]
    alike = {x.tensor for x in a.loads} & {x.tensor for x in b.loads}
    return bool(alike) and not any(a.stored & set(s.maps) for s in between)


def _alike(
    first: Sequence[Axis], second: Sequence[Axis], ties: Mapping[str, str], *, share: float
) -> bool:
    """Whether axes are the same ones in the same order, the shorter of two at least a share of the
    other."""
    return len(first) == len(second) and all(
        ties.get(x.name, x.name) == ties.get(y.name, y.name)
        and min(x.extent, y.extent) >= share * max(x.extent, y.extent)
        for x, y in zip(first, second, strict=True)
    )


def _joined(compute: Compute, a: Stage, b: Stage) -> Compute:
    """The compute with the first reduction as a part of the second."""
    axes = tuple(
        Axis(y.name, max(x.extent, y.extent)) for x, y in zip(a.reduce, b.reduce, strict=True)
    )
    names = {x.name: y.name for x, y in zip(a.reduce, b.reduce, strict=True)}
    names |= {x.name: y.name for x, y in zip(a.parallel, b.parallel, strict=False)}
    found = {x.tensor for x in b.stores} | {x.tensor for x in a.stores}
    guards, values = dict[str, Tensor](), list[Expr]()
    for stage in (a, b):
        own = [Axis(names.get(x.name, x.name), x.extent) for x in stage.reduce]
        short = [(x.name, x.extent) for x, y in zip(own, axes, strict=True) if x != y]
        places = {old: Place(Affine.axis(new)) for old, new in names.items()}
        whole = tuple(placed(v, places) if stage is a else v for v in stage.values)
        values += _within(stage, whole, short, guards)
    assert len(found) == len(a.stores) + len(b.stores), "each has tensors of its own"
    stores = (*a.stores, *b.stores)
    both = replace(b, reduce=axes, stores=stores, values=tuple(values))
    stages = tuple(both if s is b else s for s in compute.stages if s is not a)
    known = {t.name for t in compute.tensors}
    more = tuple(t for t in guards.values() if t.name not in known)
    return Compute((*compute.tensors, *more), stages)


def _within(
    stage: Stage, values: Sequence[Expr], short: Sequence[tuple[str, int]],
    guards: dict[str, Tensor],
) -> list[Expr]:  # fmt: skip
    """Values where a point lies inside of some extents, elsewhere what changes nothing."""
    if not short or stage.combine is None:
        return list(values)
    shape = tuple(n for _, n in short)
    name = "inside" + "x".join(map(str, shape))
    guards[name] = Tensor(name, shape, "i1", "guard")
    here = Load(name, tuple(Affine.axis(axis) for axis, _ in short), "i1")
    found = list[Expr]()
    for group in stage.groups:
        own = [values[k] for k in group]
        nothing = stage.combine.identities(tuple(v.dtype for v in own))
        found += [Apply("select", (here, v, n), v.dtype) for v, n in zip(own, nothing, strict=True)]
    return found
