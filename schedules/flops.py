"""Arithmetic of the mathematics: what falls on padding and on inserted zeros is left out."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.compute import Compute, Stage, Store
from hlotune.schedules.dots import INSTRUCTIONS
from hlotune.schedules.dtypes import accumulator
from hlotune.schedules.expr import Affine, Apply, Expr, Load, operations
from hlotune.schedules.nest import LoopNest


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
    instruction = INSTRUCTIONS.get(narrow) if narrow else None
    return narrow if narrow and instruction and instruction.total == dtype else dtype


def _narrow_type(value: Expr) -> str | None:
    """Of the factors of a product, where all are converted from one type."""
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
    flops, counted = stage.flops, set[tuple[Affine, int, int]]()
    deciding = (x for load in stage.loads for x in (load, load.beside) if x)
    for load in deciding:  # a packed array has elements where the one beside it ends
        for dimension, extent in enumerate(compute.tensor(load.tensor).shape):
            border = load.index[dimension], load.divisor(dimension), extent
            if border not in counted:  # loads with equal maps leave their tensors together
                real, total = points(stage, load, dimension, extent)
                flops = flops * real // total
            counted.add(border)
    return flops


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
    index, divisor, extents = load.index[dimension], load.divisor(dimension), stage.extents
    total = prod(extents[axis] for axis, _ in index.terms)
    low, high = index.bounds({axis: (0, n - 1) for axis, n in extents.items()})
    if (divisor == 1 and low >= 0 and high < extent) or not total:
        return 1, 1
    values = _spread(index, extents)
    return sum(
        n for v, n in values.items() if v % divisor == 0 and 0 <= v // divisor < extent
    ), total


def _spread(index: Affine, extents: dict[str, int]) -> dict[int, int]:
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
