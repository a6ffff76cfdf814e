"""The only loop: propose, build, measure, record, learn; for one kernel, a batch at a time."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import inputs_of
from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.model import predictions
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import CacheMode, Candidate, Measurement, Trial
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.search.budget.account import Entry, opened, sealed
from hlotune.search.experience import Experience
from hlotune.search.outcomes import Outcomes, is_hanging, is_mishap
from hlotune.search.searchers.history import scores
from hlotune.search.searchers.searcher import Searcher
from hlotune.search.workers import Builder, Runner, there_and_back

CHUNK = 16
"""So many candidates are built together before they are timed."""
LIMIT_S = 30.0
"""The seconds for verifying and timing one candidate, once the kernel has a time; then it counts as
hanging.
"""

Predicted = Sequence[float | None]
"""What the cost model said of candidates when they were chosen: the higher, the faster."""
Record = Callable[[Sequence[Trial], int, bytes, Predicted | None], None]
"""Keeps trials, number of the batch, the searcher's state after it, and the predicted score of each
trial, where there are any: all or nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one batch."""

    trials: tuple[Trial, ...]
    failures: int
    best_s: float
    """The best time of the kernel after the batch; infinite as long as everything failed."""
    rank_correlation: float
    """The rank correlation of what the model predicted with what was measured."""
    wall_s: float


@dataclass
class Took:
    """The wall-clock seconds that the first batch of this process took."""

    build_s: float | None = None
    """Building a candidate, where several are built at once."""
    trials_s: list[float] = field(default_factory=list)
    """Verifying and timing each candidate."""
    alone_s: float | None = None
    """Comparing the first candidate alone with the default, where that came before any batch."""
    goes_on: bool = True
    """Whether that batch goes on still."""


class KernelTuner(Outcomes):
    """Tunes one kernel; several share an experience, and with it the model.

    Args:
        searcher: proposes; its state is recorded with each batch.
        finisher: proposes instead in the last tenth of a budget, where there is one; has no state
            but what it observed.
        group: number of the kernel in the experience.
        numerics: candidates that need a laxer setting count as failed.
        is_exact: so do those that this denies: a program of that kernel alone may be refused with
            them.
        clock: seconds since some moment; batches are timed by it.
        probe: what a fixed probe took beside the trials since the last call; 0 where nobody knows.
    """

    def __init__(
        self,
        kernel: Kernel,
        space: Space,
        *,
        searcher: Searcher,
        finisher: Searcher | None,
        experience: Experience,
        group: int,
        builder: Builder,
        runner: Runner,
        record: Record,
        cache: CacheMode = "model",
        numerics: Numerics = "standard",
        is_exact: Callable[[Measurement], bool] = lambda found: True,
        clock: Callable[[], float] = time.monotonic,
        probe: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__(space, numerics, is_exact)
        self.kernel = kernel
        self._searcher, self._finisher = searcher, finisher
        self.experience, self._group = experience, group
        self._builder, self._runner, self._record = builder, runner, record
        self._cache, self._clock, self._probe = cache, clock, probe
        self._mishaps: set[Schedule] = set()
        """Schedules on which the device failed in this run."""
        self._batches = 0
        self.took = Took()
        self.account: tuple[Entry, ...] = ()
        """The account of all batches of the run, also of those before it was taken up again."""

    def resume(self, batches: int, state: bytes, *, same_run: bool = False) -> None:
        """Goes on after a recorded batch of an interrupted run; call `know` with its trials next.

        What the same run spent counts as spent; trials of another run cost nothing.  A state of
        another version's space is left alone.
        """
        try:
            searcher, account = opened(state)
            self._searcher.restore(searcher)
        except (ValueError, KeyError, IndexError):
            return
        self._batches, self.account = batches, account if same_run else ()

    def know(self, trials: Sequence[Trial]) -> int:
        """Takes recorded trials, of this kernel and under the same conditions, as known.

        A schedule that today's space has no exact config for is not searched from, but may still be
        champion.  Returns how many are known; the default's and mishaps of the device are not.
        """
        ours = [t for t in trials if t.candidate.schedule.algorithm != XLA and not is_mishap(t)]
        self._take(ours)
        located = [(c, t) for t in ours if (c := self._exact(t.candidate.schedule)) is not None]
        if located:
            self._observe(np.stack([c for c, _ in located]), [t for _, t in located])
        return len(ours)

    def measured_again(self, candidates: Sequence[Candidate]) -> list[tuple[Trial, Trial]]:
        """Measures candidates again, as `there_and_back` does.  The model does not learn from these
        trials, and they are not recorded.
        """
        objects = list(zip(candidates, self._builder.build(candidates), strict=True))
        return there_and_back(self._runner, self.kernel, objects, self._cache)

    def reject(self, trials: Sequence[Trial]) -> None:
        """Records failures of champions that were looked at more closely."""
        self._record(trials, self._batches, sealed(self._searcher.state(), self.account), None)
        self._reject(trials)

    def step(self, n: int = 64, *, finishing: bool = False, limit_s: float = inf) -> Step | None:
        """One batch of up to n candidates; None where the space has nothing new to offer.

        No further candidate is measured after `limit_s` seconds, but always one.
        """
        start_s = self._clock()
        self.experience.learn()
        searcher = self._finisher if finishing and self._finisher else self._searcher
        configs = searcher.propose(n)
        if not len(configs):
            return None
        self._probe()  # what finals of before have seen is no part of this batch
        trials = self._measured(configs, start_s + limit_s)
        configs = configs[: len(trials)]
        times = self._times(trials)
        # The model has not learned since these were proposed: it says now what it said then.
        predicted = predictions(self.experience.model, self._space, configs)
        correlation = spearman(scores(times), predicted)
        self._take(trials)
        self._observe(configs, trials)
        self._batches += 1
        failures, now_s = int(np.isnan(times).sum()), self._clock()
        entry = Entry(now_s, now_s - start_s, len(trials), failures, self.best_s, self._probe())
        self.account = (*self.account, entry)
        state = sealed(self._searcher.state(), self.account)
        self._record(trials, self._batches, state, finite(predicted))
        return Step(tuple(trials), failures, self.best_s, correlation, entry.wall_s)

    def _measured(self, configs: Configs, end_s: float) -> list[Trial]:
        """Trials of the candidates in their order; fewer where several hang, or time is up."""
        candidates = [Candidate(self.kernel, self._space.schedule(c)) for c in configs]
        trials: list[Trial] = []
        for found in self._few_by_few(candidates):
            trials += found
            if is_hanging(trials) or self._clock() >= end_s:
                break
        self.took.goes_on = False
        if [t.candidate for t in trials] != candidates[: len(trials)]:
            raise RuntimeError(
                "expected a trial of each candidate in order, got others; the runner mixes them up"
            )
        return trials

    def _few_by_few(self, candidates: Sequence[Candidate]) -> Iterator[list[Trial]]:
        """As many trials at a time as the runner has devices."""
        # The first to be verified waits for the oracle, which may take longer.
        limit_s = LIMIT_S if np.isfinite(self.best_s) else None
        for start in range(0, len(candidates), CHUNK):
            chunk = candidates[start : start + CHUNK]
            before_s = self._clock()
            builts = self._builder.build(chunk)
            together = [(self.kernel, b) for b in builts]
            self._runner.compile_together(together, cache=self._cache, spread=True)
            if self.took.build_s is None:
                self.took.build_s = (self._clock() - before_s) / len(chunk)
            built = list(zip(chunk, builts, strict=True))
            for first in range(0, len(built), self._runner.width):
                some = built[first : first + self._runner.width]
                before_s = self._clock()
                found = self._runner.measure(self.kernel, some, cache=self._cache, limit_s=limit_s)
                if self.took.goes_on:  # each alone on its device, as it would be in a final
                    self.took.trials_s += [self._clock() - before_s] * len(some)
                yield found

    def _observe(self, configs: Configs, trials: Sequence[Trial]) -> None:
        """Shows trials to searchers and model.  A failure of the device says nothing about a
        candidate; where it fails twice on one, the search leaves that place.
        """
        once = {t.candidate.schedule for t in trials if is_mishap(t)} - self._mishaps
        self._mishaps |= once
        seen = np.array([t.candidate.schedule not in once for t in trials], np.bool_)
        sound = np.array([not is_mishap(t) for t in trials], np.bool_)
        times_s = self._times(trials)
        self._searcher.observe(configs[seen], times_s[seen])
        if self._finisher:
            self._finisher.observe(configs[seen], times_s[seen])
        inputs = inputs_of(self.experience.model.reads, self._space, configs[sound])
        self.experience.add(self._group, inputs, times_s[sound])

    def _exact(self, schedule: Schedule) -> NDArray[np.int32] | None:
        config = self._space.locate(schedule)
        if config is None or not self._space.legal(config[None, :])[0]:
            return None
        return config if self._space.schedule(config) == schedule else None


def finite(scores: NDArray[np.float32]) -> list[float | None]:
    """Predicted as they are recorded; what is no number is None."""
    return [float(score) if np.isfinite(score) else None for score in scores]
