"""How the best known time fell in the course of a search, by kernel and of all together."""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.tuning_logs.evidence import KernelEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """The best known time after each trial; `times_s[0]` is the default's."""

    trials: tuple[int, ...]
    after_s: tuple[float, ...]
    times_s: tuple[float, ...]
    limit_s: float | None


def kernel_way(kernel: KernelEvidence) -> Way | None:
    """The way of one call of a kernel, by the search's times; None where its default has none."""
    return _way([kernel], weights=(1.0,))


def program_way(kernels: Sequence[KernelEvidence]) -> Way | None:
    """The way of all kernels whose default was timed: calls times the best known time, added up.

    It is an estimate, as nothing but the comparisons at the end proves a time; a candidate counts
    from the moment it beats the default of the search.
    """
    return _way(kernels, weights=[k.calls for k in kernels])


def _way(kernels: Sequence[KernelEvidence], weights: Sequence[float]) -> Way | None:
    timed = [
        (k, weight, first)
        for k, weight in zip(kernels, weights, strict=True)
        if (first := _search_default_s(k)) is not None
    ]
    points = sorted(
        ((p, n) for n, (k, _, _) in enumerate(timed) for p in k.points if not p.is_default),
        key=lambda found: found[0].number,
    )
    if not points:
        return None
    best = [first for _, _, first in timed]
    total = sum(w * b for (_, w, _), b in zip(timed, best, strict=True))
    trials, after, times = [0], [0.0], [total]
    for count, (point, n) in enumerate(points, 1):
        if point.time_s and point.time_s < best[n]:
            total -= timed[n][1] * (best[n] - point.time_s)
            best[n] = point.time_s
        trials.append(count)
        after.append(max(point.after_s, after[-1]))
        times.append(total)
    limits = [w * k.limit.time_s for k, w, _ in timed if k.limit]
    return Way(
        trials=tuple(trials),
        after_s=tuple(after),
        times_s=tuple(times),
        limit_s=sum(limits) if len(limits) == len(timed) else None,
    )


def _search_default_s(kernel: KernelEvidence) -> float | None:
    """The default's by the clock of the search, with which trials are compared."""
    found = [p.time_s for p in kernel.points if p.is_default and p.time_s]
    return min(found) if found else kernel.default_s
