"""Stages that do the same to arrays of other sizes, as the updates of a network's parameters do.

They have their knobs in common: otherwise a space would have thousands of them.
"""

from collections import defaultdict

from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import operations

FEWEST = 4
"""Stages alike that have their knobs in common."""


def likes_of(compute: Compute) -> dict[str, str]:
    """By stage the largest one that does the same; of few the stage itself."""
    alike = defaultdict[object, list[Stage]](list)
    for stage in compute.stages:
        alike[_kind(compute, stage)].append(stage)
    found = {s.name: s.name for s in compute.stages}
    for kind, several in alike.items():
        if kind is not None and len(several) >= FEWEST:
            largest = max(several, key=lambda s: s.points)
            found |= {s.name: largest.name for s in several}
    return found


def _kind(compute: Compute, stage: Stage) -> object:
    """What a stage does to the elements of arrays along one axis; None for any other stage."""
    if len(stage.parallel) != 1 or stage.combine or stage.digits:
        return None
    if any(compute.tensor(name).role != "result" for name in stage.stored):
        return None
    types = tuple(x.dtype for x in stage.loads), tuple(v.dtype for v in stage.values)
    return types, tuple(x.op for x in operations(stage.values)), stage.parallel[0].name
