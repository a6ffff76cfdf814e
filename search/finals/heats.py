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


@dataclass(frozen=True, slots=True)
class Heat:
    """The crowd, the fastest first, and the trials that failed."""

    order: tuple[Candidate, ...] = ()
    failed: tuple[Trial, ...] = ()


def heat_size(trials: int) -> int:
    """How many schedules of a kernel with so many trials may be the best; 0 where all of them are
    champions anyway, and need no heat.
    """
    size = min(MOST, trials // ONE_IN)
    return size if size > CHAMPIONS else 0


def crowd(tuner: KernelTuner, most: int) -> list[Candidate]:
    """The fastest candidates by their own trials, and the first candidate where it is not far
    behind.

    A formula chose the first candidate before there were any trials: it owes its place to no luck.
    """
    best = list(tuner.champions(most))
    first = tuner.first_candidate()
    if best and first is not None and first not in best and _is_near(first, best[0]):
        best = [*best[: most - 1], first]
    return [trial.candidate for trial in best]


def _is_near(first: Trial, best: Trial) -> bool:
    return (first.time_s or float("inf")) <= LUCK * (best.time_s or 0.0)


def heat(tuner: KernelTuner) -> Heat:
    """The heat of the crowd, judged by the mean of two times of each schedule; it is empty where
    there are too few schedules for one.

    A candidate on which the device failed is left out, and does not count as failed.
    """
    size = heat_size(tuner.usable)
    times_s: dict[Candidate, float] = {}
    failed: list[Trial] = []
    for trials in tuner.measured_again(crowd(tuner, size)) if size else ():
        found = [t.time_s for t in trials if t.time_s is not None]
        if len(found) == len(trials):
            times_s[trials[0].candidate] = mean(found)
        failed += [t for t in trials if t.time_s is None and not is_mishap(t)][:1]
    return Heat(tuple(sorted(times_s, key=times_s.__getitem__)), tuple(failed))
