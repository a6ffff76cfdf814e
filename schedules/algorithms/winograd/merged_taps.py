"""Taps and channels that are walked as one axis, told apart again.

Where a window never leaves its image, taps along its fastest axis and the channels behind them lie
together, in the image as in the weights, and a compute has one axis for both.
"""

from dataclasses import replace

from hlotune.schedules.ir.compute import Axis, Stage, Store
from hlotune.schedules.ir.expr import Affine, loads, map_all_loads


def apart(core: Stage, taps: int) -> Stage:
    """The stage with each axis of `taps` times n elements as one of taps and one of n elements.

    x[n*i + r] of r in 3n   ->   x[n*i + n*rt + r] of rt in 3, r in n

    An axis is taken where an axis of positions walks n elements of it a step.
    """
    for r in core.reduce:
        depth, rest = divmod(r.extent, taps)
        if depth > 1 and not rest and _is_window(core, r.name, depth):
            core = _split(core, r, depth)
    return core


def _is_window(core: Stage, r: str, depth: int) -> bool:
    """Whether positions walk along a reduce axis, `depth` of its elements a step."""
    maps = [e.coefficients for v in core.values for x in loads(v) for e in x.index]
    positions = [a.name for a in core.parallel]
    return any(m.get(p, 0) == depth * m[r] for m in maps if r in m for p in positions)


def _split(core: Stage, r: Axis, depth: int) -> Stage:
    tap = Axis(f"{r.name}t", r.extent // depth)
    place = {r.name: Affine.axis(tap.name, depth) + Affine.axis(r.name)}
    reduce = tuple(x for a in core.reduce for x in ((tap, Axis(r.name, depth)) if a == r else (a,)))
    changes = {x: x.substitute(place) for x in core.loads}
    stores = tuple(
        Store(s.tensor, tuple(e.substitute(place) for e in s.index)) for s in core.stores
    )
    return replace(core, reduce=reduce, stores=stores, values=map_all_loads(core.values, changes))
