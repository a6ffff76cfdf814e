"""Computes without a contraction, and which of their stages can share loops over rows.

A *nest* is one anchor stage at the root with members computed inside its loops.  Its *rows* are
the parallel axes of the anchor that every member has as an axis of its own, read point by point:
softmax along the last axis has all other axes as rows, the sum of a matrix over its rows has the
columns.  An iteration over rows then computes each member for its own rows alone, and nothing
twice.
"""

from dataclasses import dataclass
from functools import cached_property
from math import prod

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, Apply, Expr, loads
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.patterns.contraction import contraction


@dataclass(frozen=True)
class Nest:
    """One anchor with the stages that are computed inside its loops."""

    anchor: Stage
    members: tuple[Stage, ...] = ()
    """The other stages of the nest, in the order of the compute."""
    aligned: tuple[tuple[str, dict[str, str]], ...] = ()
    """(stage, its axis -> the anchor's axis that it is read along) for each member."""

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """The axes of the anchor that all members have, in the anchor's order."""
        shared = [set(axes.values()) for _, axes in self.aligned]
        return tuple(a.name for a in self.anchor.parallel if all(a.name in axes for axes in shared))

    @property
    def row_points(self) -> int:
        extents = self.anchor.extents
        return prod(extents[a] for a in self.rows)

    def row_axes(self, stage: Stage) -> dict[str, str]:
        """The axes of a stage that run along rows -> the anchor's axes."""
        if stage is self.anchor:
            return {a: a for a in self.rows}
        axes = dict(self.aligned)[stage.name]
        return {own: outer for own, outer in axes.items() if outer in self.rows}

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (*self.members, self.anchor)


def is_rows(compute: Compute) -> bool:
    """Whether a compute has no contraction that the contractions' spaces take, and no product of
    two operands each of which is read again for the other's axes."""
    if not any(map(_factors, compute.stages)):
        return True
    if has_matrix_product(compute):
        return False
    try:
        contraction(compute)
    except UnsupportedKernel:
        return True
    return False


def has_matrix_product(compute: Compute) -> bool:
    """Whether some stage sums products of two operands each of which is read again for the
    other's axes."""
    return any(_factors(s) and _is_matrix_product(s) for s in compute.stages)


def _factors(stage: Stage) -> tuple[Expr, Expr] | None:
    """The two factors of different loads that a stage sums the products of, if it does so."""
    if stage.combine is not SUM or stage.scans:
        return None
    for value in stage.values:
        while isinstance(value, Apply) and value.op == "convert":
            value = value.args[0]
        if isinstance(value, Apply) and value.op in ("multiply", "dot"):
            a, b = ({x.tensor for x in loads(e)} for e in value.args)
            if a and b and not a & b:
                return value.args[0], value.args[1]
    return None


def _is_matrix_product(stage: Stage) -> bool:
    factors = _factors(stage)
    assert factors is not None, "it sums products"
    parallel = {a.name for a in stage.parallel if a.extent > 1}
    a, b = ({name for x in loads(e) for name in x.axes} & parallel for e in factors)
    return bool(a - b) and bool(b - a)


def joined(compute: Compute, nest: Nest, stage: Stage) -> Nest | None:
    """The nest with one more member; None where the nest cannot compute the stage row by row, as
    one that stores a result of the kernel.

    All readers of the stage must stand in the nest and read it where they stand.
    """
    axes = _alignment(compute, nest, stage)
    if not axes or any(compute.tensor(t).role == "result" for t in stage.stored):
        return None
    aligned = ((stage.name, axes), *nest.aligned)
    found = Nest(nest.anchor, (stage, *nest.members), aligned)
    return found if found.rows else None


def _alignment(compute: Compute, nest: Nest, stage: Stage) -> dict[str, str]:
    """The anchor's axis that each axis of a stage is read along; those of no such axis left out."""
    users = [s for s in compute.stages if s is not stage and stage.stored & set(s.maps)]
    inside = all(any(u is s for s in nest.stages) for u in users)
    if not users or not inside or stage.stored_axes is None:
        return {}
    found: dict[str, set[str]] = {a.name: set() for a in stage.parallel}
    known = dict(nest.aligned)
    for user in users:
        own = known.get(user.name) or {a.name: a.name for a in nest.anchor.parallel}
        for x in (x for x in user.loads if x.tensor in stage.stored):
            if guarded(compute, user, x):
                return {}
            for axis, index in zip(stage.stored_axes, x.index, strict=True):
                if axis is not None:
                    found[axis].add(_outer(index, own))
    extents = nest.anchor.extents
    kept = {axis: outer.pop() for axis, outer in found.items() if len(outer) == 1}
    return {a: o for a, o in kept.items() if o and extents[o] == stage.extents[a]}


def _outer(index: Affine, own: dict[str, str]) -> str:
    """The anchor's axis that an index walks one by one from 0 on; "" where there is none."""
    if len(index.terms) != 1 or index.constant or index.terms[0][1] != 1:
        return ""
    return own.get(index.terms[0][0], "")
