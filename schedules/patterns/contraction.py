"""The parts a contraction's compute has for a scheduler.

They are which stage reduces, which one stores, and what is read how.
The rules know nothing of convolutions or matrix products, only of affine index maps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.borders import (
    ends_along,
    is_zero_outside,
    leaving_along,
    windows_along,
)
from hlotune.schedules.ir.compute import Axis, Compute, Stage
from hlotune.schedules.ir.distances import nearest_bytes, stride
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import SUM

SPLIT_LANE = "l0"
"""The axis of the lanes that a split reduction adds up apart; vectors run along it."""


@dataclass(frozen=True, eq=False)
class Contraction:
    """A reduction (`core`) whose results one last stage (`out`) reads point by point.

    Other stages come before.  Equal to itself alone: what hangs on it is kept by it.
    """

    compute: Compute
    core: Stage
    out: Stage
    apart: tuple[str, ...] = ()
    """Parallel axes that are there for tasks: register tiles have no rows along them."""
    inner: str = ""
    """A reduction along which operands lie together when packed, where vectors do not run along
    them: matrix units read rows of it."""

    @cached_property
    def parallel(self) -> tuple[Axis, ...]:
        return self.out.parallel

    @cached_property
    def reduce(self) -> tuple[Axis, ...]:
        return self.core.reduce

    @cached_property
    def dtype(self) -> str:
        """Element type of the sums."""
        return self.compute.tensor(self.core.stores[0].tensor).dtype

    @cached_property
    def operands(self) -> tuple[Load, ...]:
        """Loads of the core from arrays that it loads once: these can be packed."""
        tensors = [x.tensor for x in self.core.loads]
        return tuple(x for x in self.core.walked_loads if x.index and tensors.count(x.tensor) == 1)

    @cached_property
    def before(self) -> tuple[Stage, ...]:
        return tuple(s for s in self.compute.stages if s not in (self.core, self.out))

    def stride(self, load: Load, axis: str) -> int:
        """Elements of memory between what neighbouring points of an axis load."""
        strides = self.compute.tensor(load.tensor).strides
        return stride(load.index, strides, axis)

    def step_bytes(self, load: Load, reduce: Sequence[Axis] | None = None) -> int:
        """Bytes between what consecutive steps of the sum load, along the nearest of its axes.

        `reduce` are the axes that count, by default all.  It is 0 where the load varies along none
        of them: then each step loads the same element.
        """
        axes = self.reduce if reduce is None else reduce
        return nearest_bytes(self.compute, load, (a.name for a in axes))

    def element_bytes(self, load: Load) -> int:
        """The bytes of an element as strides count it: a load may take several at once."""
        return BYTES[self.compute.tensor(load.tensor).dtype]

    def out_stride(self, axis: str) -> int:
        """Elements of memory between what neighbouring points of an axis store."""
        store = self.out.stores[0]
        return stride(store.index, self.compute.tensor(store.tensor).strides, axis)

    @cached_property
    def windows(self) -> dict[str, tuple[Load, ...]]:
        """For each axis of the core, its loads that leave their tensors along it."""
        return {a.name: windows_along(self.compute, self.core, a.name) for a in self.core.axes}

    @cached_property
    def phases(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """For each reduction of which phases of the results have their own numbers of taps: by the
        parallel axes that number these phases, the taps at each of their points.
        """
        found = {r.name: self._taps_of_all(r) for r in self.reduce}
        return {name: taps for name, taps in found.items() if taps}

    def _taps_of_all(self, r: Axis) -> dict[str, tuple[int, ...]]:
        """The taps that all windows along a reduction have; none where they differ."""
        ending = ends_along(self.compute, self.core, r.name)
        each = [self._taps(x.beside, r) for x in ending if x.beside]
        return each[0] if each and each.count(each[0]) == len(each) else {}

    def _taps(self, window: Load, r: Axis) -> dict[str, tuple[int, ...]]:
        """How many taps are inside of a window's tensor, by the points of each axis that moves it,
        at the first points of the others; none where it leaves the tensor in several dimensions."""
        d, *more = leaving_along(self.compute, self.core, window, r.name)
        if more:
            return {}
        extent, step = self.compute.tensor(window.tensor).shape[d], window.index[d].coefficients

        def taps(along: int, n: int) -> int:
            first = window.index[d].constant + along * n
            return sum(0 <= first + step[r.name] * q < extent for q in range(r.extent))

        numbered = (a for a in self.parallel if a.name in step)
        return {a.name: tuple(taps(step[a.name], n) for n in range(a.extent)) for a in numbered}

    @cached_property
    def windowed(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Parallel and reduce axes along which some load of the core leaves its tensor.

        Of the reduce axes those that may be clipped.
        """
        leaving = self.windows
        return (
            tuple(a.name for a in self.parallel if leaving[a.name]),
            tuple(
                r.name
                for r in self.reduce
                if leaving[r.name] and all(is_zero_outside(self.core, x) for x in leaving[r.name])
            ),
        )


def contraction(compute: Compute) -> Contraction:
    """Raises UnsupportedKernel where the compute is no contraction with a last stage."""
    out = compute.stages[-1]
    sources = [
        s
        for s in compute.stages[:-1]
        if s.combine
        and not s.scans
        and s.parallel == out.parallel
        and any(x.tensor == t.tensor for t in s.stores for x in out.loads)
    ]
    if len(sources) != 1 or out.combine:
        raise UnsupportedKernel(
            f"expected one reduction read by a last stage, got {[s.name for s in compute.stages]}: "
            "the kernel stays with the default compiler"
        )
    core = sources[0]
    if core.lookups:
        raise UnsupportedKernel(
            f"expected operands at places that are known beforehand, got {core.lookups[0]}: "
            "the kernel has the space of rows, or stays with the default compiler"
        )
    if not _is_one_sum_read_point_by_point(core, out):
        raise UnsupportedKernel(
            "expected the last stage to read the one sum of the reduction point by point: "
            "the kernel stays with the default compiler"
        )
    return Contraction(compute, core, out)


def _is_one_sum_read_point_by_point(core: Stage, out: Stage) -> bool:
    identity = tuple(Affine.axis(a.name) for a in core.parallel)
    direct = all(x.index == identity for x in out.loads if x.tensor == core.stores[0].tensor)
    is_one_sum = core.combine is SUM and len(core.stores) == 1
    return direct and core.parallel == out.parallel and is_one_sum
