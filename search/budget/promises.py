"""What a kernel's next batch promises, by what batches of it cost and brought: pure functions."""

from collections.abc import Sequence
from itertools import pairwise
from math import isinf

from hlotune.search.budget.limits import Limits
from hlotune.search.budget.spent import AHEAD, Item, Spent, best_s, newest, searched, trial_s

YOUNG = 16
"""The size of a kernel's first batches: the sooner the model learns, the better the next."""
HOPE = 0.1
"""The share of its time that a kernel is expected to gain in its next `AHEAD` trials while its
search is young, and in the first `YOUNG` where its first candidate alone was measured; after
`AHEAD` trials without a gain it is half of that.
"""
IMPATIENCE = 32
"""After so many trials without a gain others are asked first as if a kernel promised half; whether
it is worth another batch at all is asked by `AHEAD`."""
WINDOW = 3 * AHEAD
"""The gain of a kernel is averaged over so many of its newest trials."""
NO_GAIN = 0.01
"""A kernel that has gained no more than this share of its time since is idle: what a batch finds
beyond that is mostly a faster minute of the machine."""
WORTHWHILE = 0.01
"""A kernel that promises to gain less than this share of its own time gets no more batches."""


def promised_share(item: int, spent: Sequence[Spent], half: int = AHEAD) -> float:
    """The share of the kernel's time that its next `AHEAD` trials are expected to gain.

    It is the mean gain of its newest trials, or what a young search may hope for, whichever is
    more; `half` idle trials halve both.  The gain of the first batch, from the default or a first
    candidate to anything searched, says nothing about the next.
    """
    batches = searched(item, spent)
    recent = newest(batches[1:], WINDOW)
    before = batches[: len(batches) - len(recent)][-1:]
    awake: float = 0.5 ** (idle_trials([s for s in spent if s.item == item]) / half)
    hope = HOPE * awake
    if not recent:
        return hope
    trials = sum(s.trials for s in recent)
    left = 1 - gain(before[0].best_s, recent[-1].best_s)
    slope: float = 1 - left ** min(1.0, AHEAD / trials)
    return max(slope * awake, hope)


def is_worthwhile(item: int, spent: Sequence[Spent]) -> bool:
    """Whether a kernel promises enough for another batch, however much of the budget is left."""
    return promised_share(item, spent) > WORTHWHILE


def idle_trials(batches: Sequence[Spent]) -> int:
    """How many trials of a kernel were made since it gained more than `NO_GAIN`, in one batch or
    little by little.
    """
    idle = 0
    for before, after in reversed(list(pairwise(batches))):
        if gain(before.best_s, batches[-1].best_s) > NO_GAIN:
            break
        idle += after.trials
    return idle


def gain(before_s: float, after_s: float) -> float:
    """The share of the time that was gained; all of it where there was no time before."""
    if isinf(before_s):
        return 0.0 if isinf(after_s) else 1.0
    return 1 - after_s / before_s


def promise(
    item: int,
    items: Sequence[Item],
    spent: Sequence[Spent],
    limits: Limits,
    final_s: float = 0.0,
) -> float:
    """The seconds of one run of the program that the kernel is expected to save by a second of
    tuning; a final that tuning makes due takes `final_s`.

    Where trials are limited, it is by a trial: then no clock decides anything.
    """
    trials, share = AHEAD, promised_share(item, spent, IMPATIENCE)
    if not searched(item, spent):
        trials, share = YOUNG, HOPE
    saved_s = items[item].weight * best_s(item, items, spent) * share
    cost = trial_s(item, spent) if limits.trials is None else 1.0
    return saved_s / (trials * cost + final_s)
