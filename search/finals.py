"""The last word about each kernel: its champions against the default, timed in turns."""

from collections.abc import Sequence
from typing import Protocol

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.comparison import Comparison, Ratio
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.search.spending import Contest
from hlotune.search.tuner import Builder
from hlotune.tuning_logs.finals import Final, Paired

CHAMPIONS = 3
"""Best candidates that meet the default: by the search's own times they are often equal."""
PAIRS = 31
"""Paired samples; with so many the interval leaves out nine at either end."""
FEWEST_PAIRS = 9
"""When the time is short; from six on there is an interval at all."""


class Referee(Protocol):
    """The part of a runner that finals need."""

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
    ) -> Comparison:
        """Verifies thoroughly, then times in turns; the simplest schedule comes first."""
        ...


def final(contest: Contest, builder: Builder, referee: Referee, pairs: int) -> Final | None:
    """Decides one kernel; None where no schedule of ours worked.

    The simplest champion goes first: a longer one must be proven faster than it to take its place.
    """
    trials = sorted(
        contest.tuner.champions(CHAMPIONS),
        key=lambda t: (len(t.candidate.schedule.steps), t.candidate.schedule.to_json()),
    )
    candidates = [t.candidate for t in trials]
    objects = list(zip(candidates, builder.build(candidates), strict=True))
    if all(isinstance(built, Failure) for _, built in objects):
        return None
    comparison = referee.compare(contest.task.kernel, objects, pairs=pairs)
    return decided(contest, candidates, comparison)


def decided(
    contest: Contest, candidates: Sequence[Candidate], comparison: Comparison
) -> Final | None:
    """What a comparison says: the winner, or the best of those that did not win."""
    timed = {
        n: (m, r)
        for n, (m, r) in enumerate(zip(comparison.candidates, comparison.ratios, strict=True))
        if isinstance(m, Measurement) and r is not None
    }
    if not timed:
        return None
    number = comparison.winner
    if number is None:
        number = max(timed, key=lambda n: timed[n][1].median)
    measured, ratio = timed[number]
    return Final(
        schedule=candidates[number].schedule,
        numerics=measured.numerics,
        paired=paired(comparison.default, measured, ratio),
        outcome="kept default" if comparison.winner is None else "tuned",
        margin=ratio.low - 1.0,
        flops=contest.task.flops,
        dtype=contest.task.dtype,
    )


def paired(default: Measurement, tuned: Measurement, ratio: Ratio) -> Paired:
    return Paired(
        default_s=default.samples_s,
        tuned_s=tuned.samples_s,
        speedup=ratio.median,
        low=ratio.low,
        high=ratio.high,
    )
