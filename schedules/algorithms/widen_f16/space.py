"""The algorithm `widened` and its space: f16 operands widened to f32 as they are packed."""

from hlotune.schedules.algorithms.algorithm import Algorithm, constant
from hlotune.schedules.algorithms.widen_f16.rewriting import WIDENED, can_widen, widened
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.contraction import contraction
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.targets.cpu import CpuTarget


def widened_space(compute: Compute, target: CpuTarget) -> CpuSpace | None:
    """The space of operands widened as they are packed, where the kernel has any."""
    if not can_widen(compute):
        return None
    space = CpuSpace(contraction(widened(compute)), target, WIDENED)
    return space if space.legal(space.heuristic()[None])[0] else None


def _spaces(compute: Compute, target: CpuTarget) -> tuple[CpuSpace, ...]:
    space = widened_space(compute, target)
    return () if space is None else (space,)


WIDENING = Algorithm(name=WIDENED, rewriting=constant(widened), spaces=_spaces, order="first")
