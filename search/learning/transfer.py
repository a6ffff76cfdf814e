"""What other kernels teach about a new one: their best schedules, and rows for its model.

The kin of a kernel are kernels whose main stage has as many axes of each kind and the same element
type; the nearer their extents, the nearer they are.  Schedules of the kernel's own family come
first in any case, from `Database.seeds`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import inputs_of
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Target
from hlotune.search.experience import Experience
from hlotune.search.learning.training_rows import located, times_of
from hlotune.search.tasks import SPACES
from hlotune.tuning_logs.database import UNDER, Conditions, Database

LOOKED_AT = 64
"""So many of the newest kernels of the database are compared with the new one."""
NEAREST = 4
"""So many kin have their best schedules tried, and their trials teach the model."""
ROWS = 128
"""So many trials of each kin teach, at most: half of them its fastest, the others its newest."""
TAUGHT = 1000
"""So many trials of all kin together teach, at most: features of one take a millisecond."""
FARTHEST = 3.0
"""Kernels whose extents differ by more octaves in the mean are no kin."""
OTHERS = 1 << 20
"""Groups of kin are numbered from here on, behind those of the run's kernels."""


@dataclass(frozen=True)
class Kin:
    kernel: Kernel
    compute: Compute
    octaves: float
    """Mean distance of the extents."""


def recorded(
    database: Database, under: Conditions, apart: str = ""
) -> list[tuple[Kernel, Compute]]:
    """Kernels that were searched under these conditions and have a compute, the newest first.

    A kernel of which only the default was timed has nothing to give.  Trials of the run `apart` do
    not count.
    """
    rows = database.query(
        f"""select text, max(recorded) as last from trials join kernels on kernels.key = kernel
        where {UNDER} and run <> :apart and time_s is not null and schedule is not :default
        group by kernel order by last desc, kernel limit :most""",
        {"most": LOOKED_AT, "default": DEFAULT.to_json(), "apart": apart, **under},
    )
    return [(k, c) for row in rows if (c := _compute(k := Kernel(row["text"]))) is not None]


def _compute(kernel: Kernel) -> Compute | None:
    try:
        return compute_of(graph_of(kernel))
    except Exception:  # another version wrote it, or knew less of it: it is no kin then
        return None


def kin(known: Sequence[tuple[Kernel, Compute]], kernel: Kernel, compute: Compute) -> list[Kin]:
    """The nearest of the known kernels, the nearest first."""
    found = [
        Kin(other, of, distance)
        for other, of in known
        if other != kernel and (distance := octaves(compute, of)) <= FARTHEST
    ]
    return sorted(found, key=lambda k: (k.octaves, k.kernel.key))[:NEAREST]


def octaves(one: Compute, other: Compute) -> float:
    """Mean distance between the extents of the main stages; infinite where they are not alike."""
    a, b = (max(c.stages, key=lambda s: s.flops) for c in (one, other))
    if (len(a.parallel), len(a.reduce)) != (len(b.parallel), len(b.reduce)) or not a.axes:
        return float("inf")
    if [x.dtype for x in a.loads] != [x.dtype for x in b.loads]:
        return float("inf")
    pairs = zip(a.axes, b.axes, strict=True)
    away = [abs(log2(max(1, x.extent) / max(1, y.extent))) for x, y in pairs]
    return sum(away) / len(away)


def lent(
    database: Database, of: Sequence[Kin], space: Space, under: Conditions, apart: str = ""
) -> Configs:
    """The best schedule of each kin, located in another space, where it stands there legally.

    What the run `apart` found is not lent.
    """
    configs = [
        config
        for other in of
        for schedule, _ in fastest(database, other.kernel, under, 1, apart)
        if (config := config_of(space, schedule)) is not None
    ]
    rows = np.array(configs, np.int32).reshape(-1, len(space.heuristic()))
    return rows[space.legal(rows)]


def config_of(space: Space, text: str) -> NDArray[np.int32] | None:
    """The config of a recorded schedule; None where another version wrote it, or it has none."""
    try:
        schedule = Schedule.from_json(text)
    except ValueError:
        return None
    return space.locate(schedule)


def teach(
    experience: Experience, database: Database, of: Sequence[Kin], target: Target, under: Conditions
) -> int:
    """Adds trials of kin to what the model learns from; returns how many.

    A kin that has no space today, or raises an error, teaches nothing.
    """
    count, share = 0, min(ROWS, TAUGHT // max(1, len(of)))
    for number, other in enumerate(of):
        half = fastest(database, other.kernel, under, share // 2)
        trials = dict(newest(database, other.kernel, under, share // 2)) | dict(half)
        try:
            space = SPACES[target.kind](other.compute, target, "fast")
            configs, rows = located(space, list(trials))
            inputs = inputs_of(experience.model.reads, space, configs)
        except Exception:  # of a kernel that is not even in this run
            continue
        times_s = times_of(list(trials.values()))[rows]
        experience.add(OTHERS + number, inputs, times_s)
        count += len(times_s)
    return count


def fastest(
    database: Database, kernel: Kernel, under: Conditions, n: int, apart: str = ""
) -> list[tuple[str, float | None]]:
    """The n fastest trials, without schedules that failed, then or later: champions that proved
    wrong are barred.
    """
    sound = f"""time_s is not null and run <> :apart and schedule not in (
        select schedule from trials where kernel = :kernel and {UNDER}
        and run <> :apart and failure_kind <> 'device')"""
    return _trials(database, kernel, {**under, "apart": apart}, sound, "time_s, schedule", n)


def newest(
    database: Database, kernel: Kernel, under: Conditions, n: int
) -> list[tuple[str, float | None]]:
    usable = "failure_kind is not 'device'"
    return _trials(database, kernel, under, usable, "recorded desc, number desc", n)


def _trials(
    database: Database, kernel: Kernel, values: Mapping[str, object], which: str, order: str, n: int
) -> list[tuple[str, float | None]]:
    """The schedules as JSON with their times, without the default."""
    rows = database.query(
        f"""select schedule, time_s from trials where kernel = :kernel and {UNDER}
        and schedule is not :default and {which} order by {order} limit :n""",
        {"kernel": kernel.key, "default": DEFAULT.to_json(), "n": n, **values},
    )
    return [(r["schedule"], r["time_s"]) for r in rows]
