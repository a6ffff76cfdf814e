"""Finals of kernels by their first candidates alone, where a budget has no time to search them all.

Opening a kernel, a batch of trials and a final with three champions check and time it three times.
A first candidate is most of the gain: it is verified as a winner is and compared with the default
in a few pairs, once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from hlotune.codegen.built import Built
from hlotune.costmodel.model import CostModel, predictions
from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.budget.contest import Contest, Decided
from hlotune.search.finals.finals import (
    FEWEST_PAIRS,
    Contender,
    Keep,
    Referee,
    decided,
    keep_nothing,
    keep_winner,
    meetings,
)
from hlotune.search.tasks import Task
from hlotune.search.workers import Builder
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final

TOGETHER = 4
"""So many candidates are built, and compiled, before the first of them is compared."""

Opened = Callable[[Task, Measurement, Trial], Contest]
"""The contest of a kernel with the default's samples and those of its first candidate."""


def liked(task: Task, model: CostModel, most: int = 1) -> list[Candidate]:
    """The candidates that a model likes best among the first ones: one of each algorithm, unless
    the space has an algorithm whose own stands alone."""
    configs = {task.space.schedule(c): c for c in task.space.firsts()}
    scores = predictions(model, task.space, np.stack(list(configs.values())))
    schedules = list(configs)
    order = np.argsort(-scores, kind="stable")[:most]
    return [Candidate(task.kernel, schedules[n]) for n in order]


def firsts_by_liking(space: Space, model: CostModel) -> Configs:
    """The first candidates of a space, the one ahead that a model likes best: a first batch of few
    trials has it, as a quick final would.
    """
    configs = space.firsts()
    if not model.knows:
        return configs
    best = int(np.argmax(predictions(model, space, configs)))
    return np.concatenate([configs[best : best + 1], configs[:best], configs[best + 1 :]])


@dataclass(kw_only=True)
class Quick:
    """Decides kernels one after the other, as long as there is time."""

    model: CostModel
    builder: Builder
    referee: Referee
    database: Database
    run: str
    opened: Opened
    clock: Callable[[], float]
    """Seconds of the budget that have passed."""
    left_s: Callable[[], float]
    """The seconds that are left for kernels."""
    done: Decided
    """Takes note of each kernel that is decided."""
    compile_together: Callable[[Sequence[tuple[Kernel, Built | Failure]]], None]
    """Compiles what was built of several kernels at the same time, on devices where that helps."""
    keep: Keep = keep_nothing
    cost_s: Callable[[Task], float] = lambda task: 1.0
    """What deciding a kernel is expected to take, as one beside another."""
    left_alone: frozenset[str] = frozenset()
    """Keys of kernels that the run searched before it was taken up again: they have more trials
    than one."""
    finals: dict[str, Final] = field(default_factory=dict)
    """By the keys of the kernels that are decided."""
    _tried: set[str] = field(default_factory=set)
    _took_s: float = 0.0
    """What those kernels took that were decided, and what they were expected to take: one that
    fails says nothing about those that do not."""
    _expected_s: float = 0.0

    def finals_of(self, contests: Sequence[Contest]) -> dict[int, Final]:
        """The finals of those kernels that it decided, by their places among the contests."""
        keys = ((n, c.task.kernel.key) for n, c in enumerate(contests))
        return {n: self.finals[key] for n, key in keys if key in self.finals}

    def decide(self, waiting: list[Task]) -> Iterator[Contest]:
        """The contests of the kernels that it decides, which are taken out of those that wait.

        What fails stays there, and is not tried again: a search may find candidates that do not.
        """
        told = self._tried | self.left_alone
        tasks = [task for task in waiting if task.kernel.key not in told]
        left_s = self.left_s()  # is asked again where time went by: it looks at all kernels
        for start in range(0, len(tasks), TOGETHER):
            some = [t for t in tasks[start : start + TOGETHER] if self._needs_s(t) <= left_s]
            chosen = list(self._chosen(some))
            if not chosen:
                continue
            start_s = self.clock()
            builts = self.builder.build([candidate for _, candidate in chosen])
            kernels = (task.kernel for task, _ in chosen)
            self.compile_together(list(zip(kernels, builts, strict=True)))
            build_s = (self.clock() - start_s) / len(chosen)
            left_s = self.left_s()
            for (task, candidate), built in zip(chosen, builts, strict=True):
                if self._needs_s(task) > left_s:
                    continue
                start_s = self.clock()
                self._tried.add(task.kernel.key)
                contest = self._decided(task, candidate, built)
                took_s = self.clock() - start_s
                if contest is not None:
                    self._took_s += took_s
                    self._expected_s += self.cost_s(task)
                    contest.tuner.took.build_s, contest.tuner.took.alone_s = build_s, took_s
                    waiting.remove(task)
                    yield contest
                left_s = self.left_s()

    def _chosen(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Candidate]]:
        """Kernels with their candidates, without those for which choosing one fails."""
        for task in tasks:
            try:
                (candidate,) = liked(task, self.model)
            except Exception:  # a search says why
                self._tried.add(task.kernel.key)
                continue
            yield task, candidate

    def _needs_s(self, task: Task) -> float:
        """The seconds that a kernel is expected to take, at the pace of those before it; none where
        it is the first, which a search would take longer to decide.
        """
        if not self._tried:
            return 0.0
        pace = self._took_s / self._expected_s if self._expected_s else 1.0
        return pace * self.cost_s(task)

    def _decided(self, task: Task, candidate: Candidate, built: Built | Failure) -> Contest | None:
        """None where the candidate fails, is off by too much, or the default fails: a search says
        why.
        """
        try:
            met = meetings(task.kernel, [(candidate, built)], self.referee, FEWEST_PAIRS)
            contenders = [x for x in met if isinstance(x, Contender)]
            if not contenders:
                return None
            (found,) = contenders
            contest = self.opened(task, found.default, Trial(found.candidate, found.measured))
            if not contest.tuner.usable:
                return None
            final = decided(task, contenders)
            keep_winner(task.kernel, final, contenders, self.keep)
        except Exception:
            return None
        self.database.record_final(self.run, task.kernel, final)
        self.finals[task.kernel.key] = final
        self.done.note(contest)
        return contest
