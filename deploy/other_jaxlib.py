"""Schedules that another jaxlib's records prove faster, compared with the default of this one.

The machine code of a schedule does not depend on jaxlib, but the default that it was faster than
does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf

from hlotune.deploy.pairs import Referee, compared
from hlotune.deploy.replacement import built_here
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import Site, choose
from hlotune.measure.trial import Candidate, Failure
from hlotune.schedules.errors import HlotuneError
from hlotune.schedules.steps.schedule import DEFAULT, XLA
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.decisions import Decision
from hlotune.tuning_logs.finals import Final

PAIRS = 15
TIMING_S = 0.5
"""The time for the pairs of one kernel.  A final of `tune run` has more of both."""

A_LITTLE = 1.001

Tell = Callable[[str], object]
"""Is told what comes next, in words."""


def decided_here(
    found: Sequence[Site],
    decisions: Mapping[str, Decision],
    elsewhere: Mapping[str, Decision],
    target: Target,
    referee: Referee,
    tell: Tell,
) -> dict[str, Decision]:
    """Decisions, with those of another jaxlib where a quick comparison proves them right here too.

    Only kernels that would be put into the program are compared.

    Args:
        decisions: by the key of each kernel, as records with this jaxlib have them.
        elsewhere: what another jaxlib's records have for some of these.
    """
    labels = {site.kernel.key: site.label for site in found}
    waiting, decided = dict(elsewhere), dict(decisions)
    while True:
        times = won_times({**decided, **waiting})
        chosen = dict.fromkeys(s.kernel for s in choose(found, times) if s.kernel.key in waiting)
        if not chosen:
            return decided
        for kernel in chosen:
            tell(f"{labels[kernel.key]}: comparing with the default of this jaxlib")
            decided[kernel.key] = _judged(kernel, waiting.pop(kernel.key), target, referee)


def won_times(decisions: Mapping[str, Decision]) -> dict[str, tuple[float, float]]:
    """Seconds of the default and of the schedule, of kernels whose schedule won.

    One that won without being proven faster did so over a default that is wrong, which is used at
    no price: its time is infinite.  One that was tuned together with others counts as a little
    faster than its default at least.
    """
    return {
        key: (_default_s(d.final), d.final.paired.tuned_time_s)
        for key, d in decisions.items()
        if d.final and d.schedule.algorithm != XLA
    }


def _default_s(won: Final) -> float:
    """What the default of a kernel takes whose schedule won."""
    paired = won.paired
    if won.outcome == "tuned together":
        return max(paired.default_time_s, A_LITTLE * paired.tuned_time_s)
    return paired.default_time_s if paired.low > 1 else inf


def _judged(kernel: Kernel, there: Decision, target: Target, referee: Referee) -> Decision:
    assert there.final is not None
    tuned = f"tuned with jaxlib {there.jaxlib}"
    try:
        built = built_here(kernel, there.schedule, target)
    except HlotuneError as error:
        return Decision(schedule=DEFAULT, reason=f"kept default: {tuned}, has no code: {error}")
    candidate = Candidate(kernel, there.schedule)
    found = compared(referee, candidate, built, pairs=PAIRS, limit_s=TIMING_S)
    if isinstance(found, Failure):
        reason = f"kept default: {tuned}, failed here: {found.kind} ({found.message})"
        return Decision(schedule=DEFAULT, reason=reason)
    ratio = f"{found.speedup:.2f}x ({found.low:.2f} to {found.high:.2f})"
    final = replace(there.final, paired=found, margin=found.low - 1, code=built.key)
    if found.low > 1:
        reason = f"{tuned}, and faster here too: {ratio}"
        return Decision(schedule=there.schedule, reason=reason, final=final, run=there.run)
    lost = replace(final, outcome="kept default")
    reason = f"kept default: {tuned}, but here it reached {ratio}"
    return Decision(schedule=DEFAULT, reason=reason, final=lost, run=there.run)
