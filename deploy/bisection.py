"""Which of many replacements are to blame."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hlotune.deploy.replacement import Replacement

SHORTFALL = 0.5
"""A set that gains less than this share of what its records promise is looked into."""
MOST_SEARCHED = 4
"""Culprits that are looked for one by one: each costs as many compilations of the whole program as
the replacements can be halved."""
MOST_S = 30.0
"""So many seconds culprits are looked for, from try to try: one that has begun is not cut off."""

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Replacements that together gain less than promised, and no smaller set of them does."""

    sites: tuple[str, ...]
    promised_s: float
    gained_s: float
    is_slower: bool = False
    """Whether the program is proven faster without their kernels."""


def by_kernel(parts: Iterable[Replacement]) -> list[tuple[Replacement, ...]]:
    """The replacements by the kernel and the text that stands for it.

    Those of all its sites are taken for right or wrong together, though each site has constants and
    inputs of its own.
    """
    found: dict[tuple[str, str], list[Replacement]] = {}
    for part in parts:
        found.setdefault((part.site.kernel.key, part.text), []).append(part)
    return [tuple(sites) for sites in found.values()]


def culprits(
    parts: Sequence[Part],
    is_wrong: Callable[[Sequence[Part]], bool],
    now_s: Callable[[], float] = time.monotonic,
) -> tuple[Part, ...]:
    """Parts of a wrong whole without which the others are right together.

    Each is wrong beside the right ones before it.  Errors that are small alone may add up: then
    only as many are blamed as it takes.  After `MOST_SEARCHED` of them, or `MOST_S` seconds, what
    is not known to be right is blamed too, unless the program is right without the others.

    Returns:
        Nothing where all are to blame and the program is wrong without any of them, too.
    """
    right: list[Part] = []
    blamed: list[Part] = []
    waiting, end_s = list(parts), now_s() + MOST_S
    while waiting and (not blamed or is_wrong([*right, *waiting])):
        if len(blamed) >= MOST_SEARCHED or now_s() > end_s:
            blamed += waiting
            break
        low, high = _wrong_beside(right, waiting, is_wrong, lambda: now_s() > end_s)
        right += waiting[:low]
        blamed += waiting[low:high]
        waiting = waiting[high:]
    return () if len(blamed) == len(parts) and is_wrong([]) else tuple(blamed)


def _wrong_beside(
    right: Sequence[Part],
    waiting: Sequence[Part],
    is_wrong: Callable[[Sequence[Part]], bool],
    is_late: Callable[[], bool],
) -> tuple[int, int]:
    """Which of those that wait is the first that is wrong beside the right ones and all before it:
    its place and the next, or the bounds that halving has come to when it is late.

    All that wait are wrong together beside the right ones, so that there is one.
    """
    low, high = 0, len(waiting)
    while high - low > 1 and not is_late():
        middle = (low + high) // 2
        low, high = (low, middle) if is_wrong([*right, *waiting[:middle]]) else (middle, high)
    return low, high


def shortfalls(
    parts: Sequence[Replacement],
    promised: Callable[[Replacement], float],
    gained: Callable[[Sequence[Replacement]], float | None],
) -> tuple[Shortfall, ...]:
    """The parts that disappoint; `gained` measures seconds, or gives None when time is up."""
    if not parts:
        return ()
    expected_s, gained_s = sum(map(promised, parts)), gained(parts)
    if gained_s is None or gained_s >= SHORTFALL * expected_s:
        return ()
    if len(parts) > 1:
        below = [x for half in halves(parts) for x in shortfalls(half, promised, gained)]
        if below:
            return tuple(below)
    return (Shortfall(tuple(r.site.name for r in parts), expected_s, gained_s),)


def halves(parts: Sequence[Replacement]) -> tuple[Sequence[Replacement], Sequence[Replacement]]:
    return parts[: len(parts) // 2], parts[len(parts) // 2 :]
