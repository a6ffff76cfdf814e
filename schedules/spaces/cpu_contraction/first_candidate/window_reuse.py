"""What neighbours in a register tile share of a window, where its taps are written out.

Emitted code loads such an element once (`codegen/llvm/idioms/window_reuse.py`), as long as
registers hold the sums, the taps that it meets, and the element.  This matters where each
multiply-add has a load of its own.
"""

from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Axis
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.knobs import LONGEST_UNROLL

SUMS_SHARE = 0.5
"""The share of the registers for sums that wait for loads; the others hold what is loaded."""
SHORT_REDUCTION = 32
"""Steps of a reduction up to which it is written out."""


def waits_for_loads(c: Contraction, x: Load) -> bool:
    """Whether an operand varies along all axes, as in depthwise convolutions."""
    return all(a.name in x.axes for a in c.parallel)


def rolling(c: Contraction, vector: str) -> Axis | None:
    """The last reduction along which rows of a tile share what they wait for, or None."""
    rows = {a.name for a in c.parallel if a.extent > 1 and a.name != vector}
    indices = [e.coefficients for x in c.operands if waits_for_loads(c, x) for e in x.index]
    found = [r for r in c.reduce if any(r.name in e and rows & set(e) for e in indices)]
    return found[-1] if found else None


def written_taps(c: Contraction, vector: str) -> tuple[Axis, ...]:
    """Reductions without loops, the rolling one last: all where they are short together, else that
    one where it is short."""
    last = rolling(c, vector)
    if last is None:
        return ()
    if prod(r.extent for r in c.reduce) <= SHORT_REDUCTION and _can_be_written(*c.reduce):
        return (*(r for r in c.reduce if r != last), last)
    return (last,) if _can_be_written(last) else ()


def _can_be_written(*axes: Axis) -> bool:
    return all(a.extent <= LONGEST_UNROLL for a in axes)


def loaded_share(
    c: Contraction, x: Load, vector: str, tiles: NDArray[np.int64], registers: int
) -> NDArray[np.float64]:
    """`(n,)`: loads of an operand by tiles of `(n, parallel axes)`, over those of copies that load
    each for itself."""
    share, total = np.ones(len(tiles)), np.prod(tiles, axis=1)
    written, few = written_taps(c, vector), total <= SUMS_SHARE * registers
    # taps that vary along the vector are those of one vector at a time
    apart = all(waits_for_loads(c, y) or vector in y.axes for y in c.operands)
    across = tiles[:, [a.name for a in c.parallel].index(vector)]
    held = total + (1 if apart else across)
    for k in range(len(written)):
        along = {r.name: r.extent for r in written[k:]}
        fits = few & (held + prod(along.values()) <= registers)
        share = np.where(fits, np.minimum(share, _shared(c, x, vector, tiles, along)), share)
    return share


def _shared(
    c: Contraction, x: Load, vector: str, tiles: NDArray[np.int64], along: dict[str, int]
) -> NDArray[np.float64]:
    share = np.ones(len(tiles))
    for k, a in enumerate(c.parallel):
        for e in (e for e in x.index if a.name in e.coefficients and a.name != vector):
            for r in (r for r in along if r in e.coefficients):
                step, tap = e.coefficients[a.name], e.coefficients[r]
                rows = range(int(tiles[:, k].max(initial=0)) + 1)
                share *= np.array([distinct(n, along[r], step, tap) for n in rows])[tiles[:, k]]
    return share


@cache
def distinct(rows: int, taps: int, step: int, tap: int) -> float:
    """Share of the elements that a window of taps reads over rows which no other tap has read."""
    elements = {step * i + tap * k for i in range(rows) for k in range(taps)}
    return len(elements) / max(1, rows * taps)
