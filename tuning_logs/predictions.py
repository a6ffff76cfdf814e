"""How well a cost model ranked the candidates that it chose, from the scores that were recorded.

The model learns between two batches, and its scores are relative to the best time by then.  So
predictions are held against times within a batch, and batches are put together afterwards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from hlotune.tuning_logs.evidence import KernelEvidence

FEWEST = 4
"""The fewest measured trials of a batch whose order is meaningful."""
Pairs = Sequence[tuple[float, float]]
"""The rank of each trial as predicted and as measured, as shares: 0 is the fastest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The measured trials of one batch of a kernel, FEWEST or more."""

    scores: tuple[float, ...]
    """The predicted score of each trial; a higher one means faster."""
    times_s: tuple[float, ...]

    @property
    def ranks(self) -> Pairs:
        return tuple(zip(shares([-s for s in self.scores]), shares(self.times_s), strict=True))

    @property
    def rank_correlation(self) -> float:
        """Spearman's correlation of predicted and measured speed; 1 means the same order."""
        return rank_correlation(self.ranks)

    @property
    def regret(self) -> float:
        """How much slower the candidate with the best prediction is than the fastest one: 0 where
        they are the same, 1 where it takes twice as long."""
        first = max(zip(self.scores, self.times_s, strict=True))
        return first[1] / min(self.times_s) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How well the model ranked the trials of all batches of a kernel."""

    trials: int
    batches: int
    first: float
    """The rank correlation in the first batch, before the model saw this run's trials of it."""
    rank_correlation: float
    """The mean rank correlation of all batches, weighted by their numbers of trials."""
    regret: float
    """The mean of the batches' regrets."""


def batches_of(kernel: KernelEvidence) -> Iterator[Batch]:
    """The batches with at least FEWEST trials that were predicted and measured, in order."""
    points = sorted(
        (p for p in kernel.points if p.predicted is not None and p.time_s),
        key=lambda p: (p.batch, p.number),
    )
    for _, group in groupby(points, key=lambda p: p.batch):
        found = [(p.predicted, p.time_s) for p in group if p.predicted is not None and p.time_s]
        if len(found) >= FEWEST:
            scores, times_s = zip(*found, strict=True)
            yield Batch(scores=scores, times_s=times_s)


def quality(kernel: KernelEvidence) -> Quality | None:
    """The model's quality on a kernel; None where no batch has enough trials."""
    batches = list(batches_of(kernel))
    if not batches:
        return None
    trials = sum(len(b.scores) for b in batches)
    return Quality(
        trials=trials,
        batches=len(batches),
        first=batches[0].rank_correlation,
        rank_correlation=sum(b.rank_correlation * len(b.scores) for b in batches) / trials,
        regret=sum(b.regret for b in batches) / len(batches),
    )


def shares(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 0 for the least to 1 for the greatest; equal ones share one."""
    order = sorted(values)
    last = max(1, len(order) - 1)
    first = {value: place for place, value in reversed(list(enumerate(order)))}
    counts = {value: order.count(value) for value in first}
    return [(first[value] + (counts[value] - 1) / 2) / last for value in values]


def rank_correlation(pairs: Pairs) -> float:
    """The correlation of pairs of ranks, from -1 to 1; 0 where all ranks of a side are equal."""
    mean_a, mean_b = (sum(x) / len(pairs) for x in zip(*pairs, strict=True))
    together = sum((a - mean_a) * (b - mean_b) for a, b in pairs)
    apart = sum((a - mean_a) ** 2 for a, _ in pairs) * sum((b - mean_b) ** 2 for _, b in pairs)
    return together / apart**0.5 if apart > 0 else 0.0
