"""The way into an attention's space for schedules that were not made by it."""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.patterns.attention import DEPTH, FEATURE, KEY, OUT, ROW, SCORES, VALUES
from hlotune.schedules.spaces.cpu_attention.first_candidate import first_columns
from hlotune.schedules.spaces.cpu_attention.view import AttentionKnobs, put
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Pack, Split, VectorizeReduction

Factors = dict[tuple[str, str], tuple[int, ...]]
"""The factors of a schedule's splits, by stage and axis."""


def located(space: AttentionKnobs, schedule: Schedule) -> NDArray[np.int32] | None:
    """The config with this schedule, or the nearest one; None where the algorithm is another."""
    if schedule.algorithm != space.algorithm:
        return None
    steps = schedule.steps
    factors = {(s.stage, s.axis): s.factors for s in steps if isinstance(s, Split)}
    config = first_columns(space)
    along_depth = any(isinstance(s, VectorizeReduction) and s.stage == SCORES for s in steps)
    config[0] = int(along_depth)
    packs = any(isinstance(s, Pack) and s.stage == VALUES for s in steps)
    put(space, config, "pack", VALUES, int(packs))
    for (kind, axis), value in _wanted(space, factors, along_depth=along_depth).items():
        put(space, config, kind, axis, value)
    return config if bool(space.legal(config[None])[0]) else None


def _wanted(
    space: AttentionKnobs, factors: Factors, *, along_depth: bool
) -> dict[tuple[str, str], int]:
    found = dict[tuple[str, str], int]()

    def put_first(kind: str, name: str, place: tuple[str, str], divisor: int = 1) -> None:
        if place in factors:
            found[kind, name] = factors[place][0] // divisor

    put_first("rows", VALUES, (VALUES, ROW))
    put_first("vectors", VALUES, (VALUES, FEATURE))
    if (VALUES, KEY) in factors:
        found["chunk", VALUES], found["unroll", VALUES] = factors[VALUES, KEY]
        steps = -(-space.extents[KEY] // found["unroll", VALUES])
        found["chunk", VALUES] *= found["chunk", VALUES] < steps
    put_first("rows", SCORES, (SCORES, ROW))
    put_first("vectors", SCORES, (SCORES, DEPTH if along_depth else KEY),
              space.lanes[SCORES] if along_depth else 1)  # fmt: skip
    put_first("unroll", SCORES, (SCORES, KEY if along_depth else DEPTH))
    if (OUT, ROW) in factors:
        blocks, block = factors[OUT, ROW]
        rows = space.extents[ROW]
        found["blocks", OUT] = rows if blocks * block >= rows else blocks
        found["tiles", OUT] = rows if block >= rows else block // found["rows", VALUES]
    put_first("vectors", OUT, (OUT, FEATURE))
    for stage in space.stages:
        if stage.name in (SCORES, VALUES, OUT):
            continue
        name = "between" if stage.reduce else "functions"
        put_first("rows", name, (stage.name, ROW))
        lanes = space.lanes[stage.name] if stage.reduce else 1
        put_first("vectors", name, (stage.name, KEY), lanes)
    return found
