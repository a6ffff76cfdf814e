"""The way into a space for schedules that were not made by it.

They come from an older space, another shape, another machine.
"""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.cpu_contraction.sketch import Sketch
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Clip,
    ComputeAt,
    Pack,
    Parallel,
    Peel,
    Prefetch,
    Reorder,
    Split,
    Step,
    Stream,
)


def located(space: ContractionSpace, schedule: Schedule) -> NDArray[np.int32] | None:
    """The config with this schedule, or the nearest one; None where no sketch fits."""
    if schedule.algorithm != space.algorithm:
        return None
    sketch = _sketch(space, schedule.steps)
    if sketch is None:
        return None
    config = space.heuristic().copy()
    config[0] = space.sketches.index(sketch)
    wanted = _wanted(space, sketch, schedule.steps)
    for n, knob in enumerate(space.knobs.knobs):
        value = wanted.get((knob.kind, knob.axis))
        if value is not None:
            config[1 + n] = int(np.argmin(np.abs(np.array(knob.values) - value)))
    return config if bool(space.legal(config[None])[0]) else None


def _sketch(space: ContractionSpace, steps: tuple[Step, ...]) -> Sketch | None:
    c = space.contraction
    attach = next((s for s in steps if isinstance(s, ComputeAt) and s.stage == c.core.name), None)
    splits = (s for s in steps if isinstance(s, Split) and s.stage == c.out.name)
    vector = next((s.axis for s in splits if len(s.factors) == 4), None)
    if attach is None or vector is None:
        return None
    levels = {s.tensor: _level(space, s) for s in steps if isinstance(s, Pack)}
    packs = tuple((x.tensor, levels.get(x.tensor, "none")) for x in c.operands)
    wanted = Sketch(vector, attach.axis.endswith(".1"), packs)
    return wanted if wanted in space.sketches else None


def _level(space: ContractionSpace, pack: Pack) -> str:
    if not pack.consumer:
        return pack.axis
    if pack.consumer == space.contraction.core.name:
        return "chunk"
    return "task" if pack.axis.endswith(".0") else "block"


def _wanted(
    space: ContractionSpace, sketch: Sketch, steps: tuple[Step, ...]
) -> dict[tuple[str, str], int]:
    """Values of knobs that the steps show."""
    c, found = space.contraction, dict[tuple[str, str], int]()
    reduce = {r.name for r in c.reduce}
    for s in steps:
        if isinstance(s, Split) and s.stage == c.out.name and len(s.factors) >= 3:
            for kind, factor in zip(("group", "block", "register"), s.factors, strict=False):
                found[(kind, s.axis)] = factor
        elif isinstance(s, Split) and s.stage == c.core.name and s.axis in reduce:
            found[("unroll", s.axis)] = s.factors[-1]
            if sketch.chunked:
                found[("steps", s.axis)] = s.factors[0]
        elif isinstance(s, Reorder):
            found.update(_orders(space, sketch, s))
        elif isinstance(s, Clip | Peel):
            kind = "clip" if isinstance(s, Clip) else "peel"
            found[(kind, s.axis.partition(".")[0])] = 1
    found[("streams", "")] = _streams(space, sketch, found, steps)
    tasks = any(isinstance(s, Parallel) and s.stage == c.out.name for s in steps)
    found[("serial", "")] = int(not tasks)
    asked = {Prefetch: 1, Stream: 2}
    found[("prefetch", "")] = max((asked.get(type(s), 0) for s in steps), default=0)
    for knob in space.knobs.knobs:
        if knob.kind in ("clip", "peel"):
            found.setdefault((knob.kind, knob.axis), 0)
    return found


def _streams(
    space: ContractionSpace,
    sketch: Sketch,
    found: dict[tuple[str, str], int],
    steps: tuple[Step, ...],
) -> int:
    """Panels that a register tile reads side by side of what is packed at load."""
    blocks = [s.layout[0][1] for s in steps if isinstance(s, Pack) and s.axis == "load"]
    wide = found.get(("register", sketch.vector), 1) * space.lanes
    return max((wide // b for b in blocks if b > 1), default=1)


def _orders(space: ContractionSpace, sketch: Sketch, step: Reorder) -> dict[tuple[str, str], int]:
    c = space.contraction
    parallel, reduce = [a.name for a in c.parallel], [a.name for a in c.reduce]
    wanted = {}
    if step.stage == c.out.name:
        kinds = ["task_order", "group_order", *([] if sketch.chunked else ["tile_order"])]
        wanted = {k: _order(step.loops, parallel, level) for level, k in enumerate(kinds)}
    elif step.stage == c.core.name:
        wanted = {"reduce_order": _order(step.loops, reduce, 1)}
        if sketch.chunked:
            wanted["tile_order"] = _order(step.loops, parallel, 0)
    found = {}
    for kind, order in wanted.items():
        table = space.knobs.orders[kind].tolist()
        if order in table:
            found[(kind, "")] = table.index(order)
    return found


def _order(loops: tuple[str, ...], names: list[str], level: int) -> list[int]:
    """Numbers of the axes in the order of their loops of one level; [] where some have none."""
    places = {f"{a}.{level}": n for n, a in enumerate(names)}
    picked = [places[x] for x in loops if x in places]
    return picked if len(picked) == len(names) else []
