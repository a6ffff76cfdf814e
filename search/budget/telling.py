"""What progress says of a kernel beside what was measured of it."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

from hlotune.measure.trial import Failure
from hlotune.schedules.targets.limit import limit_of
from hlotune.schedules.targets.target import Properties, Target
from hlotune.search.budget.contest import Contest
from hlotune.search.budget.ledger import Ledger
from hlotune.search.progress import Batch, KernelStarted, Progress
from hlotune.search.tasks import Task
from hlotune.search.tuner import Step


def kernel_started(
    contest: Contest, index: int, count: int, limit_s: float | None
) -> KernelStarted:
    return KernelStarted(
        key=contest.task.kernel.key,
        label=contest.task.label,
        index=index,
        count=count,
        default_s=contest.default_s,
        default_slow_s=contest.default_slow_s,
        default_error=contest.default_error,
        known_trials=contest.known_trials,
        calls=contest.task.weight,
        limit_s=limit_s,
    )


@dataclass(frozen=True, slots=True)
class Telling:
    """Tells of the kernels of a run that begin, and of their batches."""

    progress: Progress
    peaks: Callable[[], Properties] | None
    target: Target | None

    def start(self, contest: Contest, index: int, count: int) -> None:
        """Tells that a kernel begins, the `index`-th of so many."""
        self.progress(kernel_started(contest, index, count, self.limit_s(contest.task)))

    def batch(
        self,
        contest: Contest,
        step: Step,
        ledger: Ledger,
        item: int,
        *,
        kernels: int,
        elapsed_s: float,
        remaining_s: float,
        is_estimate: bool,
    ) -> None:
        """Tells of a batch of the kernel of number `item`, which stands in the ledger."""
        best_s = step.best_s if isfinite(step.best_s) else None
        rate = contest.task.flops / best_s if best_s else None
        peaks = self.peaks().flops_per_s if self.peaks else {}
        peak = peaks.get(contest.task.dtype)
        self.progress(
            Batch(
                key=contest.task.kernel.key,
                label=contest.task.label,
                kernels_begun=len(ledger.begun),
                kernels=kernels,
                trials=ledger.trials(),
                failures=ledger.failed(),
                best_s=best_s,
                default_s=contest.default_s,
                gflops=rate / 1e9 if rate else None,
                peak_share=rate / peak if rate and peak else None,
                rank_correlation=step.rank_correlation,
                elapsed_s=elapsed_s,
                remaining_s=remaining_s,
                is_estimate=is_estimate,
                calls=contest.task.weight,
                limit_s=self.limit_s(contest.task),
                kernel_trials=ledger.trials(item),
                failed=tuple(t.outcome.kind for t in step.trials if isinstance(t.outcome, Failure)),
            )
        )

    def limit_s(self, task: Task) -> float | None:
        """The least time of a call that the peaks allow; None where it is not known."""
        if self.peaks is None or self.target is None:
            return None
        found = limit_of(task.flops, task.moved_bytes, task.dtype, self.target, self.peaks())
        return found.time_s if found else None
