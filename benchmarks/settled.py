"""Times that tell near equals apart: the best that races have found, timed in turns.

One trial's time is some percent off, so the best of thousands of trials is mostly the luckiest of
many near equals.  The schedule that a race would hand over after so many trials is the best of its
champions, which come from a heat, as in a run; half of the samples choose, half say the time.  The
few that these call the best meet once more, in more rounds: of hundreds the one that half of a few
rounds choose is a lucky one, and some percent slower in the other half.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import inf
from statistics import mean, median
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Clock, Failure, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.finals.finals import Object
from hlotune.search.finals.heats import CHAMPIONS, MOST, heat_size
from hlotune.search.workers import Builder, Runner, there_and_back

ROUNDS = 31
LIMIT_S = 240.0
"""How long the rounds of one kernel may take."""
FINALISTS = 12
FINAL_ROUNDS = 121
FINAL_S = 90.0


class Referee(Runner, Protocol):
    def compare(
        self, kernel: Kernel, objects: Sequence[Object], *, pairs: int, limit_s: float, clock: Clock
    ) -> Comparison:
        """Does what `Runner.compare` does: verifies thoroughly, then times in turns."""
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """The times of one schedule, from samples taken in turns with all others; infinite where it
    failed.
    """

    heat_s: float
    """By which a heat finds its champions: two more trials, one on the way there, one back."""
    choosing_s: float
    """By which the best of these is chosen."""
    time_s: float
    """By samples that had no say in that."""


WRONG = Settled(inf, inf, inf)
Times = Mapping[Schedule, Settled]


def crowds(trials: Sequence[Trial]) -> list[tuple[Schedule, ...]]:
    """After each trial those that would be in the heat, or champions without one."""
    found, best, usable = list[tuple[Schedule, ...]](), list[tuple[float, int]](), 0
    for n, trial in enumerate(trials):
        if trial.time_s is not None:
            usable += 1
            best = nsmallest(MOST, [*best, (trial.time_s, n)])
        first = best[: heat_size(usable) or CHAMPIONS]
        found.append(tuple(trials[k].candidate.schedule for _, k in first))
    return found


def last_crowd(trials: Sequence[Trial]) -> tuple[Schedule, ...]:
    """The schedules of all trials that would be in the heat."""
    return next(reversed(crowds(trials)), ())


def shortlist(races: Iterable[Sequence[Trial]]) -> list[Schedule]:
    """All that were in the crowd of any race after any trial, each once."""
    found = (s for trials in races for crowd in crowds(trials) for s in crowd)
    return list(dict.fromkeys(found))


def settled(
    kernel: Kernel, schedules: Sequence[Schedule], builder: Builder, referee: Referee
) -> dict[Schedule, Settled]:
    """The times of all schedules; they are infinite for one that fails when it is verified
    thoroughly.
    """
    candidates = [Candidate(kernel, s) for s in schedules]
    objects: list[Object] = list(zip(candidates, builder.build(candidates), strict=True))
    heats_s = heat_times(kernel, objects, referee)
    met = referee.compare(kernel, objects, pairs=ROUNDS, limit_s=LIMIT_S, clock="kernel")
    times = {
        candidate.schedule: WRONG
        if isinstance(outcome, Failure)
        else Settled(heat_s, *_halves(outcome.samples_s))
        for candidate, heat_s, outcome in zip(candidates, heats_s, met.candidates, strict=True)
    }
    return times | final(kernel, finalists(objects, times), times, referee)


def finalists(objects: Sequence[Object], times: Times) -> list[Object]:
    """The objects to choose from, the best first; none where there is no choice."""
    right = [x for x in objects if times[x[0].schedule] != WRONG]
    best = sorted(right, key=lambda x: times[x[0].schedule].choosing_s)[:FINALISTS]
    return best if len(best) > 1 else []


def final(
    kernel: Kernel, objects: Sequence[Object], times: Times, referee: Referee
) -> dict[Schedule, Settled]:
    """Times of finalists by rounds of their own.

    They count by the clock of the first rounds, when the machine may have been faster or slower:
    by the samples that did not choose the finalists.
    """
    if not objects:
        return {}
    met = referee.compare(kernel, objects, pairs=FINAL_ROUNDS, limit_s=FINAL_S, clock="kernel")
    halves = {
        candidate.schedule: None if isinstance(outcome, Failure) else _halves(outcome.samples_s)
        for (candidate, _), outcome in zip(objects, met.candidates, strict=True)
    }
    pace = median([times[s].time_s / mean(h) for s, h in halves.items() if h] or [1.0])
    return {
        s: Settled(times[s].heat_s, pace * h[0], pace * h[1]) if h else WRONG
        for s, h in halves.items()
    }


def heat_times(kernel: Kernel, objects: Sequence[Object], runner: Runner) -> list[float]:
    """Means of two trials of each; infinite where either failed."""
    pairs = there_and_back(runner, kernel, objects)
    return [mean(trial.time_s or inf for trial in pair) for pair in pairs]


def _halves(samples_s: Sequence[float]) -> tuple[float, float]:
    """What chooses and what tells: two rounds each in turn, for two are one order both ways, as of
    `turns`."""
    telling, choosing = (
        [s for k, s in enumerate(samples_s) if k % 4 // 2 == half] for half in (0, 1)
    )
    return median(choosing), median(telling)


def curve(trials: Sequence[Trial], times: Times) -> NDArray[np.float64]:
    """Time of what would be handed over after each trial; infinite while nothing works."""
    return np.array([chosen_s(champions(c, times), times) for c in crowds(trials)], np.float64)


def champions(crowd: Sequence[Schedule], times: Times) -> list[Schedule]:
    """The fastest of a heat."""
    return sorted(crowd, key=lambda s: times[s].heat_s)[:CHAMPIONS]


def chosen_s(schedules: Sequence[Schedule], times: Times) -> float:
    """Time of the one that half of the samples call the best."""
    chosen = min((times[s] for s in schedules), key=lambda t: t.choosing_s, default=WRONG)
    return chosen.time_s
