"""Scans cut into blocks along their axis.

    y[i, r] = merge up to r of x[i, r]
        ->   y.totals[p0, i] = merge over r of its block
             y.carries[p0, i] = merge up to p0 of the totals before
             y[i, r] = merge up to r, from the carry of its block on

The operand is read twice, and results are written once.  Blocks are contiguous and equally long,
and carries come together in one order: results are the same in every call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hlotune.schedules.algorithms.cut_stages import Pieces, with_stages_cut
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load, map_all_loads

BLOCK = "p0"
"""The axis of the blocks."""
LEAST_STEPS = 1 << 10
"""Points of a scan that a block is worth a task for."""
SPARE = 8
"""Up to so many times the blocks that are asked for are taken, where only these divide an axis."""


@dataclass(frozen=True, slots=True)
class BlockedScan:
    """Cuts each scan that is long enough into at least so many blocks."""

    blocks: int

    def __str__(self) -> str:
        return f"blocked_scan({self.blocks})"

    def __call__(self, compute: Compute) -> Compute:
        """Raises ScheduleError where no scan has a length to cut."""
        found = with_stages_cut(compute, self._pieces)
        if found is None:
            raise ScheduleError(
                f"{self}: expected a scan along an axis that some number of blocks from "
                f"{self.blocks} on divides, got none: use `direct`"
            )
        return found

    def _pieces(self, stage: Stage) -> Pieces | None:
        blocks = blocks_of(stage, self.blocks)
        return None if blocks is None else _cut(stage, blocks)


def blocks_of(stage: Stage, least: int) -> int | None:
    """The number of blocks of a scan; None where it is not cut."""
    if not stage.scans or stage.begins or stage.digits or BLOCK in stage.extents:
        return None
    (axis,) = stage.reduce
    if axis.extent < LEAST_STEPS * least:
        return None
    return next((n for n in range(least, SPARE * least + 1) if axis.extent % n == 0), None)


def _cut(stage: Stage, blocks: int) -> tuple[tuple[Stage, ...], tuple[Tensor, ...]]:
    """The stages of totals, carries and results, and the tensors between them."""
    (axis,), parallel = stage.reduce, (Axis(BLOCK, blocks), *stage.parallel)
    inner = Axis(axis.name, axis.extent // blocks)
    place = {axis.name: Affine.axis(axis.name) + Affine.axis(BLOCK, inner.extent)}
    values = map_all_loads(stage.values, {x: x.substitute(place) for x in stage.loads})
    inside = replace(stage, parallel=parallel, reduce=(inner,), values=values)
    totals, carries = (_between(inside, part) for part in ("totals", "carries"))
    index = _everywhere(inside)
    first = replace(inside, name=f"{stage.name}.totals", stores=_stores(totals, index))
    second = replace(
        stage,
        name=f"{stage.name}.carries",
        reduce=parallel[:1],
        stores=_stores(carries, index),
        values=_of_the_block_before(inside, totals),
    )
    last = replace(
        inside,
        stores=tuple(
            Store(x.tensor, tuple(e.substitute(place) for e in x.index)) for x in stage.stores
        ),
        begins=tuple(Load(t.name, index, t.dtype) for t in carries),
    )
    return (first, second, last), (*totals, *carries)


def _everywhere(stage: Stage) -> tuple[Affine, ...]:
    """The index of a tensor that has an element for each point of the parallel axes."""
    return tuple(Affine.axis(a.name) for a in stage.parallel)


def _between(stage: Stage, part: str) -> tuple[Tensor, ...]:
    """A tensor for each value of a stage over its parallel axes."""
    shape = tuple(a.extent for a in stage.parallel)
    return tuple(
        Tensor(f"{stage.name}.{k}.{part}", shape, v.dtype, "temporary")
        for k, v in enumerate(stage.values)
    )


def _stores(tensors: Sequence[Tensor], index: tuple[Affine, ...]) -> tuple[Store, ...]:
    return tuple(Store(t.name, index) for t in tensors)


def _of_the_block_before(stage: Stage, totals: Sequence[Tensor]) -> tuple[Load, ...]:
    """The totals of the block before each one; for the first block they are the identities."""
    assert stage.combine is not None, "a scan merges"
    identities = [
        c
        for group in stage.groups
        for c in stage.combine.identities(tuple(stage.values[k].dtype for k in group))
    ]
    block, *others = _everywhere(stage)
    before = (block + -1, *others)
    return tuple(
        Load(t.name, before, t.dtype, outside=c.value)
        for t, c in zip(totals, identities, strict=True)
    )
