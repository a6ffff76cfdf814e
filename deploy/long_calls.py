"""Calls of seconds in what is left of a budget: no round begins that has no time, and none is made
that changes no verdict.

The rank sum test takes four rounds of the default and of the tuned program
(`comparison.fewest_long_pairs`).  Where there is no time for four more, the calls in which both
were checked are the first of them.  The default's was made at another time, and may be off by
anything.  A gain is proven all the same: of three fair samples of the default and four of the tuned
program one order in 35 has all of the one above all of the other, so that it is claimed by chance
no more often than that.  The tuned program's first call is at most slower than its others, which
takes from its gain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import jax

from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.mlir.compile_times import compiling
from hlotune.measure.timing.comparison import fewest_long_pairs
from hlotune.measure.timing.timing import is_seldom

FEWEST_LONG_PAIRS = fewest_long_pairs()
"""Below, no interval of long calls has 95 % confidence."""
LOOKED_AT = 2
"""So many rounds are made where there is no time for as many as prove anything: they show whether
the program is far from what its kernels promise.
"""

_ready: Callable[[Any], Any] = jax.block_until_ready

Sides = tuple[tuple[float, ...], tuple[float, ...]]
"""Seconds of the default's calls, and of the tuned program's."""


def rounds_in(
    left_s: Callable[[], float],
    sample: Callable[[int], float],
    made: tuple[float, float] | None,
    expected_s: tuple[float, float],
) -> Sides:
    """Samples of both sides, in as many rounds as prove anything; fewer where these have no time,
    or once the rest cannot prove anything any more.

    Args:
        left_s: the seconds that are left.
        sample: calls side 0, the default, or side 1.
        made: what a call of both took before: the first round, unless there is time for all anew.
        expected_s: what a call of either side takes, before any was timed here.
    """
    sides: tuple[list[float], list[float]] = ([], [])
    if made is not None:
        expected_s = made
        if left_s() < rounds_s(*made, 0):
            sides = [made[0]], [made[1]]
    while len(sides[0]) < FEWEST_LONG_PAIRS and not is_decided(*sides):
        rounds = _rounds(sides)
        seldom = [len(rounds) >= 2 and is_seldom(rounds[:2], k) for k in (0, 1)]
        calls_s = [_call_s(sides, expected_s, k) for k in (0, 1)]
        first_s = 0.0 if sides[0] else sum(calls_s)
        if not _fits(len(rounds), calls_s, seldom, max(left_s(), first_s)):
            break
        for k in (0, 1) if len(rounds) % 2 == 0 else (1, 0):
            sides[k].append(min(sides[k][:2]) if seldom[k] else sample(k))
    return tuple(sides[0]), tuple(sides[1])


def rounds_s(default_s: float, tuned_s: float, made: int) -> float:
    """The seconds of all rounds that prove anything, of which so many are made."""
    default_rounds = 2 if is_far(default_s, tuned_s) else FEWEST_LONG_PAIRS
    left = max(0, default_rounds - made), FEWEST_LONG_PAIRS - made
    return left[0] * default_s + left[1] * tuned_s


def is_far(default_s: float, tuned_s: float) -> bool:
    """Whether the default would be called in two rounds alone."""
    return is_seldom([{0: default_s, 1: tuned_s}] * 2, 0)


def is_decided(default_s: Sequence[float], tuned_s: Sequence[float]) -> bool:
    """Whether further rounds change nothing: once times of both sides lie among one another, the
    interval of four rounds has 1 inside whatever the rest are.
    """
    if not default_s:
        return False
    return min(default_s) <= max(tuned_s) and min(tuned_s) <= max(default_s)


def _rounds(sides: tuple[list[float], list[float]]) -> list[dict[int, float]]:
    return [{0: default_s, 1: tuned_s} for default_s, tuned_s in zip(*sides, strict=True)]


def _call_s(sides: Sequence[Sequence[float]], expected_s: Sequence[float], k: int) -> float:
    """What the next call of a side is expected to take: as long as its last one did."""
    return sides[k][-1] if sides[k] else expected_s[k]


def _fits(made: int, calls_s: Sequence[float], seldom: Sequence[bool], left_s: float) -> bool:
    """Whether all rounds to come fit; or the next one alone, where few are made."""
    calls = [0.0 if s else c for c, s in zip(calls_s, seldom, strict=True)]
    rest_s = (FEWEST_LONG_PAIRS - made) * sum(calls)
    if not any(seldom) and is_far(*calls_s):
        rest_s -= max(0, FEWEST_LONG_PAIRS - max(made, 2)) * calls_s[0]
    return left_s >= (sum(calls) if made < LOOKED_AT else rest_s)


@dataclass
class Watched:
    """A function of a program that notes what its first call takes, without what XLA compiles."""

    function: Callable[..., Any]
    platform: str
    first_s: float | None = None
    """None where nothing tells compiling and running apart."""
    _is_called: bool = field(default=False)

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        if self._is_called:
            return self.function(*arguments, **named)
        self._is_called = True
        with jax.enable_x64(True), jax.default_device(device_of(self.platform)):
            given = _ready(jax.device_put((arguments, named)))
        with compiling() as spent:
            start_s = perf_counter()
            found = _ready(self.function(*given[0], **given[1]))
            took_s = perf_counter() - start_s
        self.first_s = took_s - spent.seconds if spent.seconds else None
        return found
