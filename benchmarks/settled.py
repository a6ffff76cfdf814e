"""Times that tell near equals apart: the best that races have found, timed in turns.

One trial's time is some percent off, so the best of thousands of trials is mostly the luckiest of
many near equals.  What a race would hand over after so many trials is the best of its champions, as
the finals of a run say it; half of the samples choose, the other half say the time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from statistics import median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.kernel import Kernel
from hlotune.measure.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Trial
from hlotune.schedules.schedule import Schedule
from hlotune.search.finals import MOST_CHAMPIONS, Object, places
from hlotune.search.tuner import Builder

ROUNDS = 31
LIMIT_S = 240.0
"""Of the rounds of one kernel."""


class Referee(Protocol):
    def compare(
        self, kernel: Kernel, objects: Sequence[Object], *, pairs: int, limit_s: float
    ) -> Comparison:
        """As `Runner.compare`: verifies thoroughly, then times in turns."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """Of one schedule, by samples taken in turns with all others; infinite where it failed."""

    choosing_s: float
    """By which the best is chosen."""
    time_s: float
    """By samples that had no say in that."""


WRONG = Settled(inf, inf)
Times = Mapping[Schedule, Settled]


def champions(trials: Sequence[Trial]) -> list[tuple[Schedule, ...]]:
    """After each trial the best so far by the times of the trials themselves."""
    found, best, usable = list[tuple[Schedule, ...]](), list[tuple[float, int]](), 0
    for n, trial in enumerate(trials):
        if trial.time_s is not None:
            usable += 1
            best = nsmallest(MOST_CHAMPIONS, [*best, (trial.time_s, n)])
        first = best[: places(usable)]
        found.append(tuple(trials[k].candidate.schedule for _, k in first))
    return found


def shortlist(races: Iterable[Sequence[Trial]]) -> list[Schedule]:
    """All that were among the champions of any race after any trial, each once."""
    found = (s for trials in races for best in champions(trials) for s in best)
    return list(dict.fromkeys(found))


def settled(
    kernel: Kernel, schedules: Sequence[Schedule], builder: Builder, referee: Referee
) -> dict[Schedule, Settled]:
    """Of all schedules; what fails when it is verified thoroughly is infinite."""
    candidates = [Candidate(kernel, s) for s in schedules]
    objects: list[Object] = list(zip(candidates, builder.build(candidates), strict=True))
    met = referee.compare(kernel, objects, pairs=ROUNDS, limit_s=LIMIT_S)
    return {
        candidate.schedule: WRONG if isinstance(outcome, Failure) else _halves(outcome.samples_s)
        for candidate, outcome in zip(candidates, met.candidates, strict=True)
    }


def _halves(samples_s: Sequence[float]) -> Settled:
    """Two rounds tell, two choose, and so on: two are one order both ways, as of `turns`."""
    telling, choosing = (
        [s for k, s in enumerate(samples_s) if k % 4 // 2 == half] for half in (0, 1)
    )
    return Settled(median(choosing), median(telling))


def curve(trials: Sequence[Trial], times: Times) -> NDArray[np.float64]:
    """Time of what would be handed over after each trial; infinite while nothing works."""
    return np.array([chosen_s(found, times) for found in champions(trials)], np.float64)


def chosen_s(schedules: Sequence[Schedule], times: Times) -> float:
    """Time of the one that half of the samples call the best."""
    chosen = min((times[s] for s in schedules), key=lambda t: t.choosing_s, default=WRONG)
    return chosen.time_s
