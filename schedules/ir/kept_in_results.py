"""Temporaries that lie where a result is written over them.

A softmax stores the exponentials of a row, adds them up, and divides each by their sum.  With both
in one place the lines of the result are asked for while exponentials are computed, and not by the
quotients, which take less time than the lines.  Where the first cache does not hold a row, it is
fewer lines of the second one too; where vectors have 32 bytes or less, that alone was measured to
pay.
"""

from itertools import takewhile

from hlotune.schedules.ir.compute import Stage, Tensor
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.lost_nan import is_direct, walked_axis
from hlotune.schedules.ir.nest import LoopNest, StageNest, readers, region, stored_bytes
from hlotune.schedules.targets.cpu import CpuTarget


def result_around(nest: LoopNest, s: StageNest) -> Tensor | None:
    """The result that a stage may keep its temporary in; None where that needs a place of its own.

    A result has room for one temporary, as others may be read until it is written: that of the
    first stage which may keep one there.
    """
    result = _fitting(nest, s)
    earlier = takewhile(lambda x: x.stage.name != s.stage.name, nest.stages)
    taken = result is not None and any(_fitting(nest, x) is result for x in earlier)
    return None if taken else result


def holds_temporary(nest: LoopNest, result: Tensor) -> bool:
    """Whether some temporary lies where a result is written later."""
    return any(_fitting(nest, s) is result for s in nest.stages)


def _fitting(nest: LoopNest, s: StageNest) -> Tensor | None:
    """The result that a temporary fits into, whatever else does.

    The stage that writes the result reads the temporary last, each element where it writes its own.
    """
    if not _is_plain(nest, s) or s.at is None or not _pays(nest.target, stored_bytes(nest, s)):
        return None
    root, users = nest.stage(s.at[0]), readers(nest, s)
    written = root.stage.stores[0]
    result = nest.compute.tensor(written.tensor)
    own = nest.compute.tensor(s.stage.stores[0].tensor)
    alike = (result.role, result.shape, result.dtype) == ("result", own.shape, own.dtype)
    alone = root.at is None and len(root.stage.stores) == 1 and root.stage.combine is None
    if not (alike and alone) or root.non_temporal or root.overrun or root.stage.ends:
        return None
    if users[-1:] != (root,) or not all(_reads_along_axes(s.stage, u.stage) for u in users):
        return None
    if any(x.index != written.index for x in root.stage.loads if x.tensor == own.name):
        return None
    return result if _covers_the_same(nest, s, root) else None


def _pays(target: CpuTarget, size: int) -> bool:
    """Whether a temporary of so many bytes belongs into a result."""
    return target.has_wide_vectors or 2 * size > target.l1_bytes


def _is_plain(nest: LoopNest, s: StageNest) -> bool:
    """Whether a stage stores one temporary of a task, over its axes in order."""
    stage = s.stage
    apart = stage.combine or stage.digits or stage.lookups or stage.ends or stage.onto
    ordered = len(stage.stores) == 1 and _is_in_order(stage)
    placed = not (s.layout or s.spacing or s.overrun or s.accumulate is not None)
    return s.scope == "task" and placed and ordered and not apart and (
        nest.compute.tensor(stage.stores[0].tensor).role == "temporary"
    )  # fmt: skip


def _is_in_order(stage: Stage) -> bool:
    return [walked_axis(e) for e in stage.stores[0].index] == [a.name for a in stage.parallel]


def _reads_along_axes(maker: Stage, user: Stage) -> bool:
    """Whether a stage reads what another stores along its own axes, no point beside another."""
    loads: list[Load] = [x for x in user.loads if x.tensor in maker.stored]
    return all(is_direct(x) and all(walked_axis(e) for e in x.index) for x in loads)


def _covers_the_same(nest: LoopNest, s: StageNest, root: StageNest) -> bool:
    """Whether an iteration computes of the temporary just what it writes of the result, and all
    iterations are whole."""
    assert s.at is not None
    written = [walked_axis(e) for e in root.stage.stores[0].index]
    inside = root.sizes_inside(root.index(s.at[1]), region(nest, root))
    computed = region(nest, s)
    pairs = zip(written, s.stage.parallel, strict=True)
    same = all(a is not None and inside[a] == computed[own.name] for a, own in pairs)
    return same and all(n % inside[a] == 0 for a, n in root.stage.extents.items())
