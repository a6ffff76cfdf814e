"""A program with the tuned kernels that the database has for it."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jax.stages import Lowered

from hlotune.codegen.built import Built
from hlotune.deploy.explanation import Explanation, Reasons, Status
from hlotune.deploy.freeze import freeze
from hlotune.deploy.kept_code import keep, kept
from hlotune.deploy.other_jaxlib import Tell, decided_here, won_times
from hlotune.deploy.replacement import Replacement, assembled, built_here, replacement
from hlotune.deploy.reverification import ANEW, Vouching
from hlotune.hlo.calling.callable import Arranged, JittedProgram
from hlotune.hlo.frontends.program import Program, require_loaded
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site, choose, overlap, sites
from hlotune.measure.machine.devices import target_here
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.trial import CacheMode, require_settings
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.garbage import collected_later
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.database import Conditions, Database, conditions
from hlotune.tuning_logs.decisions import (
    TOGETHER,
    Decision,
    decision,
    elsewhere,
    tuned_together,
    tuned_with,
)
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.open_database import chosen

__all__ = ["Explanation", "TunedFunction", "apply", "freeze"]

LOG = logging.getLogger("hlotune.apply")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class TunedFunction:
    """A jitted function of the original's signature, its kernels replaced where records say so."""

    program: Program
    replacements: tuple[Replacement, ...]
    numerics: Numerics
    target: Target
    """What its kernels are built for."""
    _explanations: tuple[Explanation, ...]
    _function: JittedProgram

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """Lowers as `jax.jit` does: gives the program's text, and what can be compiled from it
        ahead of calls.

        That has a copy of its own of packed constants.
        """
        return self._function.lower(*arguments, **named)

    @property
    def arranged(self) -> Arranged | None:
        """As `JittedProgram` has it."""
        return self._function.arranged

    @property
    def sites(self) -> tuple[Site, ...]:
        """The replaced ones, in the order of the program."""
        return tuple(r.site for r in self.replacements)

    @property
    def packed_bytes(self) -> int:
        """Memory that packed constants take beside the program's own constants."""
        return sum(r.packed_bytes for r in self.replacements)

    def explain(self) -> tuple[Explanation, ...]:
        """One line a site, alternatives included."""
        return self.reasons.explain()

    @property
    def reasons(self) -> Reasons:
        """What `explain` says, without the program."""
        return Reasons(self._explanations, self.target)

    @property
    def is_unknown(self) -> bool:
        """Whether there is no record of any kernel of the program that is worth one."""
        return all(e.status == "no record" for e in self._explanations)

    @property
    def outdated(self) -> str | None:
        """What to do where nothing was replaced because all was tuned with another jaxlib."""
        versions = [e.jaxlib for e in self._explanations if e.jaxlib]
        return tuned_with(versions[0]) if versions and not self.replacements else None


def apply(
    program: Program,
    *,
    database: Database | str | Path | None = None,
    numerics: Numerics = "standard",
    target: Target | None = None,
    cache: CacheMode = "model",
    any_jaxlib: bool = False,
) -> TunedFunction:
    """The program with every kernel that was proved faster than its default on this machine.

    A kernel whose schedule cannot be used any more stays with the default; `explain()` says why.
    Where nothing is replaced because all was tuned with another jaxlib, the logger `hlotune.apply`
    warns.

    Args:
        database: an open one, or the path of a file; defaults to HLOTUNE_DB, else a file in the
            user's cache.
        cache: uses what was proved in this mode; `warm` is for a kernel that is called by itself.
        any_jaxlib: of a kernel that was not compared with the default of this jaxlib, a schedule
            that was proved faster with another one is verified, compared with the default for up
            to half a second, and used where it is faster.  That is not recorded.

    Raises:
        DatabaseError: the database is not there, or cannot be read.
        TargetError: the target is another machine.
        ValueError: the program is not loaded, or there is no such setting.
    """
    tuned = applied(
        program,
        database=database,
        numerics=numerics,
        target=target,
        cache=cache,
        any_jaxlib=any_jaxlib,
    )
    if tuned.outdated:
        LOG.warning("%s: %s", program.name, tuned.outdated)
    return tuned


@collected_later()
def applied(
    program: Program,
    *,
    database: Database | str | Path | None = None,
    numerics: Numerics = "standard",
    target: Target | None = None,
    cache: CacheMode = "model",
    any_jaxlib: bool = False,
    tell: Tell = lambda text: None,
    also: Mapping[str, Final] = MappingProxyType({}),
) -> TunedFunction:
    """Does what `apply` does, without its warning; `tell` is told what is compared.

    `also` are finals of kernels that say what stands there whatever records say, by their keys.
    """
    require_loaded(program)
    require_settings(numerics, cache)
    target = target_here(target)
    found = sites(program)
    under = conditions(target, toolchain(), cache)
    decisions = _decisions(found, database, numerics, program, under)
    decisions |= {key: _tried(final) for key, final in also.items() if key in decisions}
    if any_jaxlib:
        decisions = _with_other_jaxlibs(found, decisions, database, numerics, target, cache, tell)
    with Vouching(target, numerics) as vouching:
        replacements, failures = _built(program, found, decisions, target, vouching)
    explanations = tuple(
        _explained(site, found, decisions, replacements, failures, vouching.verified)
        for site in found
    )
    function = assembled(program, replacements, target)
    return TunedFunction(program, tuple(replacements), numerics, target, explanations, function)


def _decisions(
    found: Sequence[Site],
    database: Database | str | Path | None,
    numerics: Numerics,
    program: Program,
    under: Conditions,
) -> dict[str, Decision]:
    """The decision for each kernel.  The program's key, a hash of all its constants, is asked for
    where a kernel was tuned together with others alone.
    """
    with chosen(database, create=False) as records:
        decide = partial(decision, records, numerics=numerics, **under)
        decided = {key: decide(key) for key in dict.fromkeys(site.kernel.key for site in found)}
        together = tuned_together(records, decided, under)
        return decided | {key: decide(key, program=program.key) for key in together}


def _tried(final: Final) -> Decision:
    """The decision for a champion that is tried together with others; the default is left out."""
    if final.schedule == DEFAULT:
        return Decision(schedule=DEFAULT, reason="left out of the program", final=final)
    tried = replace(final, outcome=TOGETHER)
    return Decision(schedule=final.schedule, reason="tried with the other kernels", final=tried)


def _with_other_jaxlibs(
    found: Sequence[Site],
    decisions: Mapping[str, Decision],
    database: Database | str | Path | None,
    numerics: Numerics,
    target: Target,
    cache: CacheMode,
    tell: Tell,
) -> dict[str, Decision]:
    under = conditions(target, toolchain(), cache)
    with chosen(database, create=False) as records:
        keys = [key for key, decided in decisions.items() if decided.jaxlib]
        there = {key: elsewhere(records, key, numerics, under) for key in keys}
    of_others = {key: decided for key, decided in there.items() if decided}
    with ProcessRunner(target, numerics, cache) as runner:
        return decided_here(found, decisions, of_others, target, runner, tell)


def _built(
    program: Program,
    found: Sequence[Site],
    decisions: Mapping[str, Decision],
    target: Target,
    vouching: Vouching,
) -> tuple[list[Replacement], dict[Site, str]]:
    """Replacements for disjoint sites; where one fails, others are chosen without it."""
    failures: dict[Site, str] = {}
    made: dict[Site, Replacement] = {}
    times = won_times(decisions)
    while True:
        chosen = choose([site for site in found if site not in failures], times)
        waiting = [site for site in chosen if site not in made]
        if not waiting:
            return [made[site] for site in chosen], failures
        for site in waiting:
            try:
                built = _vouched(site.kernel, decisions[site.kernel.key], target, vouching)
                made[site] = replacement(program, site, built)
            except HlotuneError as error:
                failures[site] = f"{type(error).__name__}: {error}"


def _vouched(kernel: Kernel, decided: Decision, target: Target, vouching: Vouching) -> Built:
    """The code of a schedule: what is kept of the code that was recorded, else built and verified.

    Raises HlotuneError where it cannot be built, or is wrong.
    """
    code = decided.final.code if decided.final else None
    if (known := kept(kernel, decided.schedule, target, code)) is not None:
        return known
    built = built_here(kernel, decided.schedule, target)
    vouching.check(kernel, built, decided.final)
    if built.key == code:
        keep(kernel, decided.schedule, target, built)
    return built


def _explained(
    site: Site,
    found: Sequence[Site],
    decisions: Mapping[str, Decision],
    replacements: Sequence[Replacement],
    failures: Mapping[Site, str],
    verified: Collection[str],
) -> Explanation:
    decided = decisions[site.kernel.key]
    status, reason = _without_it(site, found, decisions, replacements)
    schedule = None
    if site in failures:
        status, reason = "failed", failures[site]
    elif any(r.site is site for r in replacements):
        anew = f"; {ANEW}" if site.kernel.key in verified else ""
        status, reason = "tuned", decided.reason + anew
        schedule = decided.schedule
    paired = decided.final.paired if decided.final else None
    return Explanation(
        site=site,
        status=status,
        reason=reason,
        schedule=schedule,
        paired=paired,
        jaxlib=decided.jaxlib,
    )


def _without_it(
    site: Site,
    found: Sequence[Site],
    decisions: Mapping[str, Decision],
    replacements: Sequence[Replacement],
) -> tuple[Status, str]:
    """Why a site is not replaced: its kernel, or another site that shares operations with it."""
    decided = decisions[site.kernel.key]
    used = next((r.site for r in replacements if overlap(r.site, site)), None)
    tuned = (s for s in found if overlap(s, site) and decisions[s.kernel.key].final)
    rival = used or next(tuned, None)
    if rival is not None and decided.final is None:
        return "covered", f"{rival.name}, which shares operations with it, was tuned in its place"
    if used is not None and decided.final and decided.final.won:
        return "covered", f"{used.name} saves more, and shares operations with it"
    if decided.final is not None:
        return "kept default", decided.reason
    return "no record", decided.reason
