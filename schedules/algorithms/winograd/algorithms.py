"""The algorithms `winograd(2)`, `winograd(4)` and `winograd(6)`, and the spaces that they have."""

from hlotune.schedules.algorithms.algorithm import Algorithm, constant
from hlotune.schedules.algorithms.winograd.rewriting import window, winograd
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.algorithms.winograd.transforms import LOOSE, PAIRS
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import loads
from hlotune.schedules.targets.cpu import CpuTarget


def winograd_space(compute: Compute, m: int, target: CpuTarget) -> WinogradSpace | None:
    """The space of F(m, 3); None where it does not apply or has no legal schedule."""
    w = window(compute)
    if w is None:
        return None
    tensors = {x.tensor for x in loads(w.taps)}
    stored = {t.name for t in compute.tensors if t.role == "constant"}
    users = [s.name for s in compute.stages for x in s.loads if x.tensor in tensors]
    preload = len(tensors) == 1 and tensors <= stored and len(users) == 1
    space = WinogradSpace(compute, m, target, preload)
    return space if space.legal(space.heuristic()[None])[0] else None


def winograd_spaces(
    compute: Compute, target: CpuTarget, *, fast: bool = False
) -> tuple[WinogradSpace, ...]:
    """The spaces of all Winograd algorithms that apply; with `fast` of the inexact ones, too."""
    found = (winograd_space(compute, m, target) for m in PAIRS if fast or m not in LOOSE)
    return tuple(s for s in found if s is not None)


def _algorithm(m: int) -> Algorithm:
    def spaces(compute: Compute, target: CpuTarget) -> tuple[WinogradSpace, ...]:
        space = winograd_space(compute, m, target)
        return () if space is None else (space,)

    return Algorithm(
        name=f"winograd({m})",
        rewriting=constant(winograd(m)),
        spaces=spaces,
        numerics="fast" if m in LOOSE else "standard",
        outputs=m,
        order="last",
    )


WINOGRAD = tuple(_algorithm(m) for m in PAIRS)
