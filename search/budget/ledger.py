"""The account of a run: what its batches cost and brought, also before it was interrupted."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hlotune.search.budget.contest import Contest
from hlotune.search.budget.spent import Spent


@dataclass
class Ledger:
    """The batches of a run, in their order."""

    spent: list[Spent] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    """Failures of each batch in `spent`."""

    def take_over(self, contests: Sequence[Contest], first: int) -> None:
        """Takes over what an interrupted run had spent on the contests from number `first` on, in
        its order.
        """
        before = sorted(
            (entry.ended_s, item, entry)
            for item, contest in enumerate(contests[first:], first)
            for entry in contest.tuner.account
        )
        for _, item, e in before:
            self.note(Spent(item, e.trials, e.wall_s, e.best_s), e.failures)

    def note(self, spent: Spent, failures: int) -> None:
        self.spent.append(spent)
        self.failures.append(failures)

    @property
    def wall_s(self) -> float:
        """The seconds of all batches."""
        return sum(s.wall_s for s in self.spent)

    @property
    def begun(self) -> set[int]:
        """The kernels that had a batch."""
        return {s.item for s in self.spent}

    def trials(self, item: int | None = None) -> int:
        """The number of trials of one kernel, or of all."""
        return sum(s.trials for s in self.spent if item in (None, s.item))

    def failed(self, item: int | None = None) -> int:
        pairs = zip(self.spent, self.failures, strict=True)
        return sum(failures for s, failures in pairs if item in (None, s.item))
