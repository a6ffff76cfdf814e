"""Recorded trials as rows that cost models learn from, of any database.

Schedules are located in today's spaces, and their features computed anew: a record outlives the
features it was once ranked by.  That takes a millisecond a trial, so it is kept in a cache, under a
key that holds everything it depends on, the sources that make spaces and features included.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hlotune.hlo
import hlotune.schedules
from hlotune.costmodel.files import read_arrays, write_arrays
from hlotune.costmodel.inputs import Features, Inputs, Reads
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute import compute_of
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.loop_trees import Nodes
from hlotune.schedules.packing import packed_name
from hlotune.schedules.schedule import XLA, Schedule
from hlotune.schedules.space import Configs, Space
from hlotune.schedules.steps import Pack, Parallel, Spread, Step
from hlotune.schedules.target import Target
from hlotune.search.history import Times, scores
from hlotune.search.tasks import EVERY, SPACES
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.rows import Row

ARRAYS = {"features", "values", "parent", "times_s"}
"""Of a file of the cache."""

FEWEST = 8
"""Trials of a kernel below which there is nothing to rank."""


@dataclass(frozen=True)
class Examples:
    """Trials of one kernel under one set of conditions; times of others are not compared with."""

    key: str
    family: str
    label: str
    features: Features
    nodes: Nodes
    times_s: Times
    """nan for failures."""

    @property
    def scores(self) -> NDArray[np.float32]:
        return scores(self.times_s)

    def inputs(self, reads: Reads) -> Inputs:
        return self.features if reads == "summary" else self.nodes


def examples(database: Database, folder: Path | None = None) -> Iterator[Examples]:
    """What a database holds of each kernel under equal conditions, where it has a space today.

    Left out are the default, trials on which the device failed, schedules that today's space has no
    exact config for, and kernels with less than `FEWEST` trials.

    Args:
        folder: of the cache; without one nothing is kept.
    """
    groups = database.query(
        """select kernel, target, toolchain, cache, threads, family, text, kernels.label, identity
        from trials join kernels on kernels.key = kernel join targets on fingerprint = target
        group by kernel, target, toolchain, cache, threads
        having count(*) >= :fewest order by kernel, target, toolchain, cache, threads""",
        {"fewest": FEWEST},
    )
    for group in groups:
        trials = _trials(database, group)
        target = Target.of(json.loads(group["identity"]))
        found = _cached(Kernel(group["text"]), group["label"] or "", target, trials, folder)
        if found is not None and len(found.times_s) >= FEWEST:
            yield found


def _trials(database: Database, group: Row) -> list[tuple[str, float | None]]:
    """Schedules as JSON and times, in the order of recording; the last word on each schedule."""
    found = database.query(
        """select schedule, time_s, failure_kind from trials
        where kernel = :kernel and target = :target and toolchain = :toolchain
        and cache = :cache and threads = :threads and failure_kind is not 'device'
        order by recorded, number, id""",
        {name: group[name] for name in ("kernel", "target", "toolchain", "cache", "threads")},
    )
    return list({r["schedule"]: r["time_s"] for r in found}.items())


def _cached(
    kernel: Kernel,
    label: str,
    target: Target,
    trials: Sequence[tuple[str, float | None]],
    folder: Path | None,
) -> Examples | None:
    if folder is None:
        return _computed(kernel, label, target, trials)
    text = json.dumps([kernel.text, label, target.fingerprint, _sources(), trials])
    file = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"
    arrays = read_arrays(file) or {}
    if arrays.keys() >= ARRAYS:
        nodes = Nodes(arrays["values"], arrays["parent"])
        return Examples(
            kernel.key, kernel.family, label, arrays["features"], nodes, arrays["times_s"]
        )
    found = _computed(kernel, label, target, trials)
    if found is not None:
        with suppress(OSError):  # a cache that cannot be written: computed again next time
            _keep(file, found)
    return found


def _keep(file: Path, found: Examples) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(
        file, features=found.features, values=found.nodes.values, parent=found.nodes.parent,
        times_s=found.times_s,
    )  # fmt: skip


def _computed(
    kernel: Kernel, label: str, target: Target, trials: Sequence[tuple[str, float | None]]
) -> Examples | None:
    """None where the kernel has no space today, or none of the schedules stands in it."""
    try:
        space = SPACES[target.kind](compute_of(graph_of(kernel)), target, **EVERY)
    except UnsupportedKernel:
        return None
    configs, times_s = located(space, trials)
    if not len(configs):
        return None
    return Examples(
        kernel.key, kernel.family, label, space.features(configs), space.nodes(configs), times_s
    )


def located(space: Space, trials: Sequence[tuple[str, float | None]]) -> tuple[Configs, Times]:
    """The configs that make exactly these schedules, and their times; others are left out."""
    configs: list[NDArray[np.int32]] = []
    times: list[float] = []
    for text, time_s in trials:
        config = exact(space, text)
        if config is not None:
            configs.append(config)
            times.append(np.nan if time_s is None else time_s)
    width = len(space.heuristic())
    return np.array(configs, np.int32).reshape(-1, width), np.array(times, np.float64)


def exact(space: Space, text: str) -> NDArray[np.int32] | None:
    """The legal config with this schedule; None where there is none, as for the default.

    Schedules that differ in whether one thread packs an operand or all, or in how far apart slices
    of scratch lie, count as equal: features do not tell them apart.
    """
    try:
        schedule = Schedule.from_json(text)
    except ValueError:
        return None
    config = None if schedule.algorithm == XLA else space.locate(schedule)
    if config is None or not space.legal(config[None, :])[0]:
        return None
    return config if _nest(space.schedule(config)) == _nest(schedule) else None


def _nest(schedule: Schedule) -> Schedule:
    """The schedule without the steps that features do not see."""
    copies = {packed_name(s.tensor) for s in schedule.steps if isinstance(s, Pack)}

    def is_unseen(step: Step) -> bool:
        shares_packing = isinstance(step, Parallel) and step.stage in copies
        return shares_packing or isinstance(step, Spread)

    return replace(schedule, steps=tuple(s for s in schedule.steps if not is_unseen(s)))


@cache
def _sources() -> str:
    """Hash of the sources that decide what a config is and what its features are."""
    folders = [Path(room.__path__[0]) for room in (hlotune.hlo, hlotune.schedules)]
    texts = [f.read_bytes() for folder in folders for f in sorted(folder.glob("*.py"))]
    texts.append(Path(__file__).read_bytes())
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
