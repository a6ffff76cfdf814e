"""The table of algorithms.  Adding one takes a file of its own and a row here."""

from hlotune.schedules.algorithms.algorithm import Algorithm
from hlotune.schedules.algorithms.amx.space import AMX
from hlotune.schedules.algorithms.attention.space import ATTENTION, ATTENTION_DIVIDED_LAST
from hlotune.schedules.algorithms.blocked_scan.space import BLOCKED_SCAN
from hlotune.schedules.algorithms.blocks import BLOCKS, TF32_BLOCKS
from hlotune.schedules.algorithms.direct import DIRECT
from hlotune.schedules.algorithms.dot_instructions.space import DOT_INSTRUCTION
from hlotune.schedules.algorithms.one_pass.space import ONE_PASS
from hlotune.schedules.algorithms.partial_reductions.space import PARTIAL_REDUCTIONS
from hlotune.schedules.algorithms.split_reduction.space import SPLIT_REDUCTION
from hlotune.schedules.algorithms.widen_f16.space import WIDENING
from hlotune.schedules.algorithms.winograd.algorithms import WINOGRAD
from hlotune.schedules.errors import ScheduleError

ALGORITHMS = {
    a.name: a
    for a in (
        AMX,
        DOT_INSTRUCTION,
        WIDENING,
        DIRECT,
        SPLIT_REDUCTION,
        ONE_PASS,
        PARTIAL_REDUCTIONS,
        ATTENTION_DIVIDED_LAST,
        ATTENTION,
        BLOCKED_SCAN,
        *WINOGRAD,
        BLOCKS,
        TF32_BLOCKS,
    )
}
"""By name, in the order in which a kernel's space joins their spaces."""


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of a schedule.  Raises ScheduleError for a name that none has."""
    found = ALGORITHMS.get(name) or ALGORITHMS.get(name.partition("(")[0])
    if found is None or found.rewriting(name) is None:
        known = ", ".join(a.shown for a in ALGORITHMS.values())
        raise ScheduleError(f"expected an algorithm of {known}, got {name!r}: no nest to make")
    return found
