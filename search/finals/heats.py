"""Before a final: who is a champion, of the fastest by the search's own times.

Trials are timed minutes apart, and a machine's pace moves by several per cent from one minute to
the next, so of many near equals those of its fastest minute look best.  A heat measures the crowd
of them again within a second or two, which is cheaper than to compare as many champions as it
would take to have the best among them.
"""

from dataclasses import dataclass
from statistics import mean

from hlotune.measure.trial import Candidate, Trial
from hlotune.search.tuner import KernelTuner, is_mishap

CHAMPIONS = 3
"""Candidates that meet the default."""
MOST = 16
"""In a heat."""
ONE_IN = 8
"""So many trials have one place in a heat: the more there are, the more look like the best."""
LUCK = 1.1
"""How much faster than it is a schedule may look by the samples of one trial."""


@dataclass(frozen=True, slots=True)
class Heat:
    """The crowd, the fastest first, and those that failed."""

    order: tuple[Candidate, ...] = ()
    failed: tuple[Trial, ...] = ()


def heat_size(trials: int) -> int:
    """How many schedules of a kernel with so many may be the best; 0 where all of them are
    champions, and need no heat.
    """
    size = min(MOST, trials // ONE_IN)
    return size if size > CHAMPIONS else 0


def crowd(tuner: KernelTuner, most: int) -> list[Candidate]:
    """The fastest by their own trials, among them the first candidate where it is not far behind.

    A formula chose that one before there were any: it owes its place to no luck.
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
    too few can be used.

    What the device failed on has no place in it, and is no failure.
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
