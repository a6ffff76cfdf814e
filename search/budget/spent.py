"""What a budget knows of a kernel, and what a batch of it cost and brought."""

from collections.abc import Sequence
from dataclasses import dataclass

AHEAD = 64
"""A promise is about so many next trials."""

UNKNOWN_TRIAL_S = 0.25
"""Assumed cost of a trial before the first batch: high, so that a short budget is not overdrawn."""


@dataclass(frozen=True, slots=True)
class Item:
    """What the budget knows of a kernel: the time of its default, and how often it runs."""

    default_s: float
    weight: float
    known_best_s: float = float("inf")
    """Best time recorded before the run."""
    least_s: float = 0.0
    """What a call takes by the roofline; 0 where nobody knows."""
    size: int = 0
    """The bytes of its arguments and results."""


@dataclass(frozen=True, slots=True)
class Spent:
    """A batch that was measured; `best_s` is the best time of the kernel after it."""

    item: int
    trials: int
    wall_s: float
    best_s: float
    is_search: bool = True
    """Whether the seconds are those of trials; else of a first candidate's whole final."""


def trials_of(item: int, spent: Sequence[Spent]) -> int:
    return sum(s.trials for s in spent if s.item == item)


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


def searched(item: int, spent: Sequence[Spent]) -> list[Spent]:
    """The batches of a kernel, without the final of its first candidate."""
    return [s for s in spent if s.item == item and s.is_search]
