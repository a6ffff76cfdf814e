"""Chooses the champions of a final from the fastest by the search's own times.

Trials are timed minutes apart, and a machine's pace moves by several per cent from one minute to
the next, so that of many near equals those look best that were timed in its fastest minute.  A heat
measures this crowd again within a second or two, which is cheaper than to compare as many champions
as it would take to have the best among them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import mean

from hlotune.measure.trial import Candidate, Trial
from hlotune.search.outcomes import is_mishap
from hlotune.search.tuner import KernelTuner

CHAMPIONS = 3
"""So many champions meet the default."""
MOST = 16
"""So many candidates take part in a heat at most."""
ONE_IN = 8
"""A heat has one place for so many trials: the more trials there are, the more of them look like
the best.
"""
BEHIND = 1.25
"""A schedule whose trial took so many times as long as the fastest one is not the best: of trials
that follow each other neither luck nor the machine's pace makes so much.
"""
FIRST_BEHIND = 2.0
"""The first candidate is not the best where its trial took so many times as long.  It may be of
another run, or of a minute far ahead of the others: first candidates whose trials took 1.2 to 1.9
times as long as the fastest of a search were up to 1.2 times as fast as what had won, in turns.
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
    """The fastest candidates by their own trials, without those that are far behind."""
    best = tuner.champions(most)
    return [t.candidate for t in best if (t.time_s or inf) <= BEHIND * tuner.best_s]


def with_first(tuner: KernelTuner, best: Sequence[Candidate], most: int) -> list[Candidate]:
    """The first of `best`, so many at most, the last of which gives its place to the fastest first
    candidate where that is missing; but not where it is hopeless.

    A formula chose the first candidates before there were any trials: they owe their places to no
    luck, and what a search ends with is not to be slower than they are.
    """
    first, chosen = tuner.first_candidate(), list(best[:most])
    if first is None or most < 2 or not chosen or not is_hopeful(tuner, first):
        return chosen
    if first.candidate.schedule in (c.schedule for c in chosen):
        return chosen
    return [*chosen[: most - 1], first.candidate]


def is_hopeful(tuner: KernelTuner, first: Trial) -> bool:
    """Whether the first candidate may be the fastest, whatever the trials say."""
    return (first.time_s or inf) <= FIRST_BEHIND * tuner.best_s


def champions_met(tuner: KernelTuner, near: int) -> int:
    """How many champions a final has where so many schedules are not far behind the best."""
    first = tuner.first_candidate()
    is_near = first is not None and (first.time_s or inf) <= BEHIND * tuner.best_s
    joins = first is not None and not is_near and is_hopeful(tuner, first)
    return max(1, min(CHAMPIONS, near + joins))


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
