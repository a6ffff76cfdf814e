"""The contests of one run: each kernel with its default's time, and a tuner that knows what others
found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.modes import fast_time_s, slow_time_s
from hlotune.measure.timing.timing import ONCE_S
from hlotune.measure.trial import Candidate, Measurement, Trial
from hlotune.measure.verification.agreement import Agreement
from hlotune.schedules.errors import reason_alone
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.schedules.targets.limit import limit_of
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.contest import Contest
from hlotune.search.exactness import Exactness
from hlotune.search.experience import Experience
from hlotune.search.finals.finals import Referee
from hlotune.search.finals.quick import firsts_by_liking
from hlotune.search.learning.known_trials import known_trials
from hlotune.search.learning.transfer import Kin, kin, lent, recorded, teach
from hlotune.search.progress import Event, KernelSkipped
from hlotune.search.resume_queries import default_s, has_begun, own_trials
from hlotune.search.searchers.descent import Descent
from hlotune.search.searchers.searcher import PLAIN, Make
from hlotune.search.tasks import Task
from hlotune.search.tuner import KernelTuner, Predicted
from hlotune.search.workers import Builder, Runner
from hlotune.tuning_logs.database import Conditions, Database
from hlotune.tuning_logs.wrong_defaults import default_error, default_relative_error

SEEDS = 8
"""So many schedules from other conditions, of the kernel or its family, are measured first."""


class Device(Runner, Referee, Protocol):
    """A runner that times candidates, the default, and both in turns."""

    def default(self, kernel: Kernel) -> Measurement:
        """Raises ProgramError where the default compiler does not take the kernel."""
        ...


@dataclass(kw_only=True)
class Contests:
    """Makes the contests of a run; its fields are those of the session."""

    database: Database
    run: str
    under: Conditions
    target: Target
    peaks: Callable[[], Properties]
    builder: Builder
    runner: Device
    experience: Experience
    make: Make
    seed: int
    numerics: Numerics
    resumed: bool
    agreement: Callable[[Kernel], Agreement | None]
    probe: Callable[[], float]
    clock: Callable[[], float]
    """Seconds that count against the budget."""
    tell: Callable[[Event], None]
    _kin: dict[str, list[Kin]] = field(default_factory=dict)

    def begun_s(self, task: Task) -> float | None:
        """The default's time in a run that was interrupted; None where it was not timed there."""
        return default_s(self.database, self.run, task.kernel.key) if self.resumed else None

    def own_trials(self, task: Task) -> int:
        """How many trials of a kernel the run has recorded."""
        return own_trials(self.database, self.run, task.kernel.key)

    def meet(self, tasks: Sequence[Task]) -> None:
        """Finds the kin of each kernel in the database; those that are not in the run teach."""
        known = recorded(self.database, self.under, self.run)
        self._kin = {t.kernel.key: kin(known, t.kernel, t.compute) for t in tasks}
        strangers = {k.kernel: k for of in self._kin.values() for k in of}
        for task in tasks:
            strangers.pop(task.kernel, None)
        teach(self.experience, self.database, list(strangers.values()), self.target, self.under)

    def recorded(self, kernel: Kernel, kernels: int) -> list[Trial]:
        """What a run of so many kernels begins with of one of them."""
        return known_trials(self.database, kernel, kernels, self.run, self.numerics, self.under)

    def least_s(self, task: Task) -> float:
        """The least time that a call of a kernel takes; 0 where nobody knows."""
        limit = limit_of(task.flops, task.moved_bytes, task.dtype, self.target, self.peaks())
        return limit.time_s if limit else 0.0

    def guess_s(self, task: Task) -> float:
        """What the default takes for a call, at a guess, as if all bytes came from memory."""
        peaks = self.peaks()
        if not peaks.read_bytes_per_s:
            return 0.0
        read_s = task.moved_bytes / peaks.read_bytes_per_s
        return task.default_lag * max(self.least_s(task), read_s)

    def opened(
        self, group: int, task: Task, recorded: Sequence[Trial], before_s: float | None
    ) -> Contest | None:
        """The contest of a kernel; None where it raises any error, whose reason is reported."""
        try:
            return self._contest(group, task, recorded, before_s)
        except Exception as error:
            self.tell(KernelSkipped(label=task.label, reason=reason_alone(error)))
            return None

    def _contest(
        self, group: int, task: Task, recorded: Sequence[Trial], before_s: float | None
    ) -> Contest:
        """The contest of a kernel.  `before_s` is the default's time in a run that is resumed,
        which holds for all of it.

        Raises ProgramError where the default compiler does not take the kernel.
        """
        default_time_s, slow_s, timing_s = before_s, None, None
        if default_time_s is None:
            start_s = self.clock()
            default = self.runner.default(task.kernel)
            timing_s = self.clock() - start_s
            is_long = fast_time_s(default.samples_s) >= ONCE_S
            found = None if is_long else self.agreement(task.kernel)
            if found is not None:
                default = replace(default, error=found.error, relative_error=found.relative_error)
            trial = Trial(Candidate(task.kernel, DEFAULT), default)
            self.database.add(self.run, task.kernel, [trial], batch=0)
            default_time_s, slow_s = fast_time_s(default.samples_s), slow_time_s(default.samples_s)
        error = default_error(self.database, task.kernel.key, self.run)
        checkpoint = self.database.checkpoint(self.run, task.kernel.key)
        begun = self.resumed and has_begun(self.database, self.run, task.kernel.key)
        tuner = self.tuner(group, task, default_time_s, begun=begun)
        if checkpoint:
            tuner.resume(*checkpoint, same_run=begun)
        known = tuner.know(recorded) - self.own_trials(task)
        least_s = self.least_s(task)
        return Contest(task, tuner, default_time_s, known, timing_s, slow_s, error, least_s)

    def tuner(self, group: int, task: Task, default_s: float, *, begun: bool) -> KernelTuner:
        """The tuner of a kernel.  `begun` says that the kernel had its first batch in this run,
        with what other kernels lend to it.
        """
        kernel, space, model = task.kernel, task.space, self.experience.model
        entropy = (self.seed, int(kernel.key, 16))
        plain = self.make in PLAIN
        first = space.firsts() if begun or plain else self._first(kernel, space)

        def record(
            trials: Sequence[Trial], batch: int, state: bytes, predicted: Predicted | None
        ) -> None:
            self.database.add(
                self.run, kernel, trials, batch=batch, state=state, predicted=predicted
            )

        return KernelTuner(
            kernel,
            space,
            searcher=self.make(space, model, entropy, first),
            finisher=None if plain else Descent(space, model, entropy, first),
            experience=self.experience,
            group=group,
            builder=self.builder,
            runner=self.runner,
            record=record,
            cache=self.under["cache"],
            numerics=self.numerics,
            is_exact=self._exactness(task, default_s).allows,
            clock=self.clock,
            probe=self.probe,
        )

    def _exactness(self, task: Task, default_s: float) -> Exactness:
        """What candidates of a kernel may be off.  A default that nobody has held against the
        oracle, as behind a quick final, is where that is asked for, unless its calls take long.
        """

        def of_default() -> float | None:
            known = default_relative_error(self.database, task.kernel.key, self.run)
            if known is not None or default_s >= ONCE_S:
                return known
            found = self.agreement(task.kernel)
            return found.relative_error if found else None

        return Exactness(task, self.numerics, of_default)

    def _first(self, kernel: Kernel, space: Space) -> Configs:
        """The configs to measure first: first candidates, then schedules from other conditions,
        other shapes, and kin.

        Nothing that this run found is among them, so that they are the same when the run is
        resumed; what the model learned may change which first candidate is ahead.
        """
        schedules = self.database.seeds(kernel, limit=SEEDS, apart=self.run, **self.under)
        located = [c for s in schedules if (c := space.locate(s)) is not None]
        of = self._kin.get(kernel.key, [])
        borrowed = lent(self.database, of, space, self.under, self.run)
        firsts = firsts_by_liking(space, self.experience.model)
        return np.array([*firsts, *located, *borrowed], np.int32)
