"""What lies beyond the end of an axis: the step that computes it, and what is there to load.

Regions inside a loop have one size, and where that does not divide an axis the last one reaches
beyond its end.  A sum is cut off there, unless it overruns; other stages compute on, and so do sums
inside of these.  Nobody reads that, but what is loaded for it must be there.  Arguments are checked
as they are loaded, and so is what a root stage stores without a layout: these are zero outside.
"""

from dataclasses import dataclass, replace
from math import ceil

from hlotune.schedules.errors import require
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.nest import (
    LoopNest,
    StageNest,
    readers,
    reads,
    region,
    stored_shape,
    strides,
)


@dataclass(frozen=True, slots=True)
class Overrun:
    """Computes whole regions of an axis, what lies beyond its end among them; nobody reads that.

    for i.0 in 4: for i in i.0..min(i.0 + 14, 49): s   ->   for i.0 in 4: for i in i.0..i.0 + 14: s

    All tiles then have one size.  Beyond the end a stage loads zeros, what an overrun stored, or
    what lies in the elements that are free there.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        changed = replace(s, overrun=(*s.overrun, self.axis))
        after = nest.put(changed)
        check_overrun(after, changed)
        return after


def check_overrun(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where what a stage overruns ends before its regions do.

    Of finished nests too: later steps may move stages, and say anew how their results lie.
    """
    name, axes = s.stage.name, [a.name for a in s.stage.parallel]
    for axis in s.overrun:
        require(s.at is not None, "overrun", f"{name} stands at the root: its results end")
        require(axis in axes, "overrun", f"{name} has no parallel axis {axis}")
        found = (x for x in s.stage.loads if _goes_along(s, x, axis))
        short = next((x for x in found if not _goes_on(nest, s, x, axis)), None)
        require(short is None, "overrun", f"{short} ends with its tensor along {axis}")


def check_reach(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where a stage loads what is not there, and nothing is checked."""
    if s.at is None:
        return
    tensors = {x.tensor for x in s.stage.loads}
    unchecked = {name for name in tensors if not _is_checked(nest.producer(name))}
    found = [x for x in s.stage.loads if x.tensor in unchecked]
    for axis in (a.name for a in s.stage.parallel):
        along = (x for x in found if _goes_along(s, x, axis))
        short = next((x for x in along if not _is_there(nest, s, x, axis)), None)
        require(short is None, s.stage.name, (
            f"its regions or blocks of {axis} reach beyond what there is of {short}: compute it in "
            "regions that divide the axis and are whole blocks, or lay nothing out that it reads"
        ))  # fmt: skip


def _goes_on(nest: LoopNest, s: StageNest, x: Load, axis: str) -> bool:
    """Whether what a load reads is computed beyond the end of an axis, or has room there."""
    maker = nest.producer(x.tensor)
    if maker is None or not (is_whole(maker) or (maker.at is None and maker.layout)):
        return False
    return _is_there(nest, s, x, axis)


def _is_there(nest: LoopNest, s: StageNest, x: Load, axis: str) -> bool:
    """Whether there is something to load for all regions along an axis, to their ends."""
    maker = nest.producer(x.tensor)
    if maker is None or _is_checked(maker):
        return True
    is_cut_off = _is_cut_off(nest, s, axis)
    if _has_more_blocks(nest, s, axis):
        return is_cut_off and maker.at is None
    if is_cut_off or _fills(nest, s, axis):
        return True
    if maker.at and (maker.at == s.at or maker.at[0] == s.stage.name):
        return True  # it stores all that one region reads
    own = [d for d, e in enumerate(x.index) if axis in e.coefficients]
    plain = [x.index[d] for d in own] == [Affine.axis(axis)]
    return plain and _are_in_a_row(nest, s, axis) and _has_room(nest, s, axis, maker, own[0])


def is_whole(s: StageNest) -> bool:
    """Whether a stage computes whole regions of its own accord: a copy is cut off by its checks."""
    return s.at is not None and s.stage.combine is None


def _is_checked(maker: StageNest | None) -> bool:
    """Whether loads of what a stage stores, or of an argument, are zero outside of it."""
    return maker is None or not (maker.at or maker.layout)


def _goes_along(s: StageNest, x: Load, axis: str) -> bool:
    names = {axis, *(d.name for d in s.stage.digits if d.axis == axis)}
    return not names.isdisjoint(x.axes)


def _is_cut_off(nest: LoopNest, s: StageNest, axis: str) -> bool:
    """Whether no region goes on beyond the end of an axis, as code is written for it."""
    if s.at is None:
        return True
    if is_whole(s) or axis in s.overrun:
        return False
    return all(_cuts_off(nest, s, axis, user) for user in readers(nest, s))


def _cuts_off(nest: LoopNest, s: StageNest, axis: str, user: StageNest) -> bool:
    """Whether a reader reads nothing beyond the end of an axis."""
    d = (s.stage.stored_axes or ()).index(axis)
    found = {x.index[d] for x in reads(s.stage, user.stage)}
    own = [a.name for a in user.stage.axes if found == {Affine.axis(a.name)}]
    summed = {a.name for a in user.stage.reduce}
    return bool(own) and (own[0] in summed or _is_cut_off(nest, user, own[0]))


def _has_more_blocks(nest: LoopNest, s: StageNest, axis: str) -> bool:
    """Whether blocks that loops go in steps of are computed whole, beyond the end of a region."""
    d, size = (s.stage.stored_axes or ()).index(axis), region(nest, s)[axis]
    steps = [loop.step for loop in s.loops if loop.root == axis]
    return any(e == d and size > b and size % b and b in steps for e, b in s.layout)


def _fills(nest: LoopNest, s: StageNest, axis: str) -> bool:
    """Whether regions end where the axis does."""
    extent, size = s.stage.extents[axis], region(nest, s)[axis]
    return size == extent or (extent % size == 0 and _are_in_a_row(nest, s, axis))


def _are_in_a_row(nest: LoopNest, s: StageNest, axis: str) -> bool:
    """Whether regions begin where others end: their readers walk the axis as one of the stage that
    they all stand in.

    That one stands at the root: its loops go in steps of a region then.  Regions of what stands
    inside another stage begin where regions of that one do, and those may overlap.
    """
    around = nest.stage(s.at[0]) if s.at else s
    return around.at is None and _walked(nest, s, axis, around, {}) is not None


Walked = dict[tuple[str, str], str | None]
"""What is known of stages and their axes: several ways may lead to one of them."""


def _walked(
    nest: LoopNest, s: StageNest, axis: str, around: StageNest, known: Walked
) -> str | None:
    """The axis of `around` that all readers walk along, point by point; None where it is none."""
    if s is around:
        return axis
    place = s.stage.name, axis
    if place not in known:
        known[place] = _walked_by_readers(nest, s, axis, around, known)
    return known[place]


def _walked_by_readers(
    nest: LoopNest, s: StageNest, axis: str, around: StageNest, known: Walked
) -> str | None:
    d = (s.stage.stored_axes or ()).index(axis)
    found = set[str | None]()
    for user in readers(nest, s):
        places = {x.index[d] for x in reads(s.stage, user.stage)}
        own = [a.name for a in user.stage.parallel if places == {Affine.axis(a.name)}]
        found.add(_walked(nest, user, own[0], around, known) if own else None)
    return found.pop() if len(found) == 1 else None


def _has_room(nest: LoopNest, s: StageNest, axis: str, maker: StageNest, d: int) -> bool:
    """Whether a buffer has elements for regions in a row along a dimension, to their ends.

    Of what is stored apart these may lie between slices, but only right behind a slice's own.
    """
    shape, size = stored_shape(nest, maker), region(nest, s)[axis]
    if maker.at:
        return shape[d] % size == 0
    slowest, *rest = maker.layout
    in_rows = all(block == 1 for _, block in maker.layout) and rest[:1] == [(d, 1)]
    apart, whole = strides(maker.layout, shape, maker.spacing), ceil(s.stage.extents[axis] / size)
    return in_rows and whole * size * apart[d, 1] <= apart[slowest]
