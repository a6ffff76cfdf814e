"""The last word about each kernel: its champions against the default, timed in turns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.comparison import CONFIDENCE, Comparison, Ratio, ratio, shared
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.schedule import Schedule
from hlotune.search.spending import Contest
from hlotune.search.tuner import Builder, KernelTuner
from hlotune.tuning_logs.finals import Final, Paired

CHAMPIONS, MOST_CHAMPIONS = 3, 5
"""Best candidates that meet the default: by the search's own times they are often equal."""
CROWD = 64
"""Trials for which there is one more: the more there are, the more look like the best."""
LUCK = 1.1
"""How much faster than it is a schedule may look by the samples of one trial."""
ROUNDS = 4
"""So many times the next best may take the places of champions that all failed."""
PAIRS = 31
"""Paired samples; with so many the interval of one among five leaves out seven at either end."""
FEWEST_PAIRS = 9
"""When the time is short; from eight on there is an interval for each of five at all."""

Object = tuple[Candidate, Built | Failure]


class Referee(Protocol):
    """The part of a runner that finals need."""

    def compare(self, kernel: Kernel, objects: Sequence[Object], *, pairs: int) -> Comparison:
        """Verifies thoroughly, then times in turns; the simplest schedule comes first.

        Raises ProgramError where the default cannot be timed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Contender:
    """A champion that was timed in turns with the default, and with others of equal `default`."""

    candidate: Candidate
    built: Built
    default: Measurement
    measured: Measurement

    def ratio(self, confidence: float) -> Ratio:
        return ratio(self.default.samples_s, self.measured.samples_s, confidence)


def final(
    contest: Contest,
    builder: Builder,
    referee: Referee,
    pairs: int,
    standing: Schedule | None = None,
) -> Final | None:
    """Decides one kernel; None where none of its champions works when looked at closely.

    What fails is recorded as a failure, and is never champion again.  `standing` is what an earlier
    run decided for.  Raises ProgramError where the default cannot be timed.
    """
    for _ in range(ROUNDS):
        candidates = entrants(contest.tuner, standing)
        objects = list(zip(candidates, builder.build(candidates), strict=True))
        if contenders := survivors(contest, objects, referee, pairs):
            return decided(contest, contenders)
    return None


def places(trials: int) -> int:
    """How many champions of a kernel with so many trials there may be."""
    return min(MOST_CHAMPIONS, CHAMPIONS + trials // CROWD)


def entrants(tuner: KernelTuner, standing: Schedule | None) -> list[Candidate]:
    """The best candidates, the simplest first; before them what stands.

    It is there whatever this run measured: only who is proven faster beside it takes its place.
    """
    best = [t.candidate for t in champions(tuner)]
    if standing is None or tuner.has_failed(standing):
        return sorted(best, key=simplicity)
    others = [c for c in best if c.schedule != standing][: places(tuner.usable) - 1]
    return [Candidate(tuner.kernel, standing), *sorted(others, key=simplicity)]


def champions(tuner: KernelTuner) -> list[Trial]:
    """The fastest, among them the first candidate where it is not far behind.

    Of many that are about as fast those with the luckiest samples look best; a formula chose the
    first one before there were any.
    """
    most = places(tuner.usable)
    best = list(tuner.champions(most))
    first = tuner.first_candidate()
    if first is None or first in best or not isinstance(first.outcome, Measurement):
        return best
    if first.outcome.time_s > LUCK * (best[0].time_s or 0.0):
        return best
    return [*best[: most - 1], first]


def simplicity(candidate: Candidate) -> tuple[int, str]:
    return len(candidate.schedule.steps), candidate.schedule.to_json()


def survivors(
    contest: Contest, objects: Sequence[Object], referee: Referee, pairs: int
) -> list[Contender]:
    """Those that can be timed; where there are too few pairs to test several, the best alone."""
    met = list(meetings(contest.task.kernel, objects, referee, pairs))
    if failed := [x for x in met if isinstance(x, Trial)]:
        contest.tuner.reject(failed)
    found = [x for x in met if isinstance(x, Contender)]
    if len(found) > 1 and isinf(found[0].ratio(shared(len(found))).high):
        best = max(found, key=lambda c: c.ratio(CONFIDENCE).median)
        return survivors(contest, [(best.candidate, best.built)], referee, pairs)
    return found


def meetings(
    kernel: Kernel, objects: Sequence[Object], referee: Referee, pairs: int
) -> Iterator[Contender | Trial]:
    """What becomes of each: a contender, or a trial that failed.

    Where nothing survives being timed together, one may have broken it for all: each is timed
    alone.
    """
    yield from (Trial(c, found) for c, found in objects if isinstance(found, Failure))
    built = [(c, found) for c, found in objects if isinstance(found, Built)]
    if not built:
        return
    comparison = referee.compare(kernel, built, pairs=pairs)
    outcomes = comparison.candidates
    alone = sum(map(is_broken, outcomes)) > 1 and all(isinstance(x, Failure) for x in outcomes)
    for (candidate, code), outcome in zip(built, outcomes, strict=True):
        if alone and is_broken(outcome):
            yield from meetings(kernel, [(candidate, code)], referee, pairs)
        elif isinstance(outcome, Failure):
            yield Trial(candidate, outcome)
        else:
            yield Contender(candidate, code, comparison.default, outcome)


def is_broken(outcome: Measurement | Failure) -> bool:
    """Whether a candidate may have failed because of another that was timed with it."""
    return isinstance(outcome, Failure) and outcome.kind in ("crash", "timeout", "device")


def decided(contest: Contest, contenders: Sequence[Contender]) -> Final:
    """The winner, or the best of those that did not win.

    Each is tested with a share of the error that is allowed: whichever is picked, its interval
    holds with `CONFIDENCE` at least.
    """
    won = winner(contenders)
    confidence = shared(len(contenders))
    chosen = won or max(contenders, key=lambda c: c.ratio(confidence).median)
    found = chosen.ratio(confidence)
    return Final(
        schedule=chosen.candidate.schedule,
        numerics=chosen.measured.numerics,
        paired=Paired(
            default_s=chosen.default.samples_s,
            tuned_s=chosen.measured.samples_s,
            speedup=found.median,
            low=found.low,
            high=found.high,
        ),
        outcome="tuned" if won else "kept default",
        margin=found.low - 1.0,
        flops=contest.task.flops,
        dtype=contest.task.dtype,
        code=chosen.built.key,
    )


def winner(contenders: Sequence[Contender]) -> Contender | None:
    """Who is to replace the default; None where nobody is proven faster than it.

    The simplest of those that are.  A later one must be proven faster than it to take its place,
    or have the larger lower bound where each was timed alone.
    """
    confidence = shared(len(contenders))
    best: Contender | None = None
    for contender in contenders:
        bound = contender.ratio(confidence)
        if not bound.is_faster:
            continue
        if best is not None and contender.default is best.default:
            times = best.measured.samples_s, contender.measured.samples_s
            is_better = ratio(*times, confidence).is_faster
        else:
            is_better = best is None or bound.low > best.ratio(confidence).low
        best = contender if is_better else best
    return best
