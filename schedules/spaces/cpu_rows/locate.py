"""The way into a rows' space for schedules that were not made by it."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.spaces.cpu_rows.bodies import innermost_reduce
from hlotune.schedules.spaces.cpu_rows.partitions import Partition
from hlotune.schedules.spaces.cpu_rows.view import Rows
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Ahead,
    ComputeAt,
    NonTemporal,
    Peel,
    Reorder,
    Split,
    Step,
    Vectorize,
    VectorizeReduction,
)


def partition_of(space: Rows, steps: Sequence[Step]) -> int | None:
    """The sketch whose members stand where the steps compute them; None where there is none."""
    placed = {(s.stage, s.consumer) for s in steps if isinstance(s, ComputeAt)}
    for k, partition in enumerate(space.sketches):
        if _members(partition) == placed:
            return k
    return None


def _members(partition: Partition) -> set[tuple[str, str]]:
    return {(s.name, nest.anchor.name) for nest in partition for s in nest.members}


def located(space: Rows, schedule: Schedule, algorithm: str = "direct") -> NDArray[np.int32] | None:
    """The config with this schedule, or the nearest one; None where no sketch fits."""
    if schedule.algorithm != algorithm:
        return None
    sketch = partition_of(space, schedule.steps)
    if sketch is None:
        return None
    config = space.heuristic().copy()
    config[0] = sketch
    for nest in space.sketches[sketch]:
        for stage in nest.stages:
            found = _Read([s for s in schedule.steps if s.stage == stage.name])
            _put_form(space, config, stage.name, found)
            _put_sizes(space, config, stage, found, nest.rows * (stage is nest.anchor))
            _put_knobs(space, config, {
                ("ahead", stage.name): found.ahead, ("past", stage.name): found.past,
            })  # fmt: skip
    return config if bool(space.legal(config[None])[0]) else None


class _Read:
    """What the steps of one stage show."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.factors = {s.axis: s.factors for s in steps if isinstance(s, Split)}
        orders = [s.loops for s in steps if isinstance(s, Reorder)]
        self.loops = orders[-1] if orders else ()
        self.peels = any(isinstance(s, Peel) for s in steps)
        lanes = [s.axis for s in steps if isinstance(s, Vectorize | VectorizeReduction)]
        self.vector = lanes[-1].partition(".")[0] if lanes else ""
        self.ahead = max((s.bytes for s in steps if isinstance(s, Ahead)), default=0)
        self.past = any(isinstance(s, NonTemporal) for s in steps)


def _put_form(space: Rows, config: NDArray[np.int32], stage: str, found: _Read) -> None:
    """The form with the same lanes and, where one has them, the same rows written out."""
    tails = [a.partition(".")[0] for a in found.loops]
    best = [f for f in space.forms[stage] if f.vector == found.vector]
    if not best:
        return
    levels = {a: tails.count(a) for a in tails}
    ranked = sorted(best, key=lambda f: -levels.get(f.row, 0))
    config[space.columns["form", stage]] = space.forms[stage].index(ranked[0])


def _put_sizes(
    space: Rows, config: NDArray[np.int32], of: Stage, found: _Read, rows: tuple[str, ...]
) -> None:
    stage = of.name
    form = space.forms[stage][int(config[space.columns["form", stage]])]
    wanted = {("peel", stage): int(found.peels)}
    lanes, chunked = space.lanes[stage], [r.name for r in of.reduce[:1]]
    for axis, factors in found.factors.items():
        own = factors[2:] if axis in rows else factors
        if axis in rows and len(factors) >= 2:
            wanted["blocks", f"{stage} {axis}"] = factors[0]
            wanted["tiles", f"{stage} {axis}"] = factors[1]
        if axis == form.vector and own:
            wanted["vectors", stage] = own[-1] // lanes if form.reduces else own[0]
        elif axis == form.row and own:
            wanted["rows", stage] = own[0]
        elif axis == innermost_reduce(of, form) and own:
            wanted["unroll", stage] = own[-1]
        if axis in chunked and len(own) == 2:
            wanted["chunk", stage] = own[0]
    _put_knobs(space, config, wanted)


def _put_knobs(
    space: Rows, config: NDArray[np.int32], wanted: Mapping[tuple[str, str], int]
) -> None:
    """Puts the values of those knobs that there are into a config."""
    for (kind, axis), value in wanted.items():
        if (kind, axis) in space.columns:
            column = space.columns[kind, axis]
            values = space.knobs.knobs[column - 1].values
            config[column] = _position(values, value, whole=kind == "chunk")


def _position(values: tuple[int, ...], value: int, whole: bool) -> int:
    """Where a knob first reaches a value, which is what a larger one is cut to by what an axis or a
    body has room for; `whole`: whether 0, at the first place, stands for all that there is."""
    beyond = 0 if whole else len(values) - 1
    return next((k for k, x in enumerate(values) if x >= value), beyond)
