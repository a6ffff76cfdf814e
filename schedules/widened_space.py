"""The algorithm `widened` and its space: f16 operands widened to f32 as they are packed."""

from hlotune.schedules.algorithm import Algorithm, constant
from hlotune.schedules.compute import Compute
from hlotune.schedules.cpu import CpuSpace
from hlotune.schedules.roles import contraction
from hlotune.schedules.target import Target
from hlotune.schedules.widened import WIDENED, can_widen, widened


def widened_space(compute: Compute, target: Target) -> CpuSpace | None:
    """The space of operands widened as they are packed, where the kernel has any."""
    if not can_widen(compute):
        return None
    space = CpuSpace(contraction(widened(compute)), target, WIDENED)
    return space if space.legal(space.heuristic()[None])[0] else None


def _spaces(compute: Compute, target: Target) -> tuple[CpuSpace, ...]:
    space = widened_space(compute, target)
    return () if space is None else (space,)


WIDENING = Algorithm(name=WIDENED, rewriting=constant(widened), spaces=_spaces, order="first")
