"""Spends the budget of a run: batch after batch, each on the kernel that promises most."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from hlotune.schedules.errors import reason_alone
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.budget import (
    CLOSING_SHARE,
    FIRST,
    Choice,
    finishing,
    longest_s,
    next_batch,
    trials_left,
)
from hlotune.search.budget.closing_costs import Due
from hlotune.search.budget.contest import Contest, Decided, Opening
from hlotune.search.budget.ledger import Ledger
from hlotune.search.budget.limits import Limits, less
from hlotune.search.budget.promises import is_worthwhile
from hlotune.search.budget.spent import Spent, trial_s
from hlotune.search.budget.stopping import floor_s, share_at_limit
from hlotune.search.budget.telling import Telling
from hlotune.search.progress import KernelAtLimit, KernelStopped, Progress
from hlotune.search.tasks import Task
from hlotune.search.tuner import Step

RIVALS_FROM, RIVALS_UNTIL = 0.6, 0.9
"""Shares of the seconds for batches between which other forms of kernels may be opened."""
AT_LEISURE = 1.5
"""Kernels are decided by their first candidates, and searched then by what they promise, unless the
budget has so many times what opening, a smallest batch and a final of each take: a kernel of which
a search finds nothing better needs neither."""


@dataclass
class Spending:
    """Runs batches and keeps account of what they cost and brought."""

    contests: list[Contest]
    """Contests that are opened later, and those of rivals, are put behind the others."""
    limits: Limits
    progress: Progress
    peaks: Callable[[], Properties] | None = None
    """The peaks, for the share of the peak in progress events; doubted ones are measured again."""
    now: Callable[[], float] = time.monotonic
    due: Callable[[], Due] = lambda: Due(0.0, 0.0)
    """The seconds that closing the run would take now; asked before each batch where seconds are
    limited.
    """
    another_s: Callable[[Contest], float] = lambda contest: 0.0
    """The seconds of another final of a kernel that had one."""
    target: Target | None = None
    """The target, for the limits of kernels in progress events."""
    ledger: Ledger = field(default_factory=Ledger)
    exhausted: frozenset[int] = frozenset()
    """Kernels whose space has nothing new to offer, those at their limit, and those whose search
    raised an error."""
    interrupted: bool = False
    rivals: Callable[[], Sequence[Contest]] = lambda: ()
    """Opens the contests of other forms of kernels that do not gain; asked once."""
    opening: Opening = field(default_factory=Opening)
    """Where seconds are limited kernels are opened behind the first batch: early in the budget all
    of them, so that the costliest defaults come first, later each when those before it have had a
    batch."""
    prepare: Callable[[], None] = lambda: None
    """Is called once, behind the first batch or what a kernel has in place of it."""
    quickly: Callable[[list[Task]], Iterable[Contest]] = lambda tasks: ()
    """Decides kernels by their first candidates alone, and takes them out of those that wait; asked
    where there is no time to search all that wait, behind the first batch and after all finals."""
    decided: Decided = field(default_factory=Decided)
    """The kernels that had their final: a batch makes another due."""
    _left_out: frozenset[int] = frozenset()
    """Kernels that are not searched for now, beside the exhausted ones."""
    _opened: bool = False
    _is_prepared: bool = False
    _is_asked: bool = False
    """Whether kernels were decided by their first candidates, or had enough time."""
    telling: Telling = field(init=False)
    _batches: Limits = field(init=False)
    """The limits without the seconds that are put by for closing."""

    def __post_init__(self) -> None:
        self._batches = self.limits
        self.telling = Telling(self.progress, self.peaks, self.target)
        self.ledger.take_over(self.contests, 0)

    @property
    def is_starved(self) -> bool:
        """Whether not even one batch fitted into the limits, though there was something to do."""
        waiting = len(self.exhausted) < len(self.contests)
        return waiting and not self.ledger.spent and not self.interrupted

    @property
    def is_settled(self) -> bool:
        """Whether the search ended before its budget, because no kernel promised enough."""
        items = set(range(len(self.contests))) - self.exhausted
        hopeless = bool(items) and not any(is_worthwhile(k, self.ledger.spent) for k in items)
        return self.limits.trials is None and hopeless and not self.interrupted

    def run(self) -> None:
        """Spends until the budget is used up or nothing promises to be worth it.

        Ctrl-C ends it at once: the batch in flight is lost.
        """
        start_s = self.now() - self.ledger.wall_s
        try:
            while (choice := self._next(start_s)) is not None:
                step = self._batch(choice, self.now() - start_s)
                if step is None:
                    self.exhausted |= {choice.item}
                else:
                    self._tell(choice.item, step, self.now() - start_s)
                    self._stop_at_limit(choice.item, step.best_s)
        except KeyboardInterrupt:
            self.interrupted = True

    def _next(self, start_s: float) -> Choice | None:
        """The next batch; contests of rivals are opened where it is time for them.

        Peaks that a final has beaten are measured here, where no kernel counts the seconds as its
        own.
        """
        if self.peaks is not None:
            self.peaks()
        hurried = self._is_hurried(start_s)
        if self.ledger.spent:
            self._prepare_once()
        if (self.ledger.spent or hurried) and not self._is_asked:
            self._is_asked = True
            if hurried or not self._has_time_for(AT_LEISURE * len(self.opening.waiting), start_s):
                self._decide_quickly(hurried=hurried)
        if not self._opened_next(start_s):
            return None
        choice = self._choice(self.now() - start_s)
        if self._is_time_for_rivals(choice, self.now() - start_s):
            self._opened = True
            found = self.rivals()
            self.contests += found
            self.ledger.take_over(self.contests, len(self.contests) - len(found))
            choice = self._choice(self.now() - start_s) if found else choice
        return choice

    def _prepare_once(self) -> None:
        if not self._is_prepared:
            self._is_prepared = True
            self.prepare()

    def _is_hurried(self, start_s: float) -> bool:
        """Whether it would take longer than there is to open all kernels that wait, where closing
        takes its share of the seconds: then even the first of all is decided by its first
        candidate.
        """
        if self.ledger.spent or self.limits.seconds is None:
            return False
        kernels_s = (1 - CLOSING_SHARE) * self.limits.seconds
        return self.opening.all_s > kernels_s - (self.now() - start_s)

    def _decide_quickly(self, *, hurried: bool) -> None:
        """Decides kernels by their first candidates where there is no time to search all of them
        at leisure.  Each counts as a batch of one.

        `hurried` says that those that are open, and had no batch, are among them.
        """
        begun, waiting, before_s = self._begun, self.opening.waiting, self.now()
        fresh = [n for n in range(len(self.contests)) if hurried and n not in begun]
        opened = {self.contests[n].task.kernel: n for n in fresh}
        waiting[:0] = [self.contests[n].task for n in fresh]
        try:
            for contest in self.quickly(waiting):
                item = opened.get(contest.task.kernel, len(self.contests))
                self.contests[item : item + 1] = [contest]
                self.telling.start(contest, item + 1, self._count)
                now_s, best_s = self.now(), contest.tuner.best_s
                self.ledger.note(Spent(item, 1, now_s - before_s, best_s, is_search=False), 0)
                self._prepare_once()
                before_s = self.now()
        finally:
            waiting[:] = [t for t in waiting if t.kernel not in opened]

    def _opened_next(self, start_s: float) -> bool:
        """Opens kernels that are to have a turn; False where there is no time for one more.

        Then finals come first, which may leave some: others get no second batch before its first,
        unless none waits for its final.
        """
        while self.ledger.spent and self.opening.waiting and self.opening.is_early():
            if self._is_asked and not self._has_time_for_another(start_s):
                break
            self._open()
        if not self.opening.waiting or len(self._begun) < len(self.contests):
            return True
        if self.contests and not self._has_time_for_another(start_s):
            return all(self.decided.covers(c) for c in self.contests)
        self._open()
        return True

    def _open(self) -> None:
        contest = self.opening.next(self.now)
        self.contests += [contest] if contest else []
        self.ledger.take_over(self.contests, len(self.contests) - (1 if contest else 0))

    def _has_time_for_another(self, start_s: float) -> bool:
        """Whether the seconds suffice for one more default, its smallest batch, and its final."""
        return self._has_time_for(1, start_s)

    def _has_time_for(self, kernels: float, start_s: float) -> bool:
        if self.limits.seconds is None:
            return True
        due = self.due()
        left_s = self.limits.seconds - due.certain_s - (self.now() - start_s)
        trials_s = FIRST * trial_s(len(self.contests), self.ledger.spent)
        return left_s >= kernels * (self.opening.usual_s + trials_s + due.final_s)

    def _is_time_for_rivals(self, choice: Choice | None, elapsed_s: float) -> bool:
        """Whether to open rivals: once all other kernels have begun, and promise nothing more or
        the budget is late.
        """
        if self._opened or self.opening.waiting or len(self._begun) < len(self.contests):
            return False
        if self._batches.seconds is None:
            return choice is None
        late = elapsed_s >= RIVALS_FROM * self._batches.seconds
        return (choice is None or late) and elapsed_s < RIVALS_UNTIL * self._batches.seconds

    def go_on(self, seconds: float, without: frozenset[int]) -> None:
        """Goes on with the seconds that are left by now, for all kernels but some."""
        self.limits = Limits(seconds=seconds + self.ledger.wall_s)
        self._left_out = without
        self.run()

    def go_on_with_all(self, seconds: float) -> bool:
        """Goes on once no kernel waits for its final; returns whether there was anything to do.

        Kernels that are not opened are decided by their first candidates where there is no time to
        search them.  Those that had their final are searched again, and those without a first batch
        do not keep the others waiting where there is no time for it.
        """
        before, end_s = len(self.ledger.spent), self.now() + seconds
        self._is_asked = False
        self.go_on(seconds, frozenset())
        if len(self.ledger.spent) == before and not self.interrupted:
            fresh = set(range(len(self.contests))) - self._begun
            self.go_on(end_s - self.now(), frozenset(fresh))
        return len(self.ledger.spent) > before

    def _choice(self, elapsed_s: float) -> Choice | None:
        items, final_s, again_s = [c.item for c in self.contests], 0.0, dict[int, float]()
        if self.limits.seconds is not None:
            due = self.due()
            self._batches = less(self.limits, due.certain_s)
            final_s = due.final_s + self.opening.usual_s
            decided = ((n, c) for n, c in enumerate(self.contests) if self.decided.covers(c))
            again_s = {n: self.another_s(c) for n, c in decided}
        return next_batch(
            items, self.ledger.spent, self._batches, elapsed_s, self.exhausted | self._left_out,
            final_s=final_s, waiting=len(self.opening.waiting), again_s=again_s,
        )  # fmt: skip

    @property
    def _begun(self) -> set[int]:
        """Kernels that had a batch, or are to have none."""
        return self.ledger.begun | self.exhausted | self._left_out

    def _batch(self, choice: Choice, elapsed_s: float) -> Step | None:
        """Runs one batch; None where nothing was tried, because nothing new is left or the search
        raised an error.
        """
        contest = self.contests[choice.item]
        begun = self.ledger.begun
        if choice.item not in begun:
            self.telling.start(contest, len(begun) + 1, self._count)
        last = finishing(choice.item, self.ledger.spent, self._batches, elapsed_s)
        left_s = inf if self._batches.seconds is None else self._batches.seconds - elapsed_s
        left_s -= choice.final_s
        unopened = len(self.opening.waiting)
        others = unopened + len(self.contests) - len(self._begun)
        fresh = 0 if choice.item in begun else others
        limit_s = longest_s(choice, fresh, left_s)
        try:
            step = contest.tuner.step(choice.trials, finishing=last, limit_s=limit_s)
        except Exception as error:
            reason = reason_alone(error)
            self.progress(KernelStopped(label=contest.task.label, reason=reason))
            return None
        if step is not None:
            spent = Spent(choice.item, len(step.trials), step.wall_s, step.best_s)
            self.ledger.note(spent, step.failures)
        return step

    @property
    def _count(self) -> int:
        """The kernels that are open, and those that wait."""
        return len(self.contests) + len(self.opening.waiting)

    def _tell(self, item: int, step: Step, elapsed_s: float) -> None:
        self.telling.batch(
            self.contests[item], step, self.ledger, item,
            kernels=self._count, elapsed_s=elapsed_s, remaining_s=self._remaining_s(elapsed_s),
            is_estimate=self._batches.seconds is None,
        )  # fmt: skip

    def _stop_at_limit(self, item: int, best_s: float) -> None:
        """Ends the search of a kernel that has come as near to its limit as is worth the time."""
        task = self.contests[item].task
        if self.peaks is None:
            return
        share = share_at_limit(best_s, floor_s(task.compute, self.target, self.peaks()))
        if share is not None:
            self.exhausted |= {item}
            self.progress(KernelAtLimit(key=task.kernel.key, label=task.label, share=share))

    def _remaining_s(self, elapsed_s: float) -> float:
        if self._batches.seconds is not None:
            return max(0.0, self._batches.seconds - elapsed_s)
        waiting = (k for k in range(len(self.contests)) if k not in self.exhausted)
        return sum(
            trials_left(k, self.ledger.spent, self.limits) * trial_s(k, self.ledger.spent)
            for k in waiting
        )
