"""Arithmetic of the mathematics: what falls on padding and on inserted zeros is left out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import lcm, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.ir.compute import Compute, Stage, Store
from hlotune.schedules.ir.expr import (
    Affine,
    Apply,
    Expr,
    Load,
    distinct_operations,
    operation_count,
    operations,
)
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.targets.units import DOT_INSTRUCTIONS

MOST_POINTS = 1 << 22
"""Points that are looked at one by one, of axes that decide together, without the longest one."""


def flops_of(compute: Compute) -> int:
    """Operations of one run of a kernel, for GFLOP/s and shares of a peak."""
    return sum(real_flops(compute, stage) for stage in compute.stages)


def executed_flops(nest: LoopNest) -> int:
    """Operations that one call has to execute, as its algorithm has it."""
    stages = (s.stage for s in nest.stages if s.scope != "load")
    return sum(real_flops(nest.compute, stage) for stage in stages)


def arithmetic_type(compute: Compute) -> str:
    """The element type whose peak limits a kernel: that of its largest stage's products.

    It is the operands' where both are converted from a narrow type, and an instruction may multiply
    such elements as they are; else the type in which the products, or what else there is, are
    computed.
    """
    stage = max(compute.stages, key=lambda s: s.flops)
    value = _outermost_product(stage.values[0])
    dtype = accumulator(value.dtype)
    narrow = _narrow_type(value)
    instruction = DOT_INSTRUCTIONS.get(narrow) if narrow else None
    return narrow if narrow and instruction and instruction.total == dtype else dtype


def _narrow_type(value: Expr) -> str | None:
    """The type that all factors of a product are converted from, where it is one."""
    if not isinstance(value, Apply) or value.op != "multiply":
        return None
    types = {
        x.args[0].dtype if isinstance(x, Apply) and x.op == "convert" else None for x in value.args
    }
    return types.pop() if len(types) == 1 else None


def _outermost_product(value: Expr) -> Expr:
    """The value itself where nothing is multiplied in it."""
    products = (x for x in operations([value]) if x.op == "multiply")
    return next(products, value)


def real_flops(compute: Compute, stage: Stage) -> int:
    """Operations of a stage at those points where all of its loads are real.

    Transforms of whole tiles are executed at the borders too, but nothing that no result needs.
    """
    if stage.digits:
        known = stage.derived.get(_of_tiles)
        if not isinstance(known, int):
            known = stage.derived[_of_tiles] = _of_tiles(compute, stage)
        return known
    flops = _least_flops(stage)
    for group in _sharing_axes(_borders(compute, stage)):
        real, total = _real_points(stage, group)
        flops = flops * real // total
    return flops * stage.needed_points // max(1, stage.points) if stage.ends else flops


def _least_flops(stage: Stage) -> int:
    """Operations of a stage, each at the points at which it may differ.

    What does not vary along an axis may be computed ahead of it, as when an operand is packed: of a
    product whose left side is scaled first, the scaling counts once an element of that side.
    """
    merges = stage.flops - distinct_operations(stage.values) * stage.points
    axes = _varying(stage.values)
    extents = stage.extents
    return merges + sum(
        operation_count(x) * prod(extents[a] for a in axes[id(x)]) for x in operations(stage.values)
    )


def _varying(values: Iterable[Expr]) -> dict[int, frozenset[str]]:
    """The axes along which each part of expressions may differ, by the part's id."""
    found = dict[int, frozenset[str]]()
    waiting = list(values)
    while waiting:
        expr = waiting[-1]
        parts = expr.args if isinstance(expr, Apply) else ()
        missing = [x for x in parts if id(x) not in found]
        if missing:
            waiting += missing
            continue
        own = expr.whole.axes if isinstance(expr, Load) else ()
        found[id(waiting.pop())] = frozenset(own).union(*(found[id(x)] for x in parts))
    return found


Border = tuple[Affine, int, int]
"""An index, its divisor and the extent of its dimension: inside of it what is indexed is real."""


def _borders(compute: Compute, stage: Stage) -> list[Border]:
    """The borders of what a stage loads, and of the results at its points; each once.

    Left out are looked-up places, as data decides which are inside, and results along axes that
    the stage has not, as those of a scan.
    """
    own = stage.extents.keys()
    loads = (x for load in stage.loads for x in (load, load.beside) if x)
    stages = (s for s in compute.stages if s.parallel == stage.parallel and not s.onto)
    stores = (x for s in stages for x in s.stores)
    loaded = ((x.tensor, d, e, x.divisor(d)) for x in loads for d, e in enumerate(x.index))
    stored = ((x.tensor, d, e, 1) for x in stores for d, e in enumerate(x.index))
    borders = (
        (e, divisor, compute.tensor(name).shape[d])
        for name, d, e, divisor in (*loaded, *stored)
        if e.coefficients.keys() <= own
    )
    return [x for x in dict.fromkeys(borders) if not _stays_inside(stage.extents, x)]


def _stays_inside(extents: Mapping[str, int], border: Border) -> bool:
    index, divisor, extent = border
    low, high = index.bounds({axis: (0, n - 1) for axis, n in extents.items()})
    return divisor == 1 and low >= 0 and high < extent


def _sharing_axes(borders: Iterable[Border]) -> list[list[Border]]:
    """Borders that decide about each other's axes together, all others apart."""
    groups = list[list[Border]]()
    for border in borders:
        axes = border[0].coefficients.keys()
        mine = [g for g in groups if any(axes & x[0].coefficients.keys() for x in g)]
        groups = [g for g in groups if g not in mine] + [[x for g in mine for x in g] + [border]]
    return groups


def _real_points(stage: Stage, borders: Sequence[Border]) -> tuple[int, int]:
    """At how many points all are inside, and how many there are of the axes that decide.

    Never too many, for what beats the peak by them is refused: where there are too many points to
    look at, none is taken to be outside of two borders at once.
    """
    if len(borders) == 1:
        return _points(stage.extents, borders[0])
    names = dict.fromkeys(a for index, _, _ in borders for a, _ in index.terms)
    axes = {a: stage.extents[a] for a in names}
    total, longest = prod(axes.values()), max(axes, key=axes.__getitem__)
    period = lcm(*(divisor for index, divisor, _ in borders if longest in index.coefficients))
    if total // axes[longest] * period <= MOST_POINTS:
        return _counted(axes, borders, longest, period), total
    apart = [_points(axes, x) for x in borders]
    return max(0, total - sum(total // n * (n - real) for real, n in apart)), total


def _counted(axes: Mapping[str, int], borders: Sequence[Border], longest: str, period: int) -> int:
    """The points inside of all borders; along one axis runs of them in steps of `period`.

    A divisor divides an index at all points of such a run, or at none.
    """
    grid = {**axes, longest: min(period, axes[longest])}
    places = dict(zip(grid, np.indices(list(grid.values()), sparse=True), strict=True))
    first = np.zeros(list(grid.values()), dtype=np.int64)
    last = first + (axes[longest] - 1 - places[longest]) // period
    for index, divisor, extent in borders:
        at = index.constant + sum(c * places[a] for a, c in index.terms)
        low, high = -at, divisor * extent - 1 - at  # between them lies what steps may add
        step = index.coefficients.get(longest, 0) * period
        inside = at % divisor == 0
        if step == 0:
            inside &= (low <= 0) & (high >= 0)
        else:
            low, high = (low, high) if step > 0 else (-high, -low)
            first = np.maximum(first, -(-low // abs(step)))
            last = np.minimum(last, high // abs(step))
        last = np.where(inside, last, -1)
    return int(np.maximum(last - first + 1, 0).sum())


def _of_tiles(compute: Compute, stage: Stage) -> int:
    """Each operation at those tiles where a result that needs it is inside of its tensor."""
    tiles, values = dict[bytes, NDArray[np.bool_]](), defaultdict[bytes, list[Expr]](list)
    extents = [d.extent for d in stage.digits]
    places = dict(zip((d.name for d in stage.digits), np.indices(extents), strict=True))
    for store, value in zip(stage.stores, stage.values, strict=True):
        inside = np.broadcast_to(_inside(compute, store, places), extents)
        key = inside.tobytes()
        tiles[key] = inside
        values[key].append(value)
    users = defaultdict[int, set[bytes]](set)
    for key, alike in values.items():
        for operation in operations(alike):
            users[id(operation)].add(key)
    counts = Counter(map(frozenset, users.values()))
    needed = (n * np.any([tiles[x] for x in found], axis=0).sum() for found, n in counts.items())
    return int(sum(needed)) * stage.points // prod(extents)


def _inside(
    compute: Compute, store: Store, places: Mapping[str, NDArray[np.int64]]
) -> NDArray[np.bool_]:
    """By the digits of a tile's number, at their places: whether what is stored is an element."""
    result = np.ones((), dtype=np.bool_)
    for index, extent in zip(store.index, compute.tensor(store.tensor).shape, strict=True):
        if places.keys() & index.coefficients.keys():
            at = index.constant + sum(c * places[a] for a, c in index.terms if a in places)
            result = result & (at >= 0) & (at < extent)
    return result


def points(stage: Stage, load: Load, dimension: int, extent: int) -> tuple[int, int]:
    """At how many points of its axes an index is real, and how many points there are."""
    return _points(stage.extents, (load.index[dimension], load.divisor(dimension), extent))


def _points(extents: Mapping[str, int], border: Border) -> tuple[int, int]:
    index, divisor, extent = border
    total = prod(extents[axis] for axis, _ in index.terms)
    if _stays_inside(extents, border) or not total:
        return 1, 1
    values = _spread(index, extents)
    return sum(
        n for v, n in values.items() if v % divisor == 0 and 0 <= v // divisor < extent
    ), total


def _spread(index: Affine, extents: Mapping[str, int]) -> dict[int, int]:
    """How often an index takes each of its values."""
    counts = {index.constant: 1}
    for axis, coefficient in index.terms:
        spread: dict[int, int] = {}
        for value, n in counts.items():
            for k in range(extents[axis]):
                place = value + coefficient * k
                spread[place] = spread.get(place, 0) + n
        counts = spread
    return counts
