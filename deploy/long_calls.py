"""Calls of seconds in what is left of a budget: no round begins that has no time, and none is made
that changes no verdict.

Three rounds have an interval (`comparison.FEWEST_LONG`), and where there is time there are four.
Where there is none for four, the call in which the tuned program was checked is the first of its
times: it is at most slower than its others, which takes from its gain.  The default's first call
was made at another time, in a process without memory, and may be slower by anything: it is a sample
only where no other is, and proves nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import jax

from hlotune.hlo.calling.callable import device_of
from hlotune.hlo.mlir.compile_times import compiling
from hlotune.measure.timing.comparison import FEWEST_LONG, fewest_long_pairs
from hlotune.measure.timing.timing import is_seldom

FEWEST_LONG_PAIRS = fewest_long_pairs()
"""More rounds are not made of calls so long that single ones may have no time."""

_ready: Callable[[Any], Any] = jax.block_until_ready

Sides = tuple[tuple[float, ...], tuple[float, ...]]
"""Seconds of the default's calls, and of the tuned program's."""


def rounds_in(
    left_s: Callable[[], float],
    sample: Callable[[int], float],
    made: tuple[float, float] | None,
    expected_s: tuple[float, float],
) -> Sides:
    """Samples of both sides, in four rounds; in three or fewer where these have no time, or once
    the rest changes no verdict.

    Args:
        left_s: the seconds that are left.
        sample: calls side 0, the default, or side 1.
        made: what a call of both took before.  The tuned program's is its first sample, unless
            there is time for four rounds; the default's is one where there is no time for a round.
        expected_s: what a call of either side takes, before any was timed here.
    """
    sides: tuple[list[float], list[float]] = ([], [])
    if made is not None:
        expected_s = made
        if left_s() < _calls_s(made, FEWEST_LONG_PAIRS, FEWEST_LONG_PAIRS):
            sides[1].append(made[1])
    while len(sides[0]) < FEWEST_LONG_PAIRS and not is_decided(*sides):
        rounds = _rounds(sides)
        seldom = [len(rounds) >= 2 and is_seldom(rounds[:2], k) for k in (0, 1)]
        missing = [k for k in (0, 1) if len(sides[k]) == len(rounds)]
        costs_s = [_call_s(sides, expected_s, k) for k in missing if not seldom[k]]
        first_s = sum(costs_s) if made is None and not rounds else 0.0
        if max(left_s(), first_s) < sum(costs_s):
            break
        for k in missing if len(rounds) % 2 == 0 else reversed(missing):
            sides[k].append(min(sides[k][:2]) if seldom[k] else sample(k))
    if made is not None and not sides[0]:
        return made[:1], made[1:]
    return tuple(sides[0]), tuple(sides[1])


def rounds_s(default_s: float, tuned_s: float) -> float:
    """The seconds of the fewest rounds that prove something.

    Where a call of the tuned program is a sample already, they are more than it takes by another:
    what comes before the rounds takes longer than expected at times.
    """
    return _calls_s((default_s, tuned_s), FEWEST_LONG, FEWEST_LONG)


def _calls_s(both_s: tuple[float, float], default: int, tuned: int) -> float:
    """The seconds of so many calls of either side."""
    return (2 if is_far(*both_s) else default) * both_s[0] + tuned * both_s[1]


def is_far(default_s: float, tuned_s: float) -> bool:
    """Whether the default would be called in two rounds alone."""
    return is_seldom([{0: default_s, 1: tuned_s}] * 2, 0)


def is_decided(default_s: Sequence[float], tuned_s: Sequence[float]) -> bool:
    """Whether further rounds are taken to change nothing: times of both sides lie among one
    another, and then the interval of three or four rounds has 1 inside whatever the rest are.
    """
    if not default_s:
        return False
    return min(default_s) <= max(tuned_s) and min(tuned_s) <= max(default_s)


def _rounds(sides: tuple[list[float], list[float]]) -> list[dict[int, float]]:
    return [{0: default_s, 1: tuned_s} for default_s, tuned_s in zip(*sides, strict=False)]


def _call_s(sides: Sequence[Sequence[float]], expected_s: Sequence[float], k: int) -> float:
    """What the next call of a side is expected to take: as long as its last one did."""
    return sides[k][-1] if sides[k] else expected_s[k]


@dataclass
class Watched:
    """A function of a program that notes what its first call takes, and apart from that what XLA
    compiles.
    """

    function: Callable[..., Any]
    platform: str
    first_s: float | None = None
    """None where nothing tells compiling and running apart."""
    compile_s: float = 0.0
    """What XLA compiled in the first call; 0 where it had compiled the function before."""
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
        self.compile_s = spent.seconds
        return found
