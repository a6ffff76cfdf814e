"""Two forms of one program in turns: with some kernels of ours more, and without these."""

from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.bench import Prepared, judged
from hlotune.deploy.long_calls import Sides
from hlotune.deploy.timer import Function, Timer
from hlotune.measure.machine.machine_lock import Turns


def between(
    ready: Prepared,
    without: Function,
    tuned: TunedFunction,
    *,
    pairs: int,
    confidence: float,
    limit_s: float,
    turns: Turns,
) -> Sides | None:
    """Seconds of calls of both, sample i of each from one pair; None where the limit has no time
    for as many pairs as prove something with this confidence.

    `tuned` has other kernels of ours than `without`, which the judges have found right.  Both
    are called as a user calls them: none of a side's samples is left out because it is slow.

    Raises WrongResult where the results of `tuned` are wrong; the message names the sites to blame.
    """
    with turns.alone():
        judged(tuned, ready.judges)
    timer = Timer(ready.program, ready.inputs, tuned.target, limit_s, turns)
    return timer.proving(without, tuned, pairs, confidence)
