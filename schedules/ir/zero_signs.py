"""Which results may have either sign where they are zero.

The larger of two zeros is the positive one, which takes processors several instructions to find.
Where the largest element of a row is only subtracted from others, as in a softmax, nothing is lost
where these instructions are left out.
"""

from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Apply, Expr, Load
from hlotune.schedules.ir.operations import row_of


def may_be_either_zero(compute: Compute, stage: Stage) -> bool:
    """Whether no result of the compute tells by more than the sign of a difference that is zero
    which zero a stage stored."""
    own = [compute.tensor(x.tensor) for x in stage.stores]
    if any(t.role != "temporary" or not is_float(t.dtype) for t in own):
        return False
    names = {t.name for t in own}
    return not any(_shown(compute, s, names) for s in compute.stages if names & set(s.maps))


def _shown(compute: Compute, reader: Stage, names: set[str]) -> bool:
    """Whether the sign of a zero in some tensors reaches a result by way of one stage."""
    reaches = [_reaches(value, names) for value in reader.values]
    if "far" in reaches:
        return True
    return "zero" in reaches and not may_be_either_zero(compute, reader)


def _reaches(expr: Expr, names: set[str]) -> str:
    """How the zeros of some tensors show in a value: "" not, "zero" as a zero's sign, or "far"."""
    if isinstance(expr, Load):
        return "zero" if expr.tensor in names else ""
    if not isinstance(expr, Apply):
        return ""
    found = [_reaches(a, names) for a in expr.args]
    if expr.op == "subtract":
        found = found[:1] if found[1] != "far" else found
    if "far" in found:
        return "far"
    sign = row_of(expr.op).zero_sign
    if "zero" not in found or sign == "hidden":
        return ""
    return "zero" if sign == "kept" or expr.op == "subtract" else "far"
