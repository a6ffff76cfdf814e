"""What to measure next on a device that is elsewhere: a searcher's proposals, for a file."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hlotune.costmodel.inputs import inputs_of
from hlotune.costmodel.pretrained import untrained
from hlotune.deploy.candidates import Proposed
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.sites.sites import sites
from hlotune.measure.trial import CacheMode
from hlotune.schedules.atomic_files import whole
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Target
from hlotune.search.experience import Experience
from hlotune.search.learning.training_rows import located, times_of
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.tasks import Skipped, Task, tasks
from hlotune.tuning_logs.database import Database


def proposed(
    program: Program,
    target: Target,
    database: Database | None,
    *,
    count: int,
    seed: int = 0,
    numerics: Numerics = "standard",
    cache: CacheMode = "model",
) -> tuple[tuple[Proposed, ...], tuple[Skipped, ...]]:
    """Up to `count` candidates of each kernel that were not measured on the target yet.

    What the database knows of a kernel on this kind of device, from any machine and version, the
    searcher and its model learn first.  Kernels with nothing new are left out.

    Raises TargetError for a kind of target that nothing is searched for.
    """
    found, skipped = tasks(sites(program), target, numerics)
    made = [
        Proposed(
            target=target,
            kernel=task.kernel,
            label=task.label,
            flops=task.flops,
            dtype=task.dtype,
            numerics=numerics,
            cache=cache,
            schedules=_next(task, _known(database, task, target), count, seed),
        )
        for task in found
    ]
    return tuple(p for p in made if p.schedules), skipped


def _known(database: Database | None, task: Task, target: Target) -> list[tuple[str, float | None]]:
    """Schedules and times of a kernel on devices of this name, the oldest first."""
    if database is None:
        return []
    found = database.query(
        """select schedule, time_s from trials join targets on fingerprint = trials.target
        where kernel = :kernel and targets.name = :name and schedule <> :default
        and failure_kind is not 'device' order by recorded, number""",
        {"kernel": task.kernel.key, "name": target.name, "default": DEFAULT.to_json()},
    )
    return [(row["schedule"], row["time_s"]) for row in found]


def _next(
    task: Task, known: Sequence[tuple[str, float | None]], count: int, seed: int
) -> tuple[Schedule, ...]:
    space, model = task.space, untrained("trees", "").model
    entropy = (seed, int(task.kernel.key, 16), len(known))
    searcher = SEARCHERS["annealing"](space, model, entropy, space.firsts())
    configs, rows = located(space, [text for text, _ in known])
    if len(configs):
        times_s = times_of([known[n][1] for n in rows])
        experience = Experience(model)
        experience.add(0, inputs_of(model.reads, space, configs), times_s)
        experience.learn()
        searcher.observe(configs, times_s)
    tried = {text for text, _ in known}
    schedules = dict.fromkeys(space.schedule(c) for c in searcher.propose(count))
    return tuple(s for s in schedules if s.to_json() not in tried)


def write_candidates(path: Path, made: Sequence[Proposed]) -> None:
    """One line a kernel; the file appears whole or not at all.  OSError passes through."""
    with whole(path) as part:
        part.write_text("".join(p.to_json() + "\n" for p in made), encoding="utf-8")


def counted(made: Sequence[Proposed]) -> int:
    """Candidates of all kernels together."""
    return int(np.sum([len(p.schedules) for p in made], dtype=np.int64))
