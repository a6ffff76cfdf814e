"""The whole program with its winners, checked and timed against the default."""

from collections.abc import Sequence
from math import isfinite

from hlotune.deploy.accuracy import Accuracy
from hlotune.deploy.apply import apply
from hlotune.deploy.bench import BenchResult, bench
from hlotune.hlo.program import Program
from hlotune.measure.sharing import Turns
from hlotune.measure.trial import CacheMode, Numerics
from hlotune.schedules.target import Target
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Paired, Whole


def compare_whole(
    program: Program,
    database: Database,
    numerics: Numerics,
    target: Target,
    cache: CacheMode,
    limit_s: float,
    turns: Turns | None = None,
) -> Whole | None:
    """Times both in turns, for `limit_s` at most; None where nothing was replaced.

    Raises WrongResult where the tuned program is wrong; it names the sites and kernels to blame.
    """
    tuned = apply(program, database=database, numerics=numerics, target=target, cache=cache)
    if not tuned.replacements:
        return None
    found = bench(program, tuned, limit_s=limit_s, turns=turns)
    worst = worst_of(found.accuracy)
    return Whole(
        paired=_paired(found),
        error=worst.tuned_error if worst else None,
        default_error=worst.default_error if worst else None,
    )


def worst_of(accuracy: Sequence[Accuracy]) -> Accuracy | None:
    """The result with the largest error, among those where both errors are finite."""
    known = [a for a in accuracy if isfinite(a.tuned_error) and isfinite(a.default_error or 0.0)]
    return max(known, key=lambda a: a.tuned_error, default=None)


def _paired(found: BenchResult) -> Paired | None:
    ratio = found.speedup
    if not isfinite(ratio.high):
        return None
    return Paired(
        default_s=found.default_s,
        tuned_s=found.tuned_s,
        speedup=ratio.median,
        low=ratio.low,
        high=ratio.high,
    )
