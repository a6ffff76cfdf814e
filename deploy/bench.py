"""The whole program, default against tuned: first whether it is right, then how fast it is.

The process is as any that runs our kernels: its allocator keeps what is freed
(`codegen/runtime/malloc_settings.py`), for both sides.  Arrays of 256 MiB and more, and those above
64 MiB that threads of XLA's take, cost page faults in every call of both.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hlotune.deploy.accuracy import Accuracy, Judge
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.bench_result import BenchResult, gained_s
from hlotune.deploy.bisection import SHORTFALL, Shortfall, by_kernel, culprits, shortfalls
from hlotune.deploy.checking_costs import checking_s
from hlotune.deploy.input_sets import ORACLE_S, input_sets
from hlotune.deploy.inputs import Inputs
from hlotune.deploy.long_calls import Watched
from hlotune.deploy.replacement import Replacement, assembled
from hlotune.deploy.timer import FEWEST_PAIRS, SAMPLE_S, Function, Timer
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.affinity import has_all
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing.comparison import ratio, shared
from hlotune.measure.timing.timing import ONCE_S
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.targets.cpu import HOST_PLATFORM
from hlotune.schedules.targets.target import F32Operands, Target

BISECTION_PAIRS = 10
NOBODY = (
    "to blame: no site, for it is wrong without our kernels too; leave this program to XLA, and "
    "report it"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Prepared:
    """A program with all that comparing needs of it whatever becomes of its kernels."""

    program: Program
    default: Function
    inputs: Inputs
    """The inputs that both sides are timed on."""
    judges: tuple[Judge, ...]
    compile_s: float
    """What the default's first call took: XLA compiles it then."""
    call_s: float
    """What one call of the default takes."""
    is_sample: bool = False
    """Whether that call was made on the inputs that both sides are timed on, and takes long."""
    checking_s: float = 0.0
    """What checking a tuned program takes beside its calls, where these take long."""

    @property
    def variant_s(self) -> float:
        """What it takes to compile the program with other kernels, to check it, and to time it."""
        return self.compile_s + 3 * BISECTION_PAIRS * max(self.call_s, SAMPLE_S)


def prepared(
    program: Program,
    *,
    oracle_limit_s: float = ORACLE_S,
    seed: int = 0,
    target: Target | None = None,
) -> Prepared:
    """The default, compiled for a target or the host, its inputs, and what the oracle says of them.

    `oracle_limit_s` limits the oracle: what it has not reached by then is held against the default
    alone, and the verdict says so.
    """
    platform = target.platform if target else HOST_PLATFORM
    default = jitted(program, platform=platform)
    found = input_sets(program, default, platform, oracle_limit_s=oracle_limit_s, seed=seed)
    judges = tuple(_judges(program, default, found.sets, oracle_limit_s, _f32_operands(target)))
    return Prepared(
        program=program,
        default=default,
        inputs=found.sets[0],
        judges=judges,
        compile_s=found.compile_s,
        call_s=found.call_s,
        is_sample=found.is_sample,
        checking_s=_checking_s(judges, found.call_s) if found.call_s >= ONCE_S else 0.0,
    )


def _checking_s(judges: Sequence[Judge], call_s: float) -> float:
    """The seconds of checking long calls on all inputs of which the oracle does not tell all."""
    return sum(
        checking_s(judge.program.graph, judge.inputs.values, judge.default, call_s)
        for judge in judges
        if judge.has_gaps
    )


def _judges(
    program: Program,
    default: Function,
    sets: Sequence[Inputs],
    oracle_limit_s: float,
    f32_operands: F32Operands,
) -> Iterator[Judge]:
    """One judge a set of inputs.  The oracle has all of its time for the first, and for each other
    what those before it left, or an equal share where that is more: a loop may run often for some
    inputs and seldom for others.
    """
    share_s = oracle_limit_s / max(1, len(sets))
    left_s = oracle_limit_s
    for inputs in sets:
        start_s = time.perf_counter()
        judge = Judge.of(program, default, inputs, max(left_s, share_s), f32_operands)
        left_s -= time.perf_counter() - start_s
        yield judge


def _f32_operands(target: Target | None) -> F32Operands:
    """What the default rounds f32 operands of products to, whatever numerics kernels have: where
    some are left to the default, a tuned program does so too.
    """
    return target.f32_operands("standard") if target else "f32"


def bench(
    program: Program,
    tuned: TunedFunction,
    *,
    pairs: int = 30,
    limit_s: float = 60.0,
    oracle_limit_s: float = ORACLE_S,
    seed: int = 0,
    turns: Turns | None = None,
) -> BenchResult:
    """Times default and tuned in turns, after both have been held against the oracle.

    `limit_s` limits the timing, `oracle_limit_s` the oracle, as in `prepared`.  Waiting for another
    tuner, which `turns` adds up, is not in the limit.

    Raises:
        TargetError: the system does not let a process choose its processors.
        WrongResult: the tuned program is wrong; the message names the sites to blame.
    """
    turns = turns or Turns()
    with turns.alone():
        ready = prepared(program, oracle_limit_s=oracle_limit_s, seed=seed, target=tuned.target)
    return compared(ready, tuned, pairs=pairs, limit_s=limit_s, turns=turns)


def compared(
    ready: Prepared,
    tuned: TunedFunction,
    *,
    pairs: int = 30,
    limit_s: float = 60.0,
    turns: Turns | None = None,
    left_s: Callable[[], float] | None = None,
) -> BenchResult:
    """Does what `bench` does, with a program that is prepared.

    Where the kernels are built for fewer threads than there are processors, both sides run on so
    many processors.  Where calls take long, and `left_s` says how many seconds are left, no call
    is made for which there are too few; then there may be too few to prove anything.
    """
    program, turns = ready.program, turns or Turns()
    watched, start_s = Watched(tuned, tuned.target.platform), time.perf_counter()
    with turns.alone():
        accuracy = judged(tuned, ready.judges, watched)
        checked_s = time.perf_counter() - start_s
    timer = Timer(program, ready.inputs, tuned.target, limit_s, turns)
    is_long = ready.call_s >= ONCE_S  # both were called as the results were compared
    if is_long and left_s is not None:
        calls, default_s, tuned_s = _in_time(ready, tuned, timer, pairs, watched.first_s, left_s)
    else:
        calls, default_s, tuned_s = timer.paired(ready.default, tuned, pairs, is_warm=is_long)
    result = BenchResult(
        program=program.name,
        default_s=default_s,
        tuned_s=tuned_s,
        calls_per_sample=calls,
        accuracy=accuracy,
        drawn_arguments=ready.inputs.drawn,
        notes=program.remarks,
        kernels=tuned.explain(),
        packed_bytes=tuned.packed_bytes,
        compile_s=watched.compile_s,
        checked_s=checked_s,
    )
    if result.gained_s >= SHORTFALL * result.promised_s:
        return result
    found = _shortfalls(result, tuned, ready, timer)
    suspects = [s for s in found if s.gained_s < 0 and _without(s, tuned)]
    confidence = shared(max(1, len(suspects)))
    slower = {s for s in suspects if _is_slower(s, confidence, tuned, ready, timer)}
    return replace(result, shortfalls=tuple(replace(s, is_slower=s in slower) for s in found))


def _in_time(
    ready: Prepared,
    tuned: TunedFunction,
    timer: Timer,
    pairs: int,
    first_s: float | None,
    left_s: Callable[[], float],
) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """Calls a sample, and samples of both, where calls take long and time is limited.

    Where there is time for so many rounds that single ones may disagree, there are as many as fit.
    """
    expected_s = ready.call_s, first_s or ready.call_s
    rounds = int(left_s() / sum(expected_s))
    if rounds >= FEWEST_PAIRS:
        return timer.paired(ready.default, tuned, min(pairs, rounds), is_warm=True)
    is_sample = ready.is_sample and has_all(tuned.target.host_threads)
    made = expected_s if is_sample and first_s else None
    return 1, *timer.rounds((ready.default, tuned), left_s, made, expected_s)


def checked_whole(
    tuned: TunedFunction, *, oracle_limit_s: float = ORACLE_S, seed: int = 0
) -> tuple[Accuracy, ...]:
    """The errors of a tuned program on the inputs of `input_sets`.

    Raises:
        WrongResult: a tuned result is wrong; the message names the sites to blame.
    """
    program, platform = tuned.program, tuned.target.platform
    default = jitted(program, platform=platform)
    found = input_sets(program, default, platform, oracle_limit_s=oracle_limit_s, seed=seed)
    return checked(program, tuned, default, found.sets, oracle_limit_s)


def checked(
    program: Program,
    tuned: TunedFunction,
    default: Function,
    sets: Sequence[Inputs],
    oracle_limit_s: float = ORACLE_S,
) -> tuple[Accuracy, ...]:
    """The errors of all results on all input sets, which share the oracle's time.

    Raises:
        WrongResult: a tuned result is wrong; the message names the sites to blame.
    """
    rounded = _f32_operands(tuned.target)
    return judged(tuned, _judges(program, default, sets, oracle_limit_s, rounded))


def judged(
    tuned: TunedFunction, judges: Iterable[Judge], function: Function | None = None
) -> tuple[Accuracy, ...]:
    """What one judge after the other says; raises WrongResult as `checked` does.

    `function` is called in place of the tuned program, and does what that does.
    """
    found: list[Accuracy] = []
    for judge in judges:
        verdicts = judge.judge(function or tuned, tuned.numerics)
        wrong = next((v for v in verdicts if v.wrong), None)
        if wrong:
            raise _wrong_result(judge, tuned, wrong)
        found += verdicts
    return tuple(found)


def _wrong_result(judge: Judge, tuned: TunedFunction, verdict: Accuracy) -> WrongResult:
    def is_wrong(part: Sequence[Sequence[Replacement]]) -> bool:
        function = assembled(judge.program, [r for sites in part for r in sites], tuned.target)
        return any(v.wrong for v in judge.judge(function, tuned.numerics))

    found = culprits(by_kernel(tuned.replacements), is_wrong)
    blamed = [r for sites in found for r in sites]
    names = tuple(f"{r.site.name} ({r.site.label})" for r in blamed)
    return WrongResult(
        f"expected result {verdict.result} of {judge.program.name} on {verdict.inputs} inputs as "
        f"the oracle has it, got {verdict.wrong}; "
        + (f"to blame: {', '.join(names)}; tune these kernels again" if blamed else NOBODY),
        kernels=tuple(dict.fromkeys(r.site.kernel.key for r in blamed)),
        sites=names,
    )


def _shortfalls(
    result: BenchResult, tuned: TunedFunction, ready: Prepared, timer: Timer
) -> tuple[Shortfall, ...]:
    """The replacements behind a disappointing whole, as far as the time limit allows.

    It leaves time to look into one of them, and then for the program without it.
    """
    promised = {e.site: e.promised_s for e in tuned.explain()}

    def gained(part: Sequence[Replacement]) -> float | None:
        if len(part) == len(tuned.replacements):
            return result.gained_s
        if timer.left_s < 3 * ready.variant_s:
            return None
        function = assembled(tuned.program, part, tuned.target)
        _, default_s, tuned_s = timer.paired(ready.default, function, BISECTION_PAIRS)
        return gained_s(default_s, tuned_s)

    return shortfalls(tuned.replacements, lambda r: promised.get(r.site, 0.0), gained)


def _without(found: Shortfall, tuned: TunedFunction) -> list[Replacement]:
    """All replacements but those of the one kernel that falls short.

    None where it is several, which time did not tell apart: there are winners among these.  Where
    all kernels fall short together, the comparison of the whole has said it.
    """
    keys = {r.site.kernel.key for r in tuned.replacements if r.site.name in found.sites}
    return [r for r in tuned.replacements if r.site.kernel.key not in keys] * (len(keys) == 1)


def _is_slower(
    found: Shortfall, confidence: float, tuned: TunedFunction, ready: Prepared, timer: Timer
) -> bool:
    """Whether the program is proven faster without the kernel of a shortfall.

    Alone among kernels of XLA's it may wake threads in vain: so it is with all others in place, and
    by new samples.
    """
    if timer.left_s < 2 * ready.variant_s:
        return False
    without = assembled(tuned.program, _without(found, tuned), tuned.target)
    _, without_s, with_s = timer.paired(without, tuned, BISECTION_PAIRS)
    return ratio(without_s, with_s, confidence).high < 1
