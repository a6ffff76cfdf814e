"""`tune run FOLDER`: the modules that a process of JAX or XLA compiled, by their time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from hlotune.cli.loading import load_program
from hlotune.cli.printing import counted, print_table, say
from hlotune.hlo.frontends.dump_folder import DumpedModule
from hlotune.schedules.errors import HlotuneError, NoRecord

WORTH = 0.95
"""Modules that take this share of the time of all are tuned, those that take most first."""
LEAST_BUDGET_S = 20.0
"""A module that would get less is left out."""


class RunOne(Protocol):
    """`tune run` of one file with the options of the command."""

    def __call__(self, file: str, budget_s: float | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Timed:
    """A module with what one call of it takes as XLA compiles it."""

    module: DumpedModule
    key: str
    time_s: float = 0.0
    has_kernels: bool = False
    """Whether any part of it is worth a kernel of ours."""
    refused: str = ""
    """Why it cannot be loaded or run."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A module that is worth tuning, and its part of the budget."""

    module: DumpedModule
    budget_s: float | None
    """None where trials are limited, not time."""


def run_modules(modules: Sequence[DumpedModule], budget_s: float | None, run: RunOne) -> None:
    """Times each module, lists them, and tunes those that take the time.

    Args:
        budget_s: for all of them; None where trials are limited, not time.

    Raises:
        NoRecord: none is worth tuning, or none could be tuned.
    """
    timed = sorted(_once(map(look, modules)), key=lambda t: -t.time_s)
    chosen = worth_tuning(timed, budget_s)
    show(timed, chosen)
    failed = [error for c in chosen if (error := attempt(c, run)) is not None]
    if len(failed) == len(chosen):
        why = str(failed[0]) if failed else "no module has kernels that take some microseconds"
        raise NoRecord(f"expected modules to tune, found none: {why}; XLA keeps all of them")


def look(module: DumpedModule) -> Timed:
    """Loads a module and times a call of it as XLA compiles it."""
    from hlotune.deploy.default_time import default_time_s
    from hlotune.hlo.sites.sites import sites
    from hlotune.hlo.sites.tiny import tiny
    from hlotune.measure.machine.targets import host_target

    try:
        program = load_program(str(module.file), None)
        has_kernels = any(tiny(site, host_target()) is None for site in sites(program))
        return Timed(module, program.key, default_time_s(program), has_kernels)
    except HlotuneError as error:
        return Timed(module, str(module.file), refused=str(error))


def _once(modules: Iterator[Timed]) -> list[Timed]:
    """Each program once: a process may compile one several times."""
    return list({timed.key: timed for timed in reversed(list(modules))}.values())


def worth_tuning(timed: Sequence[Timed], budget_s: float | None) -> list[Chosen]:
    """The slowest modules, with parts of the budget in proportion to their times.

    Args:
        timed: the slowest first.
    """
    tunable = [t for t in timed if t.has_kernels]
    whole_s, taken_s, chosen = sum(t.time_s for t in tunable), 0.0, list[Timed]()
    for t in tunable:
        if taken_s >= WORTH * whole_s:
            break
        kept_s = taken_s + t.time_s
        if budget_s is not None and chosen and budget_s * t.time_s / kept_s < LEAST_BUDGET_S:
            break
        chosen.append(t)
        taken_s = kept_s
    parts = [None if budget_s is None else budget_s * t.time_s / taken_s for t in chosen]
    return [Chosen(t.module, part) for t, part in zip(chosen, parts, strict=True)]


def show(timed: Sequence[Timed], chosen: Sequence[Chosen]) -> None:
    """A line for each module, the slowest first."""
    from hlotune.tuning_logs.render import time_text

    budgets = {c.module: c.budget_s for c in chosen}
    whole_s = sum(t.time_s for t in timed) or 1.0
    rows = [
        (t.module.name, time_text(t.time_s), f"{t.time_s / whole_s:.1%}", _plan(t, budgets))
        if not t.refused
        else (t.module.name, "-", "-", t.refused)
        for t in timed
    ]
    print_table(["module", ">a call", ">share", "plan"], rows)
    say(f"{counted(len(chosen), 'module')} of {len(timed)} to tune")


def _plan(timed: Timed, budgets: Mapping[DumpedModule, float | None]) -> str:
    if timed.module not in budgets:
        return "left to XLA" if timed.has_kernels else "left to XLA: no kernels"
    budget_s = budgets[timed.module]
    return "to tune" if budget_s is None else f"to tune for {budget_s:.0f} s"


def attempt(chosen: Chosen, run: RunOne) -> HlotuneError | None:
    """Tunes one module; its error does not end the others."""
    say(f"\n{chosen.module.name}:")
    try:
        run(str(chosen.module.file), chosen.budget_s)
    except HlotuneError as error:
        say(f"{chosen.module.name}: {error}")
        return error
    return None
