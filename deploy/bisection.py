"""Which of many replacements are to blame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlotune.deploy.replacing import Replacement

SHORTFALL = 0.5
"""A set that gains less than this share of what its records promise is looked into."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Replacements that together gain less than promised, and no smaller set of them does."""

    sites: tuple[str, ...]
    promised_s: float
    gained_s: float


def culprits(
    parts: Sequence[Replacement], is_wrong: Callable[[Sequence[Replacement]], bool]
) -> tuple[Replacement, ...]:
    """A part that is wrong alone, found by halving; all of them where only the whole is."""
    if len(parts) > 1:
        for half in halves(parts):
            if is_wrong(half):
                return culprits(half, is_wrong)
    return tuple(parts)


def shortfalls(
    parts: Sequence[Replacement],
    promised: Callable[[Replacement], float],
    gained: Callable[[Sequence[Replacement]], float | None],
) -> tuple[Shortfall, ...]:
    """The parts that disappoint; `gained` measures seconds, or gives None when time is up."""
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
