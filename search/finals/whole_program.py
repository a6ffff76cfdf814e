"""The whole program with its winners, checked and timed against the default."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from types import MappingProxyType

from hlotune.codegen.runtime.malloc_settings import give_back
from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import applied
from hlotune.deploy.bench import ORACLE_S, BenchResult, Prepared, compared, prepared
from hlotune.deploy.bisection import SHORTFALL
from hlotune.deploy.timer import FEWEST_LONG_PAIRS
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.timing import ONCE_S, SELDOM
from hlotune.measure.trial import CacheMode
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired, Whole

PAIRS = 30
"""The most pairs of samples of default and tuned program."""
HOPED = 0.4
"""The share of the default's time that a program of long calls is expected to take in the end."""
PATIENCE = 6
"""Long calls are expected to take at most so many times as long as is put by for others."""
LEAST_S = 1.0
"""Seconds for them, however late it is: the fewest pairs prove nothing as soon as one is disturbed.
"""


@dataclass
class WholeProgram:
    """Compares the tuned program with the default, as often as it takes; prepares first what does
    not depend on kernels.
    """

    program: Program
    database: Database
    numerics: Numerics
    target: Target
    cache: CacheMode
    turns: Turns = field(default_factory=Turns)
    make_room: Callable[[], None] = lambda: None
    """Is called before both programs are in memory: others free theirs."""
    _ready: Prepared | None = field(default=None, init=False)

    def prepare(self, oracle_limit_s: float = ORACLE_S) -> None:
        """Compiles and calls the default, and asks the oracle, for so many seconds at most.

        This has the machine to itself, since all of it keeps every processor busy.
        """
        with self.turns.alone():
            self._ready = prepared(self.program, oracle_limit_s=oracle_limit_s, target=self.target)

    def wrong_default(self) -> str:
        """What is wrong with the default's results; empty where all agree, or none was compared."""
        judges = self._ready.judges if self._ready else ()
        return "; ".join(text for judge in judges for text in judge.wrong_defaults())

    def due_s(self, building_s: float, timing_s: float, saved_s: float = 0.0) -> float:
        """The seconds that a comparison is expected to take, where building all its kernels takes
        `building_s`.

        They are a warm call and a check of either side, and timing both, for `timing_s` at most.
        Calls of seconds need none to warm up, and are timed in the fewest pairs, those of a default
        that takes many times as long in two; champions so far save `saved_s` of its call.  How much
        is known too late, if nothing is left for the kernels that would save it: so no more than
        `PATIENCE` times `timing_s` is put by for more than two pairs.
        Kernels that slow the program down are looked for in the time that is left then; no time is
        put by for that.
        """
        if self._ready is None:
            return 0.0
        ready = self._ready
        if ready.call_s >= ONCE_S:
            tuned_s = max(0.0, min(HOPED * ready.call_s, ready.call_s - saved_s))
            seldom = ready.call_s >= SELDOM * tuned_s and saved_s > 0
            default_s = (2 if seldom else FEWEST_LONG_PAIRS) * ready.call_s
            pairs_s = default_s + FEWEST_LONG_PAIRS * tuned_s
            least_s = 2 * (ready.call_s + tuned_s)
            checking_s = max(0.0, ready.compile_s - ready.call_s) + len(ready.judges) * tuned_s
            return building_s + checking_s + min(pairs_s, max(least_s, PATIENCE * timing_s))
        calls_s = min(timing_s, 2 * PAIRS * ready.call_s)
        return building_s + ready.compile_s + 10 * ready.call_s + calls_s

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
    ) -> Whole | None:
        """Times default and tuned program in turns; None where nothing was replaced.

        `also` are finals of kernels whose champions are put in though none is proven faster alone.

        It takes `limit_s` at most, or LEAST_S where that is longer.

        Where nothing is prepared, the oracle has `oracle_limit_s`, or `ORACLE_S`.

        Raises WrongResult where the tuned program is wrong; it names the sites to blame.
        """
        self.make_room()
        give_back()
        # Outside of a turn: what vouches for kernels has runners that take turns of their own.
        tuned = applied(
            self.program,
            database=self.database,
            numerics=self.numerics,
            target=self.target,
            cache=self.cache,
            also=also,
        )
        if not tuned.replacements:
            return None
        if self._ready is None:
            self.prepare(ORACLE_S if oracle_limit_s is None else oracle_limit_s)
        assert self._ready is not None
        least_s = max(LEAST_S, limit_s)
        found = compared(self._ready, tuned, pairs=PAIRS, limit_s=least_s, turns=self.turns)
        worst = worst_of(found.accuracy)
        return Whole(
            paired=_paired(found),
            error=worst.tuned_error if worst else None,
            default_error=worst.default_error if worst else None,
            slower=found.slower,
            falls_short=found.gained_s < SHORTFALL * found.promised_s,
        )


def worst_of(accuracy: Sequence[Accuracy]) -> Accuracy | None:
    """The result with the largest error, among those where both errors are finite."""
    known = [a for a in accuracy if isfinite(a.tuned_error) and isfinite(a.default_error or 0.0)]
    return max(known, key=lambda a: a.tuned_error, default=None)


def _paired(found: BenchResult) -> Paired | None:
    if not isfinite(found.speedup.high):
        return None
    return Paired.of(found.default_s, found.tuned_s, found.speedup)
