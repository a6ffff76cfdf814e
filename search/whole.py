"""The whole program with its winners, checked and timed against the default."""

from math import isfinite

from hlotune.deploy.apply import apply
from hlotune.deploy.bench import bench
from hlotune.hlo.program import Program
from hlotune.measure.trial import Numerics
from hlotune.schedules.target import Target
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Paired


def compare_whole(
    program: Program, database: Database, numerics: Numerics, target: Target, limit_s: float
) -> Paired | None:
    """Times both in turns, for `limit_s` at most; None where that proves nothing.

    Raises WrongResult where the tuned program is wrong; the message names the sites to blame.
    """
    tuned = apply(program, database=database, numerics=numerics, target=target)
    if not tuned.replacements:
        return None
    found = bench(program, tuned, limit_s=limit_s)
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
