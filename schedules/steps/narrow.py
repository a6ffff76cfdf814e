"""The step that computes a stage in the type of its results."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Apply, Const, Expr
from hlotune.schedules.ir.nest import LoopNest

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class Narrow:
    """Computes a stage in the type of its results, where it went through a wider one.

    u[i] = f32(f64(a[i]) * 0.3 + f64(b[i]))   ->   u[i] = a[i] * 0.3 + b[i]

    Vectors hold more, and nothing is converted; each operation rounds to fewer digits.
    """

    stage: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        stage = s.stage.derived.get(Narrow)
        if not isinstance(stage, Stage):
            stage = s.stage.derived[Narrow] = _narrowed(s.stage)
        stages = tuple(stage if x is s.stage else x for x in nest.compute.stages)
        changed = LoopNest(replace(nest.compute, stages=stages), nest.target, nest.stages)
        return changed.put(replace(s, stage=stage))


def _narrowed(stage: Stage) -> Stage:
    known: dict[int, Expr] = {}
    values = tuple(_narrow(v, v.dtype, known) for v in stage.values)
    if not known:
        raise ScheduleError(
            f"narrow: expected results of {stage.name} that are computed in a wider type and "
            "converted, got none: leave the step out"
        )
    return replace(stage, values=values)


def _narrow(value: Expr, dtype: str, known: dict[int, Expr]) -> Expr:
    """A conversion from a wider type is left out, with all that was computed in that type."""
    if not isinstance(value, Apply) or value.op != "convert" or value.dtype not in FLOATS:
        return value
    inner = value.args[0]
    if inner.dtype not in FLOATS or BYTES[inner.dtype] <= BYTES[value.dtype]:
        return value
    return _in_type(inner, inner.dtype, dtype, known)


def _in_type(value: Expr, wide: str, dtype: str, known: dict[int, Expr]) -> Expr:
    """What is shared stays so: one object, however often it is used."""
    if isinstance(value, Const):
        return Const(value.value, dtype)
    if not isinstance(value, Apply) or value.dtype != wide:
        return Apply("convert", (value,), dtype) if value.dtype != dtype else value
    if id(value) not in known:
        known[id(value)] = _operation(value, wide, dtype, known)
    return known[id(value)]


def _operation(value: Apply, wide: str, dtype: str, known: dict[int, Expr]) -> Expr:
    if value.op == "convert":
        (inner,) = value.args
        return inner if inner.dtype == dtype else Apply("convert", (inner,), dtype)
    args: Iterable[Expr] = (_in_type(a, wide, dtype, known) for a in value.args)
    return Apply(value.op, tuple(args), dtype)
