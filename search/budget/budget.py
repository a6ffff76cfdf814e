"""Shares a budget among the kernels of a program: which kernel gets the next batch, and how large.

These are pure functions of what has been recorded and of the machine's peaks, so that a run that is
resumed makes the same choices while these are measured alike.  All kernels get one batch first;
then, as in the order of these, each batch goes where a second of tuning promises to save most of
the program's time.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, isinf
from types import MappingProxyType

from hlotune.search.budget.opening_order import promised

DEFAULT_BUDGET_S = 300.0
"""The budget of a run that is given neither seconds nor trials."""
BATCH = 64
"""The largest batch."""
YOUNG = 16
"""The size of a kernel's first batches: the sooner the model learns, the better the next."""
GROWTH = 8
"""A batch is at most this part of what was measured of the kernel before."""
SMALLEST = 8
"""A smaller batch is not worth its fixed costs, except for the last trials of a kernel."""
FIRST = 2
"""The smallest first batch: the candidates that formulas choose are most of the gain, and need no
proposal.
"""
AHEAD = 64
"""A promise is about so many next trials."""
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
UNKNOWN_TRIAL_S = 0.25
"""Assumed cost of a trial before the first batch: high, so that a short budget is not overdrawn."""
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
class Item:
    """What the budget knows of a kernel: the time of its default, and how often it runs."""

    default_s: float
    weight: float
    known_best_s: float = float("inf")
    """Best time recorded before the run."""
    least_s: float = 0.0
    """What a call takes by the roofline; 0 where nobody knows."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A batch that was measured; `best_s` is the best time of the kernel after it."""

    item: int
    trials: int
    wall_s: float
    best_s: float
    is_search: bool = True
    """Whether the seconds are those of trials; else of a first candidate's whole final."""


@dataclass(frozen=True, slots=True)
class Limits:
    """At most one of the two is None."""

    seconds: float | None = None
    """Seconds for all that a run does, or for its batches alone where a function says so.

    The seconds for which the run waits for another tuner or is suspended do not count.
    """
    trials: int | None = None
    """Trials of each kernel."""


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
    return promised(item.default_s, item.least_s, item.weight)


def trials_of(item: int, spent: Sequence[Spent]) -> int:
    return sum(s.trials for s in spent if s.item == item)


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


def trial_s(item: int, spent: Sequence[Spent]) -> float:
    """The expected seconds of a trial: the mean of the kernel's newest trials, else of all."""
    made = [s for s in spent if s.trials and s.is_search]
    known = newest([s for s in made if s.item == item], AHEAD) or made
    if not known:
        return UNKNOWN_TRIAL_S
    return max(1e-6, sum(s.wall_s for s in known) / sum(s.trials for s in known))


def newest(spent: Sequence[Spent], trials: int) -> list[Spent]:
    """The last batches, as many as it takes to have so many trials."""
    found: list[Spent] = []
    for batch in reversed(spent):
        if trials <= 0:
            break
        found.append(batch)
        trials -= batch.trials
    return found[::-1]


def best_s(item: int, items: Sequence[Item], spent: Sequence[Spent]) -> float:
    """The time of the kernel in the program by now: its default counts, for it may be kept."""
    found = [s.best_s for s in spent if s.item == item]
    return min(items[item].default_s, items[item].known_best_s, *found)


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


def searched(item: int, spent: Sequence[Spent]) -> list[Spent]:
    """The batches of a kernel, without the final of its first candidate."""
    return [s for s in spent if s.item == item and s.is_search]


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


def less(limits: Limits, seconds: float) -> Limits:
    """The limits that are left for batches where so many seconds have passed, or are put by."""
    if limits.seconds is None:
        return limits
    return Limits(seconds=max(0.0, limits.seconds - seconds))


def needed_s(kernels: int, passed_s: float, closing_s: float) -> int:
    """A budget in which each kernel has a batch, after preparing for `passed_s`."""
    batches_s = kernels * SMALLEST * UNKNOWN_TRIAL_S
    return ceil(max(passed_s / DEFAULTS_SHARE, passed_s + batches_s + closing_s))


def finishing(item: int, spent: Sequence[Spent], limits: Limits, elapsed_s: float) -> bool:
    """Whether a kernel is in the last tenth of its trials, or the run in that of its seconds."""
    if limits.trials is not None:
        return trials_left(item, spent, limits) <= finish_trials(limits)
    return limits.seconds is not None and elapsed_s >= 0.9 * limits.seconds


def seconds(budget: str | float) -> float:
    """`"90"`, `"90s"`, `"2m"`, `"1h30m"` or a number, in seconds; ValueError for all else."""
    text = str(budget).strip()
    parts = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m)?(?:([\d.]+)s?)?", text)
    try:
        if not text or parts is None:
            raise ValueError
        total = sum(
            float(p) * unit for p, unit in zip(parts.groups(), (3600, 60, 1), strict=True) if p
        )
        if not 0 < total < float("inf"):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"expected a budget like 90s, 2m or 1h30m, longer than nothing, got {text!r}"
        ) from None
    return total
