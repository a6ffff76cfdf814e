"""Short axes of stages written out: coordinates of points in the plane, or in space.

    x[i, j, 0] and x[i, j, 1] for the two points of an axis; their sum for a reduction over it

A vector along an axis of two has two lanes in use, and a stage that sums over it waits for stages
on both of its sides.  Written out, all of them walk the other axes alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import prod

from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import Affine, Expr, distinct_loads, map_loads
from hlotune.schedules.ir.monoids import Values

MOST_TERMS, MOST_VALUES = 4, 8
"""Points of an axis that are written out, and values that a stage then has at most."""
FEWEST_POINTS = 64
"""Points that the other axes of a written out one have at least: all of them, of a reduction's
results; the longest, of a stage's."""


def written_out(compute: Compute) -> Compute:
    """The compute with short reductions, and short axes that lie together, written out."""
    stages = (_parallel(compute, _reduced(s)) for s in compute.stages)
    return Compute(compute.tensors, tuple(stages))


def is_plain(stage: Stage) -> bool:
    """Whether a stage is a map or a reduction, at places that are known beforehand."""
    special = stage.scans or stage.onto or stage.begins or stage.digits or stage.ends
    return not special and not stage.lookups and all(x.along is None for x in stage.loads)


def _reduced(stage: Stage) -> Stage:
    """The stage with its reduction as an expression, where that has few terms for many results."""
    points = prod(a.extent for a in stage.reduce)
    combine = stage.combine
    results = prod(a.extent for a in stage.parallel)
    few = points <= MOST_TERMS and results >= FEWEST_POINTS and is_plain(stage)
    if combine is None or combine.arity > 1 or not few or _has_windows(stage):
        return stage
    return replace(stage, reduce=(), values=terms_written_out(stage), combine=None)


def terms_written_out(stage: Stage) -> tuple[Expr, ...]:
    """The results of a reduction by monoids of one part, as expressions of all its terms."""
    combine, values = stage.combine, list[Expr]()
    assert combine is not None and combine.arity == 1, "it reduces, each value by itself"
    points = list(product(*(range(a.extent) for a in stage.reduce)))
    for value in stage.values:
        found: Values = combine.identities((value.dtype,))
        for point in points:
            places = {a.name: n for a, n in zip(stage.reduce, point, strict=True)}
            found = combine.merge(found, (_at(value, places),))
        values += found
    return tuple(values)


def _has_windows(stage: Stage) -> bool:
    """Whether a place depends on a reduction and on other axes: neighbours share what they read."""
    reduce = {a.name for a in stage.reduce}
    places = (e for x in stage.loads for e in x.index)
    return any(len(e.terms) > 1 and not reduce.isdisjoint(e.coefficients) for e in places)


def _parallel(compute: Compute, stage: Stage) -> Stage:
    """The stage with a short axis whose elements lie together as so many results."""
    axis = next((a for a in stage.parallel if _is_short(compute, stage, a)), None)
    if axis is None:
        return stage
    stores, values = list[Store](), list[Expr]()
    for n in range(axis.extent):
        place = {axis.name: Affine((), n)}
        stores += [
            replace(x, index=tuple(e.substitute(place) for e in x.index)) for x in stage.stores
        ]
        values += [_at(v, {axis.name: n}) for v in stage.values]
    parallel = tuple(a for a in stage.parallel if a != axis)
    return replace(stage, parallel=parallel, stores=tuple(stores), values=tuple(values))


def _is_short(compute: Compute, stage: Stage, axis: Axis) -> bool:
    """Whether an axis of a stage is worth being written out."""
    n, arity = axis.extent, stage.combine.arity if stage.combine else 1
    if not 2 <= n <= MOST_TERMS or len(stage.values) * n > MOST_VALUES or arity > 1:
        return False
    others = [a.extent for a in stage.parallel if a != axis]
    if not is_plain(stage) or max(others, default=1) < FEWEST_POINTS:
        return False
    loaded = [(x.tensor, x.index) for x in stage.loads]
    stored = [(x.tensor, x.index) for x in stage.stores]
    steps = [stride(i, compute.tensor(t).strides, axis.name) for t, i in (*loaded, *stored)]
    return {*steps} <= {0, 1} and {*steps[len(loaded) :]} == {1}


def _at(value: Expr, places: Mapping[str, int]) -> Expr:
    """An expression with numbers in the places of axes."""
    fixed = {name: Affine((), n) for name, n in places.items()}
    return map_loads(value, {x: x.substitute(fixed) for x in distinct_loads((value,))})
