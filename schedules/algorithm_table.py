"""The table of algorithms.  Adding one takes a file of its own and a row here."""

from hlotune.schedules.algorithm import Algorithm
from hlotune.schedules.direct import DIRECT
from hlotune.schedules.dots_space import DOT_INSTRUCTION
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.matrix_space import AMX
from hlotune.schedules.split_space import SPLIT_REDUCTION
from hlotune.schedules.widened_space import WIDENING
from hlotune.schedules.winograd_algorithms import WINOGRAD

ALGORITHMS = {
    a.name: a for a in (AMX, DOT_INSTRUCTION, WIDENING, DIRECT, SPLIT_REDUCTION, *WINOGRAD)
}
"""By name, in the order in which a kernel's space joins their spaces."""


def algorithm_of(name: str) -> Algorithm:
    """The algorithm of a schedule.  Raises ScheduleError for a name that none has."""
    found = ALGORITHMS.get(name) or ALGORITHMS.get(name.partition("(")[0])
    if found is None or found.rewriting(name) is None:
        known = ", ".join(a.shown for a in ALGORITHMS.values())
        raise ScheduleError(f"expected an algorithm of {known}, got {name!r}: no nest to make")
    return found
