"""Tuning a whole program: `hlotune.tune`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import SupportsIndex

from hlotune.costmodel.model import MODELS
from hlotune.costmodel.pretrained import Start, start, untrained
from hlotune.deploy.accuracy import require_known_calls
from hlotune.deploy.kept_code import keep
from hlotune.hlo.frontends.program import Program, require_loaded
from hlotune.hlo.sites.sites import Site, sites
from hlotune.measure.machine.devices import devices_like, require_shared, target_here
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.other_processes import Others
from hlotune.measure.machine.suspend_clock import Pulse, beating
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import CacheMode, require_one_of, require_settings
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.several_devices import SeveralDevices
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.limits import DEFAULT_BUDGET_S, Limits, seconds
from hlotune.search.experience import Experience
from hlotune.search.finals.interruptible import is_anything_left, over_within
from hlotune.search.finals.whole_program import WholeProgram
from hlotune.search.progress import Progress, silent
from hlotune.search.result import TuneResult
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.session import Session
from hlotune.search.tasks import Task, tasks
from hlotune.tuning_logs import own_runs
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.open_database import chosen

SEEDS = 2**63
"""A database can tell so many seeds apart."""


def tune(
    program: Program,
    *,
    budget: str | float | None = None,
    budget_s: float | None = None,
    trials: int | None = None,
    database: Database | str | Path | None = None,
    searcher: str = "annealing",
    model: str = "trees",
    model_file: str | Path | None = None,
    seed: int = 0,
    numerics: Numerics = "standard",
    cache: CacheMode = "model",
    progress: Progress | None = None,
    target: Target | None = None,
    devices: int = 1,
    pulse: Pulse | None = None,
) -> TuneResult:
    """Searches for faster schedules of a program's kernels, measures them, and records everything.

    What the database knows of a kernel under the same conditions is not measured again.  Ctrl-C
    ends the search: what was found by then is compared with the defaults for about ten seconds and
    returned, and kernels whose comparisons take longer stay undecided, which `progress` is told.
    Called again with the same program, limits and seed, the search goes on where it was
    interrupted.  What is wrong in the program at the end stands in the result, in `wrong` and
    `wrong_anyway`.

    Args:
        budget: wall-clock, `"2m"` or seconds; `budget_s` is the same as a number.  All of this call
            is in it, the comparisons and checks at the end too, for which as much is put by as they
            are seen to need; in a budget that is too short for them they are made all the same, and
            the result says how long it took.  Waiting for another tuner on the same machine is not
            in it, nor is the time for which this process is suspended.
        trials: for each kernel, in place of a budget.  Without either: five minutes.
        database: an open one, or the path of a file, which is made if need be; defaults to
            HLOTUNE_DB, else a file in the user's cache.
        searcher, model: names of `SEARCHERS` and `MODELS`.
        model_file: what `tune model train` wrote; by default what comes with the package.
        seed: of all random choices: with the same observations, the same proposals.
        numerics: schedules that need a laxer setting are not used.
        cache: when a kernel begins: `model`, as inside a network, or `warm`, as its last call left
            it.  `apply` uses what was found in the mode that it is told.
        progress: is called with each event of `progress.py`.
        target: defaults to this machine; of another kind of device the one that JAX finds here.
        devices: so many GPUs of the target's kind measure candidates at the same time.
        pulse: beats already, and began when the budget did; by default with this call.

    Raises:
        ValueError: a name or a seed is unknown, the limits contradict each other, or the program
            is not loaded.
        TargetError: the target is another machine, or nothing can be tuned for it.
        ModelError: the file holds no such model, or one of other features.
        DatabaseError: the database cannot be opened, read or written.
    """
    require_loaded(program)
    require_one_of(MODELS, model, "model")
    with beating(pulse) as pulse:
        found = target_here(target)
        require_shared(found)
        choices = Choices(
            numbers=numbers_of(found, devices),
            limits=limits_of(budget, budget_s, trials),
            searcher=searcher,
            model=model,
            begun=started(model, Path(model_file) if model_file else None, found),
            seed=seed_of(seed),
            numerics=numerics,
            cache=cache,
            target=found,
            progress=progress or silent,
        )
        with chosen(database, create=True) as records:
            return searched(program, records, choices, pulse)


def numbers_of(target: Target, devices: int) -> tuple[int, ...]:
    """The numbers of the devices that measure, where they are several; none for one device.

    Raises TargetError where so many are not here, and ValueError for less than one.
    """
    if devices < 1:
        raise ValueError(
            f"expected one device or more, got devices={devices}; leave it out for one"
        )
    return devices_like(target, devices) if devices > 1 else ()


def started(model: str, file: Path | None, target: Target) -> Start:
    """The model that a search begins with.  What ships with the package was taught by CPUs alone,
    and says nothing of other devices.
    """
    if isinstance(target, CpuTarget) or file is not None:
        return start(model, file)
    return untrained(model, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options of one call of `tune`.  Raises ValueError for those that do not exist."""

    limits: Limits
    searcher: str
    model: str
    begun: Start
    seed: int
    numerics: Numerics
    cache: CacheMode
    target: Target
    progress: Progress
    numbers: tuple[int, ...] = ()
    """The devices that measure, where they are several."""

    def __post_init__(self) -> None:
        require_one_of(SEARCHERS, self.searcher, "searcher")
        require_settings(self.numerics, self.cache)
        seed_of(self.seed)

    @property
    def options(self) -> dict[str, object]:
        """The options as a database keeps them: a run is continued where they are equal."""
        return {
            "searcher": self.searcher,
            "model": self.model,
            "model_digest": self.begun.digest,
            "trials": self.limits.trials,
            "budget_s": self.limits.seconds,
        }


def searched(
    program: Program,
    records: Database,
    choices: Choices,
    pulse: Pulse,
    interrupted: str | None = None,
    before_s: float = 0.0,
) -> TuneResult:
    """One run, with worker processes of its own.

    `interrupted` is one to go on with, which took `before_s`.  The pulse began with the budget.
    """
    require_known_calls(program)
    target, turns, others = choices.target, Turns(now=pulse.clock_s), Others()
    wait_for_earlier_work(turns)
    with begun_workers(choices, turns, records.properties(target)) as (builder, runner):
        found, skipped = tasks(places := sites(program), target, choices.numerics)
        builder.settle()  # nothing is timed while others import
        peaks = runner.properties()
        run = interrupted or begun_run(program, records, choices, peaks, places, found)
        session = _session(
            program, records, choices, pulse, turns, (builder, runner), run,
            places=places, others=others, before_s=before_s, resumed=interrupted is not None,
        )  # fmt: skip
        with records.keeping(run, choices.progress):
            return session.finished(session.tuned(program.name, found, skipped))


def wait_for_earlier_work(turns: Turns) -> None:
    """Returns once nothing goes on of an earlier run in this process that Ctrl-C ended the wait
    for; like a wait for another tuner that is in no budget.
    """
    if is_anything_left():
        start_s = turns.now()
        over_within(None)
        turns.waited(turns.now() - start_s)


def _session(
    program: Program,
    records: Database,
    choices: Choices,
    pulse: Pulse,
    turns: Turns,
    workers: tuple[ProcessBuilder, ProcessRunner],
    run: str,
    *,
    places: Sequence[Site],
    others: Others,
    before_s: float,
    resumed: bool,
) -> Session:
    """A run's session, on workers that have begun."""
    target, (builder, runner) = choices.target, workers
    whole = WholeProgram(
        program, records, choices.numerics, target, choices.cache, turns, runner.forget
    )
    return Session(
        database=records, run=run, under=conditions(target, toolchain(), choices.cache),
        target=target, peaks=runner.properties, builder=builder, runner=runner,
        experience=Experience(choices.begun.model), make=SEARCHERS[choices.searcher],
        seed=choices.seed, numerics=choices.numerics, progress=choices.progress,
        limits=choices.limits, whole=whole, wrong_default=whole.wrong_default,
        start_s=pulse.start_s - before_s, turns=turns, now=turns.clock_s,
        away=lambda: pulse.away_s, probe=runner.probe_s, agreement=runner.agreement,
        others=others.share, model_words=choices.begun.words, is_unrolled=bool(program.unrolled),
        places=places,
        keep=lambda kernel, schedule, built: keep(kernel, schedule, target, built),
        resumed=resumed,
    )  # fmt: skip


@contextmanager
def begun_workers(
    choices: Choices, turns: Turns, known: Properties | None
) -> Iterator[tuple[ProcessBuilder, ProcessRunner]]:
    """The worker processes, which import their modules while the caller goes on."""
    target = choices.target
    with (
        ProcessBuilder(target, turns=turns) as builder,
        _runner(choices, turns, known) as runner,
    ):
        runner.begin()
        builder.begin()
        yield builder, runner


def _runner(choices: Choices, turns: Turns, known: Properties | None) -> ProcessRunner:
    target, numerics, cache = choices.target, choices.numerics, choices.cache
    if choices.numbers:
        return SeveralDevices(target, choices.numbers, numerics, cache, known=known, turns=turns)
    return ProcessRunner(target, numerics, cache, turns=turns, known=known)


def begun_run(
    program: Program,
    records: Database,
    choices: Choices,
    properties: Properties | None,
    places: Sequence[Site],
    found: Sequence[Task],
) -> str:
    """Records what is going to be tuned; returns the id of the run."""
    keys = {t.kernel.key for t in found} | {s.kernel.key for t in found for s in t.rivals}
    run = records.start_run(
        program,
        choices.target,
        toolchain(),
        sites=[s for s in places if s.kernel.key in keys],
        properties=properties,
        numerics=choices.numerics,
        cache=choices.cache,
        options=choices.options,
        seed=choices.seed,
        notes=program.remarks,
    )
    own_runs.remember(run, program.source)
    return run


def seed_of(seed: int) -> int:
    """The seed as a database takes it.  Raises ValueError for what is no seed."""
    found = _whole(seed)
    if found is None or not 0 <= found < SEEDS:
        raise ValueError(f"expected a seed from 0 to {SEEDS - 1}, got {seed}; give one")
    return found


def limits_of(budget: str | float | None, budget_s: float | None, trials: int | None) -> Limits:
    """The one limit that is given.  Raises ValueError for several, or one that is not positive."""
    given = [x for x in (budget, budget_s, trials) if x is not None]
    if len(given) > 1:
        raise ValueError(
            f"expected one of budget, budget_s and trials, got {len(given)}; leave one"
        )
    if trials is not None:
        found = _whole(trials)
        if found is None or found < 1:
            raise ValueError(f"expected a number of trials a kernel from 1 on, got {trials}")
        return Limits(trials=found)
    return Limits(seconds=seconds(given[0] if given else DEFAULT_BUDGET_S))


def _whole(number: SupportsIndex) -> int | None:
    """The number as Python's int, also of numpy's; None for fractions, and for anything else."""
    try:
        return None if isinstance(number, bool) else index(number)
    except TypeError:
        return None
