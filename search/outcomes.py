"""What became of the schedules of a kernel that were tried, and which may be its champions."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import inf

import numpy as np

from hlotune.measure.trial import Failure, Measurement, Trial
from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.searchers.history import Times

HANGS = 3
"""A batch ends after so many timeouts in a row: its other candidates would likely hang as well."""


class Outcomes:
    """The trials of one kernel, as far as its champions and its searcher need them."""

    def __init__(
        self, space: Space, numerics: Numerics, is_exact: Callable[[Measurement], bool]
    ) -> None:
        """Candidates that need laxer `numerics`, or that `is_exact` denies, count as failed."""
        self._space, self._numerics, self._is_exact = space, numerics, is_exact
        self._usable: list[Trial] = []
        self._failed: set[Schedule] = set()
        """Schedules that are never champions, not even where they were timed before."""
        self._wrong: set[Schedule] = set()
        """Those among them that were wrong when they were looked at as closely as winners."""
        self._standing: tuple[tuple[int, int], tuple[float, ...]] = (0, 0), ()
        """How many are usable and failed, and the times of those usable that did not fail."""
        self._denied: set[Schedule] = set()
        self._first_trial: Trial | None = None

    @property
    def best_s(self) -> float:
        return min(self._times_s(), default=float("inf"))

    def _times_s(self) -> tuple[float, ...]:
        """The times of the trials that can be champions; both sets only grow."""
        counts = len(self._usable), len(self._failed)
        if counts != self._standing[0]:
            standing = [t for t in self._usable if t.candidate.schedule not in self._failed]
            self._standing = counts, tuple(s for t in standing if (s := t.time_s))
        return self._standing[1]

    @property
    def usable(self) -> int:
        """The number of schedules that work, known ones among them."""
        return len({t.candidate.schedule for t in self._usable} - self._failed)

    def champions(self, n: int) -> tuple[Trial, ...]:
        """The n fastest, fastest first; of equal times the shorter schedule."""

        def rank(trial: Trial) -> tuple[float, int, str]:
            text = trial.candidate.schedule.to_json()
            return trial.time_s or float("inf"), len(text), text

        best: dict[Schedule, Trial] = {}
        for trial in sorted(self._usable, key=rank):
            if trial.candidate.schedule not in self._failed:
                best.setdefault(trial.candidate.schedule, trial)
        return tuple(best.values())[:n]

    def near(self, times: float) -> int:
        """Trials that took at most so many times the best."""
        most_s = times * self.best_s
        return sum(time_s <= most_s for time_s in self._times_s())

    def first_candidate(self) -> Trial | None:
        """The fastest trial of what the space proposes itself, a schedule of each algorithm; None
        where none was measured, or it failed since."""
        found = self._first_trial
        return None if found and found.candidate.schedule in self._failed else found

    @cached_property
    def _first_schedules(self) -> frozenset[Schedule]:
        return frozenset(map(self._space.schedule, self._space.firsts()))

    def has_failed(self, schedule: Schedule) -> bool:
        return schedule in self._failed

    def is_denied(self, schedule: Schedule) -> bool:
        """Whether a schedule was timed and is off by more than a program may be."""
        return schedule in self._denied

    def is_wrong(self, schedule: Schedule) -> bool:
        """Whether a schedule was wrong in a final of this run."""
        return schedule in self._wrong

    def _take(self, trials: Sequence[Trial]) -> None:
        usable = [t for t in trials if self._is_usable(t)]
        self._usable += usable
        firsts = [t for t in usable if t.candidate.schedule in self._first_schedules]
        known = [self._first_trial] if self._first_trial else []
        self._first_trial = min((*known, *firsts), key=lambda t: t.time_s or inf, default=None)
        for trial in trials:
            found, schedule = trial.outcome, trial.candidate.schedule
            if isinstance(found, Measurement) and not self._is_exact(found):
                self._denied.add(schedule)
            if isinstance(found, Failure) and not is_mishap(trial):
                self._failed.add(schedule)

    def _reject(self, trials: Sequence[Trial]) -> None:
        """Takes note of champions that failed when they were looked at more closely."""
        self._failed |= {t.candidate.schedule for t in trials}
        self._wrong |= {t.candidate.schedule for t in trials if is_wrong_result(t)}

    def _times(self, trials: Sequence[Trial]) -> Times:
        return np.array([t.time_s if self._is_usable(t) else np.nan for t in trials], np.float64)

    def _is_usable(self, trial: Trial) -> bool:
        found = trial.outcome
        if isinstance(found, Failure):
            return False
        is_lax = NUMERICS.index(found.numerics) > NUMERICS.index(self._numerics)
        return not is_lax and self._is_exact(found)


def is_hanging(trials: Sequence[Trial]) -> bool:
    """Whether the last few all ran out of time."""
    last = [t.outcome for t in trials[-HANGS:]]
    return len(last) == HANGS and all(isinstance(x, Failure) and x.kind == "timeout" for x in last)


def is_mishap(trial: Trial) -> bool:
    """Whether the device failed, and not the candidate: then it may be tried again."""
    return isinstance(trial.outcome, Failure) and trial.outcome.kind == "device"


def is_wrong_result(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and trial.outcome.kind == "wrong_result"
