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
from typing import cast

import numpy as np
from numpy.typing import NDArray

import hlotune.hlo
import hlotune.schedules
from hlotune.costmodel.files import read_arrays, write_arrays
from hlotune.costmodel.inputs import Features, Inputs, Reads, taken
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.features.loop_trees import Nodes
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.schedules.steps.pack import packed_name
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.schedules.steps.steps import AddUp, Pack, Parallel, Spread, Step
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.kinds import target_of
from hlotune.schedules.targets.target import Target
from hlotune.search.searchers.history import Times, scores
from hlotune.search.tasks import SPACES
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.rows import Row

ARRAYS = {"features", "values", "parent", "times_s", "drawn"}
"""The arrays of a file of the cache."""

Recorded = tuple[str, float | None, bool]
"""A schedule as JSON, its time, and whether it was drawn at random."""
FEWEST = 8
"""With fewer trials of a kernel there is nothing to rank."""


@dataclass(frozen=True)
class Examples:
    """The trials of one kernel under one set of conditions; they are compared with no others."""

    key: str
    family: str
    """`Kernel.form`, by which kernels are held out together."""
    label: str
    machine: str
    """The name of its processor, the vendor's with LLVM's."""
    features: Features
    nodes: Nodes
    times_s: Times
    """nan for failures."""
    drawn: NDArray[np.bool_]
    """Which of them a searcher drew at random: a sample of the space, where others are guided, and
    first candidates are computed."""

    @property
    def at_random(self) -> "Examples":
        """The trials that were drawn at random."""
        return self._only(np.flatnonzero(self.drawn))

    def sample(self, count: int) -> "Examples":
        """A sample of so many of all trials, whoever proposed them; the same one each time."""
        rng = np.random.default_rng(int(self.key, 16))
        return self._only(np.sort(rng.choice(len(self.times_s), count, replace=False)))

    def _only(self, rows: NDArray[np.intp]) -> "Examples":
        return replace(
            self,
            features=cast(Features, taken(self.features, rows)),
            nodes=cast(Nodes, taken(self.nodes, rows)),
            times_s=self.times_s[rows],
            drawn=self.drawn[rows],
        )

    @property
    def scores(self) -> NDArray[np.float32]:
        return scores(self.times_s)

    def inputs(self, reads: Reads) -> Inputs:
        return self.features if reads == "summary" else self.nodes


def examples(database: Database, folder: Path | None = None) -> Iterator[Examples]:
    """What a database holds of each kernel under equal conditions, where it has a space today.

    Left out are devices other than CPUs, the default, trials on which the device failed, schedules
    that today's space has no exact config for, and kernels with less than `FEWEST` trials.

    Args:
        folder: of the cache; without one nothing is kept.
    """
    groups = database.query(
        """select kernel, target, toolchain, cache, threads, text, kernels.label, identity
        from trials join kernels on kernels.key = kernel join targets on fingerprint = target
        group by kernel, target, toolchain, cache, threads
        having count(*) >= :fewest order by kernel, target, toolchain, cache, threads""",
        {"fewest": FEWEST},
    )
    for group in groups:
        trials = _trials(database, group)
        target = target_of(json.loads(group["identity"]))
        if not isinstance(target, CpuTarget):
            continue  # its features have other meanings
        found = _cached(Kernel(group["text"]), group["label"] or "", target, trials, folder)
        if found is not None and len(found.times_s) >= FEWEST:
            yield found


def _trials(database: Database, group: Row) -> list[Recorded]:
    """The trials in the order of recording, with the last outcome of each schedule."""
    found = database.query(
        """select schedule, time_s, json_extract(runs.options, '$.searcher') as searcher
        from trials join runs on runs.id = run
        where kernel = :kernel and trials.target = :target and trials.toolchain = :toolchain
        and trials.cache = :cache and trials.threads = :threads
        and failure_kind is not 'device'
        order by recorded, number, trials.id""",
        {name: group[name] for name in ("kernel", "target", "toolchain", "cache", "threads")},
    )
    drawn = {r["schedule"] for r in found if r["searcher"] == "random"}
    last = {r["schedule"]: r["time_s"] for r in found}
    return [(schedule, time_s, schedule in drawn) for schedule, time_s in last.items()]


def _cached(
    kernel: Kernel,
    label: str,
    target: Target,
    trials: Sequence[Recorded],
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
            kernel.key, kernel.form, label, target.title, arrays["features"], nodes,
            arrays["times_s"], arrays["drawn"],
        )  # fmt: skip
    found = _computed(kernel, label, target, trials)
    if found is not None:
        with suppress(OSError):  # a cache that cannot be written: computed again next time
            _keep(file, found)
    return found


def _keep(file: Path, found: Examples) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(
        file, features=found.features, values=found.nodes.values, parent=found.nodes.parent,
        times_s=found.times_s, drawn=found.drawn,
    )  # fmt: skip


def _computed(
    kernel: Kernel, label: str, target: Target, trials: Sequence[Recorded]
) -> Examples | None:
    """None where the kernel has no space today, or none of the schedules stands in it."""
    try:
        space = SPACES[target.kind](compute_of(graph_of(kernel)), target, "fast")
    except UnsupportedKernel:
        return None
    configs, rows = located(space, [text for text, _, _ in trials])
    if not len(configs):
        return None
    is_first = (configs[:, None] == space.firsts()).all(axis=2).any(axis=1)
    drawn = np.array([trials[n][2] for n in rows]) & ~is_first
    return Examples(
        kernel.key, kernel.form, label, target.title, space.features(configs),
        space.nodes(configs), times_of([trials[n][1] for n in rows]), drawn,
    )  # fmt: skip


def located(space: Space, schedules: Sequence[str]) -> tuple[Configs, list[int]]:
    """The configs that make exactly these schedules, and which of them have one."""
    found = [
        (n, config) for n, s in enumerate(schedules) if (config := exact(space, s)) is not None
    ]
    width = len(space.heuristic())
    return np.array([c for _, c in found], np.int32).reshape(-1, width), [n for n, _ in found]


def times_of(times_s: Sequence[float | None]) -> Times:
    """As an array: nan where there is none."""
    return np.array([np.nan if t is None else t for t in times_s], np.float64)


def exact(space: Space, text: str) -> NDArray[np.int32] | None:
    """The legal config with this schedule; None where there is none, as for the default.

    Schedules that differ in whether one thread packs an operand or all, in how far apart slices of
    scratch lie, or in whether long sums are added up of pieces, count as equal: features do not
    tell them apart.
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
        return shares_packing or isinstance(step, AddUp | Spread)

    return replace(schedule, steps=tuple(s for s in schedule.steps if not is_unseen(s)))


@cache
def _sources() -> str:
    """Hash of the sources that decide what a config is and what its features are."""
    folders = [Path(room.__path__[0]) for room in (hlotune.hlo, hlotune.schedules)]
    texts = [f.read_bytes() for folder in folders for f in sorted(folder.rglob("*.py"))]
    texts.append(Path(__file__).read_bytes())
    return hashlib.sha256(b"\0".join(texts)).hexdigest()
