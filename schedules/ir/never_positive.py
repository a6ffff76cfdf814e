"""Which exponentials are of what is never above zero.

A softmax takes the largest element of a row away from each of its elements.  Such an exponential is
at most one, and needs no care for what is too large.
"""

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Apply, Expr, Load
from hlotune.schedules.ir.lost_nan import Axes, alike, is_direct, walked_axis
from hlotune.schedules.ir.monoids import MAX


def powers_are_at_most_one(compute: Compute, stage: Stage) -> bool:
    """Whether all exponentials of a stage's values are of numbers that are zero or less.

    Rounding may leave such a number a little above zero: where a product and the difference behind
    it are one instruction, the largest element is less exact than what it is taken from.
    """
    found = [e for value in stage.values for e in _exponentials(value)]
    return bool(found) and all(_is_never_positive(compute, stage, e.args[0]) for e in found)


def _exponentials(value: Expr) -> list[Apply]:
    if not isinstance(value, Apply):
        return []
    inside = [e for a in value.args for e in _exponentials(a)]
    return [*inside, value] if value.op == "exponential" else inside


def _is_never_positive(compute: Compute, stage: Stage, value: Expr) -> bool:
    if not isinstance(value, Apply):
        return False
    if value.op == "negate":
        return isinstance(value.args[0], Apply) and value.args[0].op == "abs"
    if value.op != "subtract" or not isinstance(value.args[1], Load):
        return False
    x, top = value.args
    own = {a.name: a.name for a in stage.axes}
    return _is_at_least(compute, top, own, stage, x)


def _is_at_least(compute: Compute, bound: Expr, axes: Axes, stage: Stage, x: Expr) -> bool:
    """Whether a bound, over axes by which those of a stage go, is no less than that stage's x."""
    if isinstance(bound, Apply) and bound.op == "maximum":
        return any(_is_at_least(compute, a, axes, stage, x) for a in bound.args)
    if not isinstance(bound, Load) or not is_direct(bound) or bound.dtype != x.dtype:
        return False
    makers = [s for s in compute.stages if bound.tensor in s.stored]
    if len(makers) != 1 or not _is_plain(makers[0]):
        return False
    maker = makers[0]
    inside = _walked(maker, bound, axes)
    if inside is None:
        return False
    if maker.combine is None:
        return _is_at_least(compute, maker.values[0], inside, stage, x)
    found = dict(inside)
    return maker.combine is MAX and alike(maker.values[0], x, found) and all(
        stage.extents[there] <= maker.extents[here] for here, there in found.items()
    )  # fmt: skip


def _is_plain(stage: Stage) -> bool:
    """Whether a stage has one result, of all its points."""
    apart = stage.scans or stage.onto or stage.begins or stage.digits or stage.lookups
    return len(stage.stores) == 1 and not apart


def _walked(maker: Stage, read: Load, axes: Axes) -> dict[str, str] | None:
    """By axes of the stage that made what is read, those that the reader goes along; None where it
    reads it otherwise than it was stored."""
    found = dict[str, str]()
    for stored, e in zip(maker.stores[0].index, read.index, strict=True):
        if not stored.terms and not e.terms and stored == e:
            continue
        own, there = walked_axis(stored), walked_axis(e)
        if own is None or there is None or there not in axes:
            return None
        found[own] = axes[there]
    return found
