"""Axes that every stage walks together become one, and so do the dimensions they walk through.

Merging neighbouring dimensions of a row-major tensor leaves its bytes as they are, so arguments
and results may be reshaped too: a 1x1 convolution of stride 1 becomes a matrix product.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from hlotune.hlo.to_compute.index_maps import Index
from hlotune.schedules.ir.borders import index_ranges
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Load, map_loads

TIED = ("contract", "out")
"""Stages over the same parallel axes: what merges in one merges in the other."""


@dataclass(frozen=True, slots=True)
class Access:
    """A load or a store."""

    stage: Stage
    tensor: str
    index: Index
    divisors: tuple[int, ...]


Move = Callable[[Access], tuple[Index, tuple[int, ...]]]


def collapse(compute: Compute) -> Compute:
    """All merges that are possible, axes renumbered."""
    compute = _without_units(compute)
    parts = _unconnected(compute)
    if len(parts) == 1:
        return _collapsed(compute)
    found = [_collapsed(part) for part in parts]
    tensors = {t.name: t for part in found for t in part.tensors}
    stages = {s.name: s for part in found for s in part.stages}
    return Compute(
        tuple(tensors[t.name] for t in compute.tensors),
        tuple(stages[s.name] for s in compute.stages),
    )


def _unconnected(compute: Compute) -> list[Compute]:
    """The parts of a compute that share no axis's name, and no tensor of more than one element."""
    owner, parts = dict[str, int](), dict[int, list[Stage]]()
    for k, stage in enumerate(compute.stages):
        names = {f"axis {a.name}" for a in stage.axes if a.extent > 1}
        tensors = {x.tensor for x in accesses(stage)}
        names |= {t for t in tensors if compute.tensor(t).elements > 1}
        before = {owner[n] for n in names if n in owner}
        parts[k] = [s for b in sorted(before) for s in parts.pop(b)] + [stage]
        owner |= {n: k for n in names} | {n: k for n, o in owner.items() if o in before}
    if len(parts) == 1:
        return [compute]
    found = []
    for stages in parts.values():
        used = {x.tensor for s in stages for x in accesses(s)}
        found.append(Compute(tuple(t for t in compute.tensors if t.name in used), tuple(stages)))
    unused = [t for t in compute.tensors if not any(t in part.tensors for part in found)]
    return [*found[:-1], replace(found[-1], tensors=(*found[-1].tensors, *unused))]


def _collapsed(compute: Compute) -> Compute:
    while True:
        tries = (_merged(compute, stages, a, b) for stages, a, b in _neighbours(compute))
        merged = next((c for c in tries if c is not None), None)
        if merged is None:
            return numbered(compute)
        compute = merged


def numbered(compute: Compute) -> Compute:
    """Axes named by position: `i0 i1 ...` parallel, `r0 r1 ...` reduce."""
    return replace(compute, stages=tuple(_numbered(s) for s in compute.stages))


def _numbered(stage: Stage) -> Stage:
    names = {a.name: f"i{k}" for k, a in enumerate(stage.parallel)}
    names |= {a.name: f"r{k}" for k, a in enumerate(stage.reduce)}
    axes = {old: Affine.axis(new) for old, new in names.items()}
    stage = _moved(stage, lambda a: (tuple(e.substitute(axes) for e in a.index), a.divisors))
    return replace(
        stage,
        parallel=tuple(Axis(names[a.name], a.extent) for a in stage.parallel),
        reduce=tuple(Axis(names[a.name], a.extent) for a in stage.reduce),
    )


def accesses(stage: Stage) -> Iterator[Access]:
    for load in stage.loads:
        yield Access(stage, load.tensor, load.index, load.divisors or (1,) * len(load.index))
    for store in stage.stores:
        yield Access(stage, store.tensor, store.index, (1,) * len(store.index))


def _moved(stage: Stage, move: Move) -> Stage:
    """The stage with every load and store at another index."""

    def load(x: Load) -> Load:
        index, divisors = move(Access(stage, x.tensor, x.index, x.divisors or (1,) * len(x.index)))
        kept = divisors if any(d > 1 for d in divisors) else ()
        beside, lookups = x.beside and load(x.beside), x.lookups
        if lookups:
            lookups = tuple(replace(y, load=load(y.load)) for y in lookups)
        return replace(x, index=index, divisors=kept, beside=beside, lookups=lookups)

    def store(x: Store) -> Store:
        index = move(Access(stage, x.tensor, x.index, (1,) * len(x.index)))[0]
        return Store(x.tensor, index, tuple(replace(y, load=load(y.load)) for y in x.lookups))

    change = {x: load(x) for x in stage.loads}
    values = tuple(map_loads(v, change) for v in stage.values)
    return replace(stage, stores=tuple(map(store, stage.stores)), values=values)


def _reshaped(compute: Compute, shapes: dict[str, tuple[int, ...]], move: Move) -> Compute:
    tensors = tuple(replace(t, shape=shapes.get(t.name, t.shape)) for t in compute.tensors)
    return Compute(tensors, tuple(_moved(s, move) for s in compute.stages))


def _without_units(compute: Compute) -> Compute:
    """The compute without dimensions of extent 1 that are only ever read at 0.

    Tensors that one stage stores keep the same dimensions: their buffers have one shape.
    """
    needed = {t.name: set[int]() for t in compute.tensors}
    for a in (a for s in compute.stages for a in accesses(s)):
        places = enumerate(zip(a.index, a.divisors, strict=True))
        needed[a.tensor] |= {d for d, (e, n) in places if e != Affine() or n > 1}
    for stage in compute.stages:
        together = set[int]().union(*(needed[x.tensor] for x in stage.stores))
        needed |= {x.tensor: together for x in stage.stores}
    kept = {
        t.name: tuple(d for d, n in enumerate(t.shape) if n != 1 or d in needed[t.name])
        for t in compute.tensors
    }

    def move(a: Access) -> tuple[Index, tuple[int, ...]]:
        dims = kept[a.tensor]
        return tuple(a.index[d] for d in dims), tuple(a.divisors[d] for d in dims)

    shapes = {t.name: tuple(t.shape[d] for d in kept[t.name]) for t in compute.tensors}
    return _reshaped(compute, shapes, move)


def _neighbours(compute: Compute) -> Iterator[tuple[tuple[str, ...], Axis, Axis]]:
    """Pairs of neighbouring axes, outer first, with the stages that have them."""
    if not any(stage.name == "contract" for stage in compute.stages):
        yield from _named_alike(compute)
        return
    for stage in compute.stages:
        if stage.name != "contract":  # its parallel axes are those of `out`
            tied = TIED if stage.name == "out" else (stage.name,)
            for a, b in zip(stage.parallel, stage.parallel[1:], strict=False):
                yield tied, a, b
        for a, b in zip(stage.reduce, stage.reduce[1:], strict=False):
            yield (stage.name,), a, b


def _named_alike(compute: Compute) -> Iterator[tuple[tuple[str, ...], Axis, Axis]]:
    """The same where stages walk axes of one name together: all that have one of two have both."""
    seen = set[tuple[Axis, Axis]]()
    for stage in compute.stages:
        for axes in (stage.parallel, stage.reduce):
            for a, b in pairwise(axes):
                if (a, b) not in seen:
                    seen.add((a, b))
                    having = [s for s in compute.stages if a in s.axes or b in s.axes]
                    if all(_are_neighbours(s, a, b) for s in having):
                        yield tuple(s.name for s in having), a, b


def _are_neighbours(stage: Stage, a: Axis, b: Axis) -> bool:
    pairs = (pairwise(axes) for axes in (stage.parallel, stage.reduce))
    return any((a, b) in pair for pair in pairs)


def _merged(compute: Compute, names: tuple[str, ...], a: Axis, b: Axis) -> Compute | None:
    """The compute with two axes as one of the outer's name, or None where an access forbids it."""
    mine = [x for s in compute.stages if s.name in names for x in accesses(s)]
    joins: dict[str, int] = {}
    for x in mine:
        outer, inner = (_walked(x, axis) for axis in (a, b))
        if not outer and not inner:
            continue
        if len(outer) != 1 or len(inner) != 1 or not 0 <= inner[0] - outer[0] <= 1:
            return None
        if inner != outer and joins.setdefault(x.tensor, outer[0]) != outer[0]:
            return None
    joined = _joined(compute, joins)
    return joined and _renamed(joined, names, a, b)


def _walked(access: Access, axis: Axis) -> list[int]:
    """The dimensions whose index depends on the axis."""
    return [d for d, e in enumerate(access.index) if axis.name in e.coefficients]


def _joined(compute: Compute, joins: dict[str, int]) -> Compute | None:
    """Dimensions d and d + 1 of each named tensor as one, or None where an access may leave one."""
    shapes = {t.name: t.shape for t in compute.tensors}
    for x in (x for s in compute.stages for x in accesses(s) if x.tensor in joins):
        ranges = index_ranges(x.stage)
        for d in (joins[x.tensor], joins[x.tensor] + 1):
            low, high = x.index[d].bounds(ranges)
            if low < 0 or high >= shapes[x.tensor][d] or x.divisors[d] > 1:
                return None

    def move(x: Access) -> tuple[Index, tuple[int, ...]]:
        d = joins.get(x.tensor)
        if d is None:
            return x.index, x.divisors
        place = x.index[d] * shapes[x.tensor][d + 1] + x.index[d + 1]
        return (*x.index[:d], place, *x.index[d + 2 :]), (*x.divisors[:d], *x.divisors[d + 1 :])

    merged = {
        name: (*shapes[name][:d], shapes[name][d] * shapes[name][d + 1], *shapes[name][d + 2 :])
        for name, d in joins.items()
    }
    return _reshaped(compute, merged, move)


def _renamed(compute: Compute, names: tuple[str, ...], a: Axis, b: Axis) -> Compute | None:
    """The compute with `extent(b) * a + b` written `a`, or None where they are read otherwise."""
    for x in (x for s in compute.stages if s.name in names for x in accesses(s)):
        for e in x.index:
            if e.coefficients.get(a.name, 0) != e.coefficients.get(b.name, 0) * b.extent:
                return None

    def move(x: Access) -> tuple[Index, tuple[int, ...]]:
        return tuple(_rename(e, a.name, b.name) for e in x.index), x.divisors

    def axes(present: tuple[Axis, ...]) -> tuple[Axis, ...]:
        whole = Axis(a.name, a.extent * b.extent)
        return tuple(whole if x == a else x for x in present if x != b)

    def renamed(s: Stage) -> Stage:
        return replace(_moved(s, move), parallel=axes(s.parallel), reduce=axes(s.reduce))

    stages = tuple(renamed(s) if s.name in names else s for s in compute.stages)
    return Compute(compute.tensors, stages)


def _rename(e: Affine, a: str, b: str) -> Affine:
    terms = e.coefficients | {a: e.coefficients.get(b, 0)}
    return Affine.of({axis: c for axis, c in terms.items() if axis != b}, e.constant)
