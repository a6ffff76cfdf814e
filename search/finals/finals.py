"""The final of each kernel: its champions against the default, timed in turns."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import CONFIDENCE, Comparison, Ratio, ratio, shared, speedup
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.budget.contest import Contest
from hlotune.search.finals.heats import CHAMPIONS, Heat, crowd, heat, with_first
from hlotune.search.tasks import Task
from hlotune.search.tuner import KernelTuner
from hlotune.search.workers import Builder
from hlotune.tuning_logs.finals import Final, Paired
from hlotune.tuning_logs.wrong_defaults import is_wrong

ROUNDS = 4
"""Where all champions failed, the next best take their places, so many times at most."""
PAIRS = 31
"""Pairs of samples.  With so many, the interval of one candidate among three leaves out eight pairs
at either end.
"""
SIMPLER = 1.02
"""A simpler schedule is as good as one that is faster by so much, in the rounds of both."""
MOST_TOGETHER_BYTES = 256 << 20
"""Where a kernel's arguments and results take more bytes, its best champion alone meets the
default, since each champion needs a packed copy of the weights.
"""
FEWEST_PAIRS = 9
"""Pairs of samples where time is short, and there is none for a heat.  From seven pairs on there is
an interval for each of three candidates.
"""

Object = tuple[Candidate, Built | Failure]
Keep = Callable[[Kernel, Schedule, Built], None]
"""Keeps code that was verified as a winner's is."""


def keep_nothing(kernel: Kernel, schedule: Schedule, built: Built) -> None:
    """Keeps no code."""


class Referee(Protocol):
    """The part of a runner that finals need."""

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[Object],
        *,
        pairs: int,
        staying: int | None = None,
    ) -> Comparison:
        """Verifies thoroughly, then times in turns; the simplest schedule comes first.

        With `staying` that many of the first meet the default in any case, and of the others the
        fastest alone, where there is time for few rounds.

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
        return speedup(self.default.samples_s, self.measured.samples_s, confidence)


def final(
    contest: Contest,
    builder: Builder,
    referee: Referee,
    pairs: int,
    standing: Schedule | None = None,
    keep: Keep = keep_nothing,
) -> Final | None:
    """Decides one kernel; None where none of its champions works when looked at closely.

    A champion that fails is recorded as a failure, and is never champion again.  `standing` is the
    schedule that an earlier run decided for.  A winner's code is given to `keep`.  Raises
    ProgramError where the default cannot be timed.
    """
    tuner = contest.tuner
    before = heat(tuner) if pairs > FEWEST_PAIRS else Heat()
    if before.failed:
        tuner.reject(before.failed)
    for _ in range(ROUNDS):
        most = CHAMPIONS if contest.task.bytes <= MOST_TOGETHER_BYTES else 1
        candidates = entrants(tuner, before.order, standing, most)
        objects = list(zip(candidates, builder.build(candidates), strict=True))
        if contenders := survivors(contest, objects, referee, pairs, standing):
            wrong = is_wrong(contest.default_error)
            found = decided(contest.task, contenders, over_wrong=wrong, standing=standing)
            keep_winner(contest.task.kernel, found, contenders, keep)
            return found
    return None


def keep_winner(kernel: Kernel, found: Final, contenders: Sequence[Contender], keep: Keep) -> None:
    """Keeps the code of the schedule that won, so that a program with it need not build it."""
    if found.won:
        code = next(c.built for c in contenders if c.candidate.schedule == found.schedule)
        keep(kernel, found.schedule, code)


def entrants(
    tuner: KernelTuner, order: Sequence[Candidate], standing: Schedule | None, most: int = CHAMPIONS
) -> list[Candidate]:
    """At most `most` champions, the simplest first, behind the standing schedule.

    The standing schedule takes part whatever this run measured: only a champion that is proven
    faster in the same final takes its place.  Without an order, or once all in it have failed,
    champions are the fastest by their trials.  The first candidate is among them.
    """
    best = [c for c in order if not tuner.has_failed(c.schedule)] or crowd(tuner, most)
    if standing is None or tuner.has_failed(standing) or tuner.is_denied(standing):
        return sorted(with_first(tuner, best, most), key=simplicity)
    stands = Candidate(tuner.kernel, standing)
    others = [c for c in best if c.schedule != standing]
    together = with_first(tuner, [stands, *others], most) if most > 1 else [stands, *others[:1]]
    return [stands, *sorted((c for c in together if c.schedule != standing), key=simplicity)]


def simplicity(candidate: Candidate) -> tuple[int, str]:
    return len(candidate.schedule.steps), candidate.schedule.to_json()


def survivors(
    contest: Contest,
    objects: Sequence[Object],
    referee: Referee,
    pairs: int,
    standing: Schedule | None = None,
) -> list[Contender]:
    """The candidates that met the default; where there are too few pairs to test several, the best
    alone.
    """
    met = list(meetings(contest.task.kernel, objects, referee, pairs, standing))
    if failed := [x for x in met if isinstance(x, Trial)]:
        contest.tuner.reject(failed)
    found = [x for x in met if isinstance(x, Contender)]
    if len(found) > 1 and isinf(found[0].ratio(shared(len(found))).high):
        best = max(found, key=lambda c: c.ratio(CONFIDENCE).median)
        return survivors(contest, [(best.candidate, best.built)], referee, pairs)
    return found


def meetings(
    kernel: Kernel,
    objects: Sequence[Object],
    referee: Referee,
    pairs: int,
    standing: Schedule | None = None,
) -> Iterator[Contender | Trial]:
    """The outcome of each candidate: a contender, or a trial that failed; none of one that did not
    meet the default because another one was faster, which the standing schedule does.

    Where none survives being timed together, one may have broken it for all, so each is timed
    alone.
    """
    yield from (Trial(c, found) for c, found in objects if isinstance(found, Failure))
    built = [(c, found) for c, found in objects if isinstance(found, Built)]
    if not built:
        return
    staying = sum(c.schedule == standing for c, _ in built)
    comparison = referee.compare(kernel, built, pairs=pairs, staying=staying)
    outcomes = comparison.candidates
    alone = sum(map(is_broken, outcomes)) > 1 and all(isinstance(x, Failure) for x in outcomes)
    for n, ((candidate, code), outcome) in enumerate(zip(built, outcomes, strict=True)):
        if n in comparison.behind:
            continue
        if alone and is_broken(outcome):
            yield from meetings(kernel, [(candidate, code)], referee, pairs)
        elif isinstance(outcome, Failure):
            yield Trial(candidate, outcome)
        else:
            yield Contender(candidate, code, comparison.default, outcome)


def is_broken(outcome: Measurement | Failure) -> bool:
    """Whether a candidate may have failed because of another that was timed with it."""
    return isinstance(outcome, Failure) and outcome.kind in ("crash", "timeout", "device")


def decided(
    task: Task,
    contenders: Sequence[Contender],
    *,
    over_wrong: bool = False,
    standing: Schedule | None = None,
) -> Final:
    """The winner, or the best candidate where none wins.

    Each candidate is tested with a share of the error that is allowed: whichever is picked, its
    interval holds with `CONFIDENCE` at least.
    """
    won = winner(contenders, over_wrong=over_wrong, standing=standing)
    confidence = shared(len(contenders))
    chosen = won or max(contenders, key=lambda c: c.ratio(confidence).median)
    found = chosen.ratio(confidence)
    return Final(
        schedule=chosen.candidate.schedule,
        numerics=chosen.measured.numerics,
        paired=Paired.of(chosen.default.samples_s, chosen.measured.samples_s, found),
        outcome="tuned" if won else "kept default",
        margin=found.low - 1.0,
        flops=task.flops,
        dtype=task.dtype,
        code=chosen.built.key,
    )


def winner(
    contenders: Sequence[Contender],
    *,
    over_wrong: bool = False,
    standing: Schedule | None = None,
) -> Contender | None:
    """The contender that is to replace the default; None where none is proven faster than it.

    Over a wrong default each contender may win, since all of them are right.  Of those that may win
    the fastest does by the median of their rounds, or a simpler one that comes before it and is
    slower by hardly anything; of those timed alone, that with the largest lower bound.  In place of
    the standing schedule only what is proven faster than that in the same rounds may win, unless it
    may not win any more, as it is not proven faster than the default here.
    """
    confidence = shared(len(contenders))
    best: Contender | None = None
    for contender in contenders:
        bound = contender.ratio(confidence)
        if not bound.is_faster and not over_wrong:
            continue
        if best is not None and contender.default is best.default:
            gain = ratio(best.measured.samples_s, contender.measured.samples_s, confidence)
            stands = best.candidate.schedule == standing
            is_better = gain.is_faster if stands else gain.median > SIMPLER
        else:
            is_better = best is None or bound.low > best.ratio(confidence).low
        best = contender if is_better else best
    return best
