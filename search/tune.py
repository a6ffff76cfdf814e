"""Tuning a whole program: `hlotune.tune`."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from hlotune.costmodel.model import MODELS
from hlotune.costmodel.shipped import start
from hlotune.hlo.program import Program
from hlotune.hlo.sites import sites
from hlotune.measure.builder import ProcessBuilder
from hlotune.measure.runner import ProcessRunner
from hlotune.measure.targets import host_target, toolchain
from hlotune.measure.trial import Numerics
from hlotune.schedules.target import Target
from hlotune.search.budget import WHOLE_SHARE, Limits, seconds
from hlotune.search.progress import Progress, silent
from hlotune.search.result import TuneResult
from hlotune.search.searcher import SEARCHERS
from hlotune.search.session import Session
from hlotune.search.tasks import tasks
from hlotune.search.tuner import Experience
from hlotune.search.whole import compare_whole
from hlotune.tuning_logs.database import Database, conditions

DEFAULT_BUDGET_S = 300.0

Named = TypeVar("Named")


def tune(
    program: Program,
    *,
    budget: str | float | None = None,
    budget_s: float | None = None,
    trials: int | None = None,
    database: Database | str | Path,
    searcher: str = "annealing",
    model: str = "trees",
    model_file: str | Path | None = None,
    seed: int = 0,
    numerics: Numerics = "standard",
    progress: Progress | None = None,
    target: Target | None = None,
) -> TuneResult:
    """Searches for faster schedules of a program's kernels, measures them, and records everything.

    What the database knows of a kernel under the same conditions is not measured again.  Ctrl-C
    ends the search; what was found by then is compared with the defaults and returned.  Called
    again with the same program, limits and seed, the search goes on where it was interrupted.

    Args:
        budget: wall-clock, `"2m"` or seconds; `budget_s` is the same as a number.  Holding the
            whole program against the oracle at the end is not in it: no figure goes without that.
        trials: trials for each kernel, in place of a budget.  Without either: five minutes.
        database: an open one, or the path of a file, which is made if need be.
        searcher: a name of `SEARCHERS`.
        model: a name of `MODELS`.
        model_file: what `tune model train` wrote for it; by default the trained one that comes
            with the package, where there is one.
        seed: of all random choices: with the same observations, the same proposals.
        numerics: schedules that need a laxer setting are not used.
        progress: is called with each event of `progress.py`.
        target: defaults to this machine.

    Raises:
        ValueError: a name is unknown, or the limits contradict each other.
        TargetError: nothing can be tuned for the target.
        ModelError: the file holds no such model, or one of other features.
        DatabaseError: the database cannot be opened, read or written.
    """
    start_s = time.monotonic()
    limits = limits_of(budget, budget_s, trials)
    make = named(SEARCHERS, searcher, "searcher")
    named(MODELS, model, "model")
    begun = start(model, Path(model_file) if model_file else None)
    experience = Experience(begun.model)
    target = target or host_target()
    places = sites(program)
    found, skipped = tasks(places, target, numerics)
    keys = {t.kernel.key for t in found}
    tools = toolchain()
    options = {
        "searcher": searcher,
        "model": model,
        "model_digest": begun.digest,
        "trials": trials,
        "budget_s": limits.seconds,
    }
    with ExitStack() as stack:
        if not isinstance(database, Database):
            database = stack.enter_context(Database(database))
        builder = stack.enter_context(ProcessBuilder(target))
        runner = stack.enter_context(ProcessRunner(target, numerics))
        properties = runner.properties()
        run = database.start_run(
            program,
            target,
            tools,
            sites=[s for s in places if s.kernel.key in keys],
            properties=properties,
            numerics=numerics,
            options=options,
            seed=seed,
        )
        session = Session(
            database=database,
            run=run,
            under=conditions(target, tools),
            properties=database.properties(target) or properties,
            builder=builder,
            runner=runner,
            experience=experience,
            make=make,
            seed=seed,
            numerics=numerics,
            progress=progress or silent,
            start_s=start_s,
            model_words=begun.words,
        )
        result = session.tuned(program.name, found, skipped, limits)
        records, limit_s = database, WHOLE_SHARE * (limits.seconds or DEFAULT_BUDGET_S)
        return session.finished(
            result, lambda: compare_whole(program, records, numerics, target, limit_s)
        )


def limits_of(budget: str | float | None, budget_s: float | None, trials: int | None) -> Limits:
    """One limit of the three.  Raises ValueError for several, or one that is not positive."""
    given = [x for x in (budget, budget_s, trials) if x is not None]
    if len(given) > 1:
        raise ValueError(
            f"expected one of budget, budget_s and trials, got {len(given)}; leave one"
        )
    if trials is not None:
        if trials < 1:
            raise ValueError(f"expected at least 1 trial a kernel, got {trials}")
        return Limits(trials=trials)
    return Limits(seconds=seconds(given[0] if given else DEFAULT_BUDGET_S))


def named(table: Mapping[str, Named], name: str, what: str) -> Named:
    if name not in table:
        raise ValueError(f"expected a {what} among {', '.join(sorted(table))}, got {name!r}")
    return table[name]
