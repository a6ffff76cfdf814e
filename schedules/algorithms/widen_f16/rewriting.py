"""Sums of f16 in f32, widened as operands are packed, not each time they are multiplied.

Processors widen f16 by an instruction that takes as long as the multiply-add.  The compute is that
of `direct`, but its loads widen: what packs them stores f32.
"""

from dataclasses import replace

from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Apply, Expr, Load
from hlotune.schedules.patterns.contraction import contraction

WIDENED = "widened"
NARROW, WIDE = "f16", "f32"


def widened(compute: Compute) -> Compute:
    """The algorithm.  Raises ScheduleError for a compute without such a sum."""
    found = _rewritten(compute)
    if found is None:
        raise ScheduleError(
            f"widened: expected a sum of products of f16 in f32, got\n{compute}\nuse `direct`"
        )
    return found


def can_widen(compute: Compute) -> bool:
    return _rewritten(compute) is not None


def _rewritten(compute: Compute) -> Compute | None:
    try:
        core = contraction(compute).core
    except UnsupportedKernel:
        return None
    (value,) = core.values
    if not isinstance(value, Apply) or value.op != "multiply" or value.dtype != WIDE:
        return None
    factors = tuple(_wide(x) for x in value.args)
    if factors == value.args:
        return None
    changed = replace(core, values=(replace(value, args=factors),))
    stages = tuple(changed if s is core else s for s in compute.stages)
    return Compute(compute.tensors, stages)


def _wide(factor: Expr) -> Expr:
    if isinstance(factor, Apply) and factor.op == "convert" and isinstance(factor.args[0], Load):
        x = factor.args[0]
        if x.dtype == NARROW and x.outside == 0:
            return replace(x, dtype=WIDE)
    return factor
