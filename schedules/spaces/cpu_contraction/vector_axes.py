"""Along which axes a contraction can be vectorized, and what each of them costs.

Vectors want neighbours: in the result, or else it is scattered; in the operands, or else they are
packed in panels first.  Windows along the vector need masks at the borders, and gathers where they
go in strides.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import is_panelled
from hlotune.schedules.targets.cpu import WAY_BYTES, CpuTarget
from hlotune.schedules.targets.machine_rates import MachineRates

FEW_LANES = 8
"""Elements of an axis below which vectors along it waste most of what a processor has."""
GATHER_ROWS = 4
"""Rows of a register tile that share one gathered vector, where an operand varies along some."""


def vector_axes(c: Contraction) -> tuple[str, ...]:
    """Axes along which neighbours lie together in the result or in an operand.

    Where windows or strides run along all of them, also those along which operands can be packed
    in panels; where all are so short that most lanes would idle, also those along which a copy
    brings them together.  Where there are none, the longest axis.
    """
    own = [a for a in c.parallel if a.name not in c.apart] or c.parallel
    long = [a.name for a in own if a.extent > 1]
    near = [a for a in long if c.out_stride(a) == 1 or any(_step(c, x, a) == 1 for x in c.operands)]
    if not any(_is_plain(c, a) for a in near):
        near += [a for a in long if a not in near and any(_panelled(c, x, a) for x in c.operands)]
    if all(c.core.extents[a] < FEW_LANES for a in near):
        near += [a for a in long if a not in near and _can_be_brought_together(c, a)]
    return tuple(near) or (max(own, key=lambda a: a.extent).name,)


def _can_be_brought_together(c: Contraction, axis: str) -> bool:
    return c.core.extents[axis] >= FEW_LANES and any(
        brings_together(c, x, axis) for x in c.operands if _step(c, x, axis) > 1
    )


def cycles(c: Contraction, lanes: int, axis: str, target: CpuTarget) -> float:
    """Estimated cycles of a thread for the whole contraction with vectors along an axis."""
    extent, rates = c.core.extents[axis], target.rates
    multiply_adds = c.core.points / extent * ceil(extent / lanes)
    results = multiply_adds / (c.core.points / c.out.points)
    total = multiply_adds / target.multiply_adds
    if c.out_stride(axis) != 1:
        whole = np.array([[a.extent for a in c.parallel]])
        total += float(scatter_cycles(neighbours(c, axis, whole), lanes, rates)[0]) * results
    for x in c.operands:
        step = _step(c, x, axis)
        if step == 1:
            total += rates.mask_share * multiply_adds * (not _is_inside(c, axis))
        elif step and brings_together(c, x, axis):
            constant = c.compute.tensor(x.tensor).role == "constant"
            shares_sets = step * c.element_bytes(x) >= WAY_BYTES
            far = rates.far_copy if shares_sets and not _panelled(c, x, axis) else 1
            copied = 0 if constant else c.compute.tensor(x.tensor).elements
            total += rates.copied_element_cycles * far * copied
        elif step:
            load = (
                rates.strided_cycles * step if step <= rates.most_stride else rates.scatter_cycles
            )
            shared = GATHER_ROWS if any(not c.stride(x, a.name) for a in c.parallel) else 1
            total += load * multiply_adds / shared
    return total


def neighbours(c: Contraction, axis: str, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """`(n,)`: rows of a tile that lie together in the result, with vectors along an axis.

    `tiles` is `(n, parallel axes)`.
    """
    runs, whole, below = np.ones(len(tiles), dtype=np.int64), np.ones(len(tiles), dtype=bool), 1
    for k, a in sorted(enumerate(c.parallel), key=lambda a: c.out_stride(a[1].name)):
        if a.name != axis and c.out_stride(a.name) == below:
            runs = np.where(whole, runs * tiles[:, k], runs)
            whole &= tiles[:, k] >= a.extent
            below *= a.extent
    return runs


def scatter_cycles(rows: NDArray[np.int64], lanes: int, rates: MachineRates) -> NDArray[np.float64]:
    """`(n,)`: of one vector whose lanes lie apart in the result, so many rows of them together."""
    rows = np.minimum(rows, lanes)
    return np.where(rows < 2, rates.scatter_cycles, np.log2(rows) + lanes / rows)


def brings_together(c: Contraction, x: Load, axis: str) -> bool:
    """Whether a copy of an operand holds what vectors along an axis read closer together."""
    steps = [abs(e.coefficients[axis]) for e in x.index if axis in e.coefficients]
    return _panelled(c, x, axis) or steps != [_step(c, x, axis)]


def _step(c: Contraction, x: Load, axis: str) -> int:
    return abs(c.stride(x, axis))


def _panelled(c: Contraction, x: Load, axis: str) -> bool:
    return is_panelled(c, x.tensor, axis)


def _is_inside(c: Contraction, axis: str) -> bool:
    """Whether no window along the axis leaves its tensor."""
    return axis not in c.windowed[0]


def _is_plain(c: Contraction, axis: str) -> bool:
    """Whether vectors along the axis need neither masks nor gathers, packed or not."""
    apart = [x for x in c.operands if _step(c, x, axis) > 1]
    steps = (e.coefficients.get(axis, 1) for x in apart for e in x.index)
    panelled = all(_panelled(c, x, axis) for x in apart)
    return _is_inside(c, axis) and panelled and set(steps) <= {1}
