"""The whole program with its winners, checked and timed against the default."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from statistics import median
from types import MappingProxyType

from hlotune.codegen.runtime.malloc_settings import give_back
from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import TunedFunction, applied
from hlotune.deploy.bench import Prepared, compared, prepared
from hlotune.deploy.bench_result import BenchResult
from hlotune.deploy.bisection import SHORTFALL
from hlotune.deploy.forms import between
from hlotune.deploy.input_sets import ORACLE_S
from hlotune.deploy.long_calls import is_decided, rounds_s
from hlotune.deploy.timer import FEWEST_PAIRS, pair_s, proving_s
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.graph import Graph
from hlotune.hlo.sites.fusible import INDEX_MAPS, MADE
from hlotune.hlo.sites.scopes import CONTROL_FLOW
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import FEWEST_LONG, ratio
from hlotune.measure.timing.timing import ONCE_S
from hlotune.measure.trial import CacheMode
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.target import Target
from hlotune.search.finals.comparing import ANY, AS_DEFAULT, Expected, Place, Within
from hlotune.search.finals.form_costs import LEAST_S, PAIRS, FormCosts, form_costs
from hlotune.search.finals.forms import Compared
from hlotune.search.finals.interruptible import interruptible
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired, Whole

KEPT_GAIN = 0.9
"""A program of long calls is expected to gain this share of what its champions promise."""
LEAST_LEFT = 0.1
"""XLA takes at least this share of what the default took to compile, however little is left: it
compiles the calls of our kernels, and what moves between them, which `work_of` does not count."""
CHECKING_CALLS = 11
"""Comparing short calls takes the time of so many beside the pairs: three warm up either side, one
checks each of two sets of inputs, and results are read and compared."""
NO_WORK = INDEX_MAPS | MADE | {"stablehlo.iota"}
MOST_FORMS = 2
"""So many forms of the program, which XLA has compiled, are kept for the next comparison."""
MOST_PACKED_BYTES = 64 << 20
"""A form with more packed constants is not kept."""


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
    _forms: dict[tuple[tuple[str, Schedule | None], ...], TunedFunction] = field(
        default_factory=dict, init=False
    )
    """Those that were compared last, by what stands at their sites."""
    _calls_s: dict[tuple[tuple[str, Schedule | None], ...], float] = field(
        default_factory=dict, init=False
    )
    """What a call of a form takes, by the same, of those that were timed."""
    _compiled_s: float | None = field(default=None, init=False)
    """What XLA took to compile the tuned program the last time; None where it did not yet."""
    _compiled_share: float = field(default=1.0, init=False)
    """The share of the program that was left to XLA then, as `_left` has it."""

    def prepare(self, oracle_limit_s: float = ORACLE_S) -> None:
        """Compiles and calls the default, and asks the oracle, for so many seconds at most.

        This has the machine to itself, since all of it keeps every processor busy.
        """

        def alone() -> Prepared:
            with self.turns.alone():  # as long as it goes on, also where Ctrl-C has given it up
                return prepared(self.program, oracle_limit_s=oracle_limit_s, target=self.target)

        self._ready = interruptible(alone)

    def wrong_default(self) -> str:
        """What is wrong with the default's results; empty where all agree, or none was compared."""
        judges = self._ready.judges if self._ready else ()
        return "; ".join(text for judge in judges for text in judge.wrong_defaults())

    @property
    def is_long(self) -> bool:
        """Whether calls of the default take so long that there are few of them."""
        return self._ready is not None and self._ready.call_s >= ONCE_S

    def due_s(
        self, timing_s: float, expected: Expected = AS_DEFAULT, within: Within = ANY
    ) -> float:
        """The seconds that a comparison is expected to take.

        Nothing is put by for building: the code of kernels that won is kept, but where the user's
        cache cannot be written or is not the user's alone (`deploy/kept_code.py`), and there a
        kernel takes a tenth of a second.
        The seconds are what XLA compiles of the tuned program (`compile_s`), a warm call and a
        check of either side, and timing both, for `timing_s` at most, but for as many pairs as
        prove something.  Calls of seconds need none to warm up, and `timing_s` says nothing about
        them: they have the rounds that prove something where all of it takes `within.proving_s` at
        most, else one where that takes `within.usual_s`, else none beside the calls in which both
        are checked.  What these checks take beside the calls comes on top, with rounds or without.
        Kernels that slow the program down are looked for in the time that is left then; no time is
        put by for that.
        """
        if self._ready is None:
            return 0.0
        ready = self._ready
        if not self.is_long:
            one_s = pair_s(ready.call_s)
            calls_s = min(max(LEAST_S, timing_s, FEWEST_PAIRS * one_s), PAIRS * one_s)
            return self.compile_s(expected) + CHECKING_CALLS * ready.call_s + calls_s
        tuned_s = max(0.0, ready.call_s - KEPT_GAIN * expected.saved_s)
        calls_s = self.compile_s(expected) + len(ready.judges) * tuned_s
        all_s = rounds_s(ready.call_s, tuned_s)
        if calls_s + all_s <= within.proving_s:
            return ready.checking_s + calls_s + all_s
        one_s = ready.call_s + tuned_s
        one_s = one_s if calls_s + one_s <= within.usual_s else 0.0
        return ready.checking_s + calls_s + one_s

    def compile_s(self, expected: Expected) -> float:
        """The seconds that XLA is expected to compile a tuned program: its share of the default's
        by the operations that are left to XLA, or of those of the last one that it compiled, as far
        as that is no more than either took.
        """
        assert self._ready is not None
        default_s = max(0.0, self._ready.compile_s - self._ready.call_s)
        if not expected.replaced:
            return default_s
        left = self._left(expected.replaced)
        if self._compiled_s is None:
            return left * default_s
        most_s = max(default_s, self._compiled_s)
        return min(most_s, self._compiled_s * left / self._compiled_share)

    def _left(self, replaced: frozenset[Place]) -> float:
        """The share of the program that XLA compiles beside some kernels of ours."""
        return max(LEAST_LEFT, len(self._work - replaced) / max(1, len(self._work)))

    @cached_property
    def _work(self) -> frozenset[Place]:
        """The operations of the program that take XLA time to compile."""
        return frozenset(work_of(self.program.graph))

    def form_costs(self, confidence: float, expected: Expected = AS_DEFAULT) -> FormCosts:
        """What comparing two forms of the program takes; nothing as long as none is prepared."""
        if self._ready is None:
            return FormCosts()
        call_s = self._ready.call_s
        return form_costs(self.compile_s(expected) + call_s, call_s, confidence)

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        """Times default and tuned program in turns; None where nothing was replaced.

        `also` are finals of kernels whose champions are put in though none is proven faster alone.

        It takes `limit_s` at most, or LEAST_S where that is longer.  Where calls take long, and
        `left_s` says how many seconds are left, no call is made for which there are too few.

        Where nothing is prepared, the oracle has `oracle_limit_s`, or `ORACLE_S`.

        Raises WrongResult where the tuned program is wrong; it names the sites to blame.
        """
        tuned = self._form(also)
        if not tuned.replacements:
            return None
        ready = self.ready_in(oracle_limit_s)
        least_s = max(LEAST_S, limit_s)
        found = interruptible(
            lambda: compared(
                ready, tuned, pairs=PAIRS, limit_s=least_s, turns=self.turns, left_s=left_s
            )
        )
        self._calls_s[_places(tuned)] = median(found.tuned_s)
        if found.compile_s:
            self._compiled_s = found.compile_s
            self._compiled_share = self._left(_replaced(tuned))
        worst = worst_of(found.accuracy)
        return Whole(
            paired=_paired(found),
            error=worst.tuned_error if worst else None,
            default_error=worst.default_error if worst else None,
            slower=found.slower,
            falls_short=found.gained_s < SHORTFALL * found.promised_s,
            unproven=unproven(found.default_s, found.tuned_s, found.checked_s),
        )

    def is_faster(
        self,
        base: Mapping[str, Final],
        more: Mapping[str, Final],
        confidence: float,
        limit_s: float,
        oracle_limit_s: float | None = None,
    ) -> Compared | None:
        """Whether the program is proven faster with the champions of `more` than without them.

        Those that won, and those of `base`, are in both forms.  None where the limit has no time
        for as many calls as prove something; what the calls take is known of the default at least,
        so that none may be made for it.  Raises WrongResult as `compare`.
        """
        asked = {**base, **more}
        without, tuned = self._form(base), self._form(asked)
        standing = _standing(tuned, asked)
        if _places(without) == _places(tuned):
            return Compared(is_faster=False, standing=standing, is_same=True)
        ready, least_s = self.ready_in(oracle_limit_s), max(LEAST_S, limit_s)
        call_s = self._calls_s.get(_places(without))
        # A form that was not called yet is compiled as it warms up.
        compile_s = self.compile_s(AS_DEFAULT) if call_s is None and without.replacements else 0.0
        call_s = ready.call_s if call_s is None else call_s
        if proving_s(call_s, call_s, confidence) > least_s:
            return None
        samples_s = interruptible(
            lambda: between(
                ready,
                without if without.replacements else ready.default,
                tuned,
                pairs=PAIRS,
                confidence=confidence,
                limit_s=least_s + compile_s,
                turns=self.turns,
            )
        )
        if samples_s is None:
            return None
        self._calls_s[_places(tuned)] = median(samples_s[1])
        return Compared(is_faster=ratio(*samples_s, confidence).is_faster, standing=standing)

    def ready_in(self, oracle_limit_s: float | None) -> Prepared:
        """What is prepared, or is now, with so many seconds for the oracle."""
        if self._ready is None:
            self.prepare(ORACLE_S if oracle_limit_s is None else oracle_limit_s)
        assert self._ready is not None
        return self._ready

    def _form(self, also: Mapping[str, Final]) -> TunedFunction:
        """The program with the champions that won and some others, by their kernels' keys; that of
        an earlier comparison where the same stands at all sites.
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
        found = self._forms.pop(_places(tuned), tuned)
        if found.packed_bytes <= MOST_PACKED_BYTES:
            self._forms[_places(tuned)] = found
        while len(self._forms) > MOST_FORMS:
            del self._forms[next(iter(self._forms))]
        return found


def work_of(graph: Graph, path: tuple[int, ...] = ()) -> Iterator[Place]:
    """The operations of a graph and of its regions, but for index maps and what is made from
    nothing: kernels have copies of these, and those that are left in the program are mostly dead.

    Regions are those of loops and branches: what merges the elements of a reduction, a scatter or a
    sort is a part of it, as it is of the kernel that takes its place.
    """
    for n, op in enumerate(graph.ops):
        if op.name not in NO_WORK:
            yield path, n
        for r, region in enumerate(op.regions if op.name in CONTROL_FLOW else ()):
            yield from work_of(region, (*path, n, r))


def _places(tuned: TunedFunction) -> tuple[tuple[str, Schedule | None], ...]:
    """What stands at the sites that are replaced."""
    return tuple((e.site.name, e.schedule) for e in tuned.explain() if e.status == "tuned")


def _replaced(tuned: TunedFunction) -> frozenset[Place]:
    """The operations that are ours."""
    ours = (e.site for e in tuned.explain() if e.status == "tuned")
    return frozenset((site.path, op) for site in ours for op in site.ops)


def _standing(tuned: TunedFunction, asked: Mapping[str, Final]) -> frozenset[str]:
    """The keys of kernels that a form has as it was asked for: ours, or the default's where that
    was to stay.  One that shares operations with others, or cannot be built, may not stand there.
    """
    ours = {e.site.kernel.key for e in tuned.explain() if e.status == "tuned"}
    return frozenset(
        key for key, final in asked.items() if (key in ours) == (final.schedule != DEFAULT)
    )


def worst_of(accuracy: Sequence[Accuracy]) -> Accuracy | None:
    """The result with the largest error, among those where both errors are finite."""
    known = [a for a in accuracy if isfinite(a.tuned_error) and isfinite(a.default_error or 0.0)]
    return max(known, key=lambda a: a.tuned_error, default=None)


def _paired(found: BenchResult) -> Paired | None:
    if not isfinite(found.speedup.high):
        return None
    return Paired.of(found.default_s, found.tuned_s, found.speedup)


def unproven(default_s: Sequence[float], tuned_s: Sequence[float], checked_s: float = 0.0) -> str:
    """What so few rounds of long calls show, and that it proves nothing; "" where there are as many
    as can.  `checked_s` is what came before them.
    """
    if len(default_s) >= FEWEST_LONG:
        return ""
    rounds = "one round" if len(default_s) == 1 else f"{len(default_s)} rounds"
    times = f"default {median(default_s):.2f} s, tuned {median(tuned_s):.2f} s in {rounds}"
    if checked_s >= ONCE_S:
        times += f" behind {checked_s:.0f} s of compiling and checking"
    if is_decided(default_s, tuned_s):
        return f"{times}, in which no side is always faster: no difference is proven"
    return (
        f"{times}, too few to prove a difference, which takes {FEWEST_LONG}: each kernel is "
        "kept by its own comparison; give a larger budget to compare the program"
    )
