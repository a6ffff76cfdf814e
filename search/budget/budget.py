"""Shares a budget among the kernels of a program: which kernel gets the next batch, and how large.

These are pure functions of what has been recorded and of the machine's peaks, so that a run that is
resumed makes the same choices while these are measured alike.  All kernels get one batch first;
then, as in the order of these, each batch goes where a second of tuning promises to save most of
the program's time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from types import MappingProxyType

from hlotune.search.budget.limits import Limits
from hlotune.search.budget.opening_order import promised
from hlotune.search.budget.promises import YOUNG, is_worthwhile, promise
from hlotune.search.budget.spent import UNKNOWN_TRIAL_S, Item, Spent, trial_s, trials_of

BATCH = 64
"""The largest batch."""
GROWTH = 8
"""A batch is at most this part of what was measured of the kernel before."""
SMALLEST = 8
"""A smaller batch is not worth its fixed costs, except for the last trials of a kernel."""
FIRST = 2
"""The smallest first batch: the candidates that formulas choose are most of the gain, and need no
proposal.
"""
DEFAULTS_SHARE = 0.4
"""Until this share of the seconds is used, defaults are timed ahead of their kernels' turns."""
WHOLE_SHARE = 0.03
"""At most this share of the seconds is put by for timing the whole program at the end."""
FORMS_SHARE = 0.125
"""Time for comparing a form of the program is put by where it takes at most this share of the
seconds."""
CLOSING_SHARE = 0.25
"""Closing a run over a program of long calls takes at most this share of the seconds: its last
rounds are left out where they would take more, unless all that prove something fit into
`PROVING_SHARE`."""
PROVING_SHARE = 0.4
"""A gain that is proven is worth more than further kernels: as much of the seconds may closing take
where the rounds of the whole program that prove something need it."""
ORACLE_SHARE = 0.2
"""The oracle has at most this share of the seconds for the whole program."""


@dataclass(frozen=True, slots=True)
class Choice:
    item: int
    trials: int
    final_s: float = field(default=0.0, compare=False)
    """The seconds of another final, where the kernel had its final before this batch."""


def next_batch(
    items: Sequence[Item],
    spent: Sequence[Spent],
    limits: Limits,
    elapsed_s: float,
    exhausted: frozenset[int] = frozenset(),
    final_s: float = 0.0,
    waiting: int = 0,
    again_s: Mapping[int, float] = MappingProxyType({}),
) -> Choice | None:
    """The batch to measure now, or None when the budget is used up or nothing is worth it.

    Args:
        elapsed_s: seconds since the first batch was chosen; read only where seconds are limited.
        exhausted: kernels whose space has nothing new to offer.
        final_s: what the final of a kernel takes that has had no batch; those of others are not in
            the limits.
        waiting: kernels that are no items yet, and are to get a first batch too.
        again_s: what another final takes of each kernel that is decided: a batch makes it due.
    """
    ready = [k for k in range(len(items)) if k not in exhausted and trials_left(k, spent, limits)]
    begun = {s.item for s in spent}
    fresh = [k for k in ready if k not in begun]
    if fresh:
        chosen = max(fresh, key=lambda k: (_promised(items[k]), -k))
        size = batch_size(chosen, len(fresh) + waiting, spent, limits, elapsed_s, final_s)
        return Choice(chosen, size) if size else None
    if limits.trials is None:
        ready = [k for k in ready if is_worthwhile(k, spent)]
    due_s = {k: again_s.get(k, 0.0) for k in ready}
    for k in sorted(ready, key=lambda k: (-promise(k, items, spent, limits, due_s[k]), k)):
        if size := batch_size(k, 0, spent, limits, elapsed_s, due_s[k]):
            return Choice(k, size, due_s[k])
    return None


def _promised(item: Item) -> float:
    return promised(item.default_s, item.least_s, item.weight, item.size)


def trials_left(item: int, spent: Sequence[Spent], limits: Limits) -> int:
    if limits.trials is None:
        return BATCH
    return max(0, limits.trials - trials_of(item, spent))


def full_batch(item: int, spent: Sequence[Spent], limits: Limits) -> int:
    """The size of a full batch: small while each batch teaches the model much, larger later; none
    goes past the last tenth.

    The last tenth is left to the finisher, which learns from each batch by itself, and gets small
    ones.
    """
    left, last = trials_left(item, spent, limits), finish_trials(limits)
    if left <= last:
        return min(YOUNG, left)
    return min(grown(trials_of(item, spent)), left - last)


def grown(measured: int) -> int:
    """The size of a batch where `measured` trials were made of the kernel before, and nothing
    limits it.
    """
    return min(BATCH, max(YOUNG, measured // GROWTH // YOUNG * YOUNG))


def finish_trials(limits: Limits) -> int:
    """How many trials the last tenth of a kernel has; 0 where that is not worth a batch."""
    tenth = (limits.trials or 0) // 10
    return tenth if tenth >= SMALLEST else 0


def batch_size(
    item: int,
    fresh: int,
    spent: Sequence[Spent],
    limits: Limits,
    elapsed_s: float,
    final_s: float = 0.0,
) -> int:
    """The size of a full batch where there is time for it, else as much as there is time for; 0
    where there is none even for the smallest.

    While `fresh` kernels wait for their first batch, each gets an equal part of the seconds left.
    The final that the batch makes due, of `final_s`, is paid from what the kernel gets.
    """
    size = full_batch(item, spent, limits)
    if limits.seconds is None:
        return size
    left_s = limits.seconds - elapsed_s
    affordable = int((left_s / max(1, fresh) - final_s) / trial_s(item, spent))
    smallest = min(FIRST if fresh else SMALLEST, size)
    if affordable < smallest and fresh > 1:
        # Too many kernels for the seconds: the costliest get the smallest batch, others none.
        affordable = int((left_s - final_s) / trial_s(item, spent))
        size = min(size, smallest)
    return min(size, affordable) if affordable >= smallest else 0


def longest_s(choice: Choice, fresh: int, left_s: float) -> float:
    """Seconds after which a batch measures nothing further.

    Where `fresh` kernels wait for their first batch, each batch leaves the others their parts,
    however long its trials turn out to be.  The smallest batch is short by itself, and has no such
    limit.
    """
    if choice.trials <= FIRST:
        return left_s
    return left_s / max(1, fresh)


def needed_s(kernels: int, passed_s: float, closing_s: float) -> int:
    """A budget in which each kernel has a batch, after preparing for `passed_s`."""
    batches_s = kernels * SMALLEST * UNKNOWN_TRIAL_S
    return ceil(max(passed_s / DEFAULTS_SHARE, passed_s + batches_s + closing_s))


def finishing(item: int, spent: Sequence[Spent], limits: Limits, elapsed_s: float) -> bool:
    """Whether a kernel is in the last tenth of its trials, or the run in that of its seconds."""
    if limits.trials is not None:
        return trials_left(item, spent, limits) <= finish_trials(limits)
    return limits.seconds is not None and elapsed_s >= 0.9 * limits.seconds
