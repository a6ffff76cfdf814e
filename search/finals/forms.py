"""Kernels that are not proven faster alone, tried in their program: all together, then by halves.

The default of a kernel is what XLA makes of it alone.  Inside of a program XLA fuses it with its
neighbours, computes it anew for each that reads it, or runs it behind kernels of ours, which have
the processors; there it may take many times as long, or less.  So a program's forms are compared:
with champions that lost alone, and without them, both called as a user calls them, in turns.  Those
are taken with which the program is proven faster.  The form that is most likely to be comes first:
all kernels of the kind that takes most of the time, products for the most part, are ours in it, so
that threads change least between XLA and us.  What won alone by little is left out where the
program is proven faster without it.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hlotune.hlo.sites.sites import Site
from hlotune.measure.timing.comparison import shared
from hlotune.search.result import KernelResult, TuneResult
from hlotune.search.tasks import Covered
from hlotune.tuning_logs.finals import Final

FEW = 12
"""Where no more kernels are undecided, each may be to blame for time that none alone explains."""
FAR_BEHIND = 1.25
"""A champion that alone takes so many times as long as the default is far behind it."""
FAR_BEHIND_UNROLLED = 2.0
"""The same where the default is XLA's of a loop that is unrolled, and not what the program has."""
AT_STAKE = 0.1
"""Forms are compared where the time that may be saved is such a share of the program's."""
PROMISING = 0.05
"""Where nothing is proven faster alone, champions of more than a few kernels are tried together if
they would save so much of the time of all.
"""
CLOSE = 1.25
"""A champion that won is tried in the program where it may be less than so many times as fast."""
MOST_TRIED = 5
"""So many forms of a program are tried at most, behind the likeliest one."""
CONFIDENCE_OF_FIRST = shared(2)
"""The confidence of comparing the form that is most likely to be faster."""


def candidates(
    result: TuneResult, time_s: float | None, *, is_unrolled: bool = False
) -> list[KernelResult]:
    """The kernels left to the default whose champions may make the program faster.

    They are those that are not far behind their defaults.  Where few kernels are undecided, they
    are also those that lose less than what the program takes beside the times of all its kernels
    alone, which one of them may take.

    Args:
        time_s: what the program takes with the champions that won; None where none did.
    """
    lost = [k for k in result.kernels if not k.won and k.best_s is not None]
    spare_s = unexplained_s(result, time_s) if len(lost) <= FEW else 0.0
    return [k for k in lost if _is_near(k, is_unrolled) or _loss_s(k) < spare_s]


def _is_near(kernel: KernelResult, is_unrolled: bool) -> bool:
    return kernel.best_s is not None and is_near(kernel.ratio, is_unrolled=is_unrolled)


def is_near(ratio: float, *, is_unrolled: bool) -> bool:
    """Whether a champion that is `ratio` times as fast as the default is not far behind it."""
    return ratio * (FAR_BEHIND_UNROLLED if is_unrolled else FAR_BEHIND) >= 1


def apart(result: TuneResult, places: Sequence[Site], *, is_unrolled: bool = False) -> TuneResult:
    """The result of kernels that share no operations, as they may stand in one program.

    Where some share them, those that won go first, which save most as `choose` has it; then
    champions that are not far behind, those of the largest groups first.  A kernel weighs as much
    as those of its places that no other takes.

    Args:
        places: all sites of the program; a kernel without any is kept as it is.
    """
    at = defaultdict[str, list[Site]](list)
    for site in places:
        at[site.kernel.key].append(site)

    def turn(kernel: KernelResult) -> tuple[int, float]:
        if kernel.won and kernel.best_s is not None:
            return 0, _loss_s(kernel)
        size = max((len(site.ops) for site in at[kernel.key]), default=0)
        return 1 if _is_near(kernel, is_unrolled) else 2, -size

    covered, weights = Covered(), dict[str, float]()
    for kernel in sorted(result.kernels, key=turn):
        for site in at[kernel.key]:
            if not covered.overlaps(site):
                covered.add(site)
                weights[kernel.key] = weights.get(kernel.key, 0.0) + site.weight
        if not at[kernel.key]:
            weights[kernel.key] = kernel.weight
    kept = (k for k in result.kernels if k.key in weights)
    return replace(result, kernels=tuple(replace(k, weight=weights[k.key]) for k in kept))


def unexplained_s(result: TuneResult, time_s: float | None) -> float:
    """What a program takes beside the times of its kernels alone, each as it is put in."""
    if time_s is None:
        return 0.0
    return max(0.0, time_s - sum(k.weight * k.tuned_s for k in result.kernels))


def _loss_s(kernel: KernelResult) -> float:
    assert kernel.best_s is not None, "a kernel that was compared has a champion"
    return kernel.weight * (kernel.best_s - kernel.default_s)


def is_much(tried: Sequence[KernelResult], result: TuneResult, time_s: float) -> bool:
    """Whether the time that some kernels may take in the program is worth comparing its forms."""
    stake_s = sum(k.weight * k.default_s for k in tried)
    if len([k for k in result.kernels if not k.won]) <= FEW:
        stake_s += unexplained_s(result, time_s)
    return stake_s >= AT_STAKE * time_s


def is_promising(result: TuneResult) -> bool:
    """Whether champions that are not proven faster would save a part of the time of all kernels."""
    gains_s = (k.weight * (k.default_s - k.best_s) for k in result.kernels if k.best_s is not None)
    gained_s = sum(max(0.0, s) for s in gains_s)
    return gained_s > PROMISING * sum(k.weight * k.default_s for k in result.kernels)


def close(result: TuneResult) -> list[KernelResult]:
    """Kernels that won alone by little, without which a program may be faster: where a program is
    made of few kernels, and others won too.
    """
    found = [k for k in result.won if k.ratio_low < CLOSE]
    return found if len(result.kernels) <= FEW and len(found) < len(result.won) else []


def likeliest(
    tried: Sequence[KernelResult], result: TuneResult, places: Sequence[Site]
) -> list[KernelResult]:
    """Those of some kernels that are of the kind that takes most of the time of all; none where
    they take little of it, or no kernel of that kind won.

    Each of XLA and us waits until the other's threads are off the processors: a product of XLA's
    among ours makes its neighbours slower, too.

    Args:
        places: all sites of the program, which say what kind a kernel is of.
    """
    times_s = {k.key: k.weight * k.default_s for k in result.kernels}
    main = of_main_kind(times_s, places)
    found = [k for k in tried if k.key in main]
    stake_s = sum(times_s[k.key] for k in found)
    is_mixed = any(k.key in main for k in result.won)
    return found if is_mixed and stake_s >= AT_STAKE * sum(times_s.values()) else []


def of_main_kind(times_s: Mapping[str, float], places: Sequence[Site]) -> frozenset[str]:
    """The keys of those kernels that are of the kind that takes most of the time of all.

    Args:
        times_s: the seconds of kernels in a call of the program, by their keys.
        places: all sites of the program; kernels without any are of no kind.
    """
    kinds = {site.kernel.key: site.pattern for site in places}
    kind_s = defaultdict[str, float](float)
    for key, time_s in times_s.items():
        if key in kinds:
            kind_s[kinds[key]] += time_s
    main = max(kind_s, key=lambda kind: kind_s[kind], default=None)
    return frozenset(key for key in times_s if key in kinds and kinds[key] == main)


def forms_of(kernels: int, most: int = MOST_TRIED) -> int:
    """How many forms of a program are tried at most, of so many undecided kernels."""
    return max(0, min(most, 2 * kernels - 1))


def confidence_of(*kernels: int, most: int = MOST_TRIED, is_first: bool = True) -> float:
    """The confidence of each comparison of two forms with which all hold together: those of one
    set of kernels after the other, of so many each.

    Where they are not the first, half of the error that is allowed was the first one's
    (`CONFIDENCE_OF_FIRST`).
    """
    return shared((1 if is_first else 2) * max(1, sum(forms_of(n, most) for n in kernels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing a form of a program with another says, which has some kernels more."""

    is_faster: bool
    """Whether the other is proven faster."""
    standing: frozenset[str]
    """The keys of kernels that the other has as it was asked for."""
    is_same: bool = False
    """Whether both are the same, and there was nothing to compare."""


CompareForms = Callable[[Mapping[str, Final], Mapping[str, Final], float], Compared | None]
"""Compares a program, with some confidence, that has the champions of the first argument beside
those that won with one that has those of the second, too; None where there is no time for it."""


def no_forms(base: Mapping[str, Final], more: Mapping[str, Final], confidence: float) -> None:
    """Stands where there is no time to compare forms of a program."""
    return


def taken(
    keys: Sequence[str],
    compare: Callable[[Sequence[str], Sequence[str]], Compared | None],
    most: int = MOST_TRIED,
    failed: Sequence[str] = (),
) -> tuple[str, ...]:
    """Those of some kernels with which a program is proven faster than without them, or the other
    way around.

    All are tried together first.  A part that does not prove faster is tried by halves, beside what
    was taken by then.

    Args:
        compare: the program with its second argument put in beside the first, and with the first
            alone; None where there is no time to tell, which ends it.
        most: so many forms are compared at most.
        failed: those of the keys with which together the program is not faster: they are tried by
            halves, behind the others.
    """
    left = forms_of(len(keys), most)
    others = tuple(key for key in keys if key not in failed)
    found, waiting = tuple[str, ...](), deque([others] if others else [])
    waiting += _halves(tuple(failed))
    while waiting and left:
        part = waiting.popleft()
        verdict = compare(found, part)
        if verdict is None:
            break
        if verdict.is_same:
            continue
        left -= 1
        if verdict.is_faster:
            found = tuple(key for key in (*found, *part) if key in verdict.standing)
        else:
            waiting += _halves(part)
    return found


def _halves(part: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Nothing where there is only one, which has been tried."""
    middle = len(part) // 2
    return [part[:middle], part[middle:]] if middle else []
