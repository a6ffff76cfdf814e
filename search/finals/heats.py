"""Chooses the champions of a final from the fastest by the search's own times.

Trials are timed minutes apart, and a machine's pace moves by several per cent from one minute to
the next, so that of many near equals those look best that were timed in its fastest minute.  A heat
measures this crowd again within a second or two, which is cheaper than to compare as many champions
as it would take to have the best among them.
"""

from dataclasses import dataclass
from statistics import mean

from hlotune.measure.trial import Candidate, Trial
from hlotune.search.tuner import KernelTuner, is_mishap

CHAMPIONS = 3
"""So many champions meet the default."""
MOST = 16
"""So many candidates take part in a heat at most."""
ONE_IN = 8
"""A heat has one place for so many trials: the more trials there are, the more of them look like
the best.
"""
LUCK = 1.1
"""By the samples of one trial a schedule may look so many times faster than it is."""
BEHIND = 1.25
"""A schedule whose trial took so many times as long as the fastest one is not the best: neither
luck nor the machine's pace makes so much.
"""


@dataclass(frozen=True, slots=True)
class Heat:
    """The crowd, the fastest first, and the trials that failed."""

    order: tuple[Candidate, ...] = ()
    failed: tuple[Trial, ...] = ()


def heat_size(trials: int, near: int = MOST) -> int:
    """How many schedules of a kernel with so many trials may be the best, where `near` of them are
    not far behind; 0 where all of these are champions anyway, and need no heat.
    """
    size = min(MOST, trials // ONE_IN, near)
    return size if size > CHAMPIONS else 0


def crowd(tuner: KernelTuner, most: int) -> list[Candidate]:
    """The fastest candidates by their own trials without those that are far behind, and the first
    candidate where it is near.

    A formula chose the first candidate before there were any trials: it owes its place to no luck.
    """
    best = list(tuner.champions(most))
    best = [t for t in best if _is_near(t, best[0], BEHIND)]
    first = tuner.first_candidate()
    if best and first is not None and first not in best and _is_near(first, best[0], LUCK):
        best = [*best[: most - 1], first]
    return [trial.candidate for trial in best]


def _is_near(trial: Trial, best: Trial, times: float) -> bool:
    return (trial.time_s or float("inf")) <= times * (best.time_s or 0.0)


def heat(tuner: KernelTuner) -> Heat:
    """The heat of the crowd, judged by the mean of two times of each schedule; it is empty where
    there are too few schedules for one.

    A candidate on which the device failed is left out, and does not count as failed.
    """
    size = heat_size(tuner.usable)
    times_s: dict[Candidate, float] = {}
    failed: list[Trial] = []
    entrants = crowd(tuner, size) if size else []
    for trials in tuner.measured_again(entrants) if len(entrants) > CHAMPIONS else ():
        found = [t.time_s for t in trials if t.time_s is not None]
        if len(found) == len(trials):
            times_s[trials[0].candidate] = mean(found)
        failed += [t for t in trials if t.time_s is None and not is_mishap(t)][:1]
    return Heat(tuple(sorted(times_s, key=times_s.__getitem__)), tuple(failed))
