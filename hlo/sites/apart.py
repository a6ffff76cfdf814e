"""Values that are read at several places of each result: they are computed once, one kernel before.

Six steps of a stencil that were one kernel would compute each point of the first one thousands of
times.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import prod

from hlotune.hlo.operations import KERNELS_ELEMENTWISE
from hlotune.hlo.sites.fusible import (
    MOVES,
    REDUCTIONS,
    TURNS,
    WINDOWS,
    Fusible,
    terms_written_out,
)
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.kept_values import CHEAP
from hlotune.hlo.to_compute.updates import UPDATES

MOST_REPEATED = 32
"""Operations of an element, counted once for each place that reads it: values of more of them are
not computed anew at each place."""
OF_FUNCTIONS = 8
"""Operations that one function counts for."""
SHIFTS = (MOVES - TURNS) | UPDATES


@dataclass(frozen=True, slots=True)
class Reading:
    """By whom a value is read."""

    readers: frozenset[int]
    """Operations that read it at several places, or at another one than their own."""
    places: float
    """How often each element is read, by neighbouring results."""


def apart(fusible: Fusible, sources: Sequence[set[int]]) -> dict[int, frozenset[int]]:
    """For each operation that is not computed anew, those of its readers that would do so.

    `sources` has for each operation those that it waits for, free ones left out.
    """
    ops, found = fusible.region.graph.ops, dict[int, frozenset[int]]()
    behind = [0] * len(ops)
    for member in sorted(fusible.members):
        name = ops[member].name
        terms = terms_written_out(fusible.region.graph, ops[member])
        if name in REDUCTIONS and not terms:
            own = MOST_REPEATED
        elif terms:
            own = terms
        elif name in KERNELS_ELEMENTWISE:
            own = 1 if name.partition(".")[2] in CHEAP else OF_FUNCTIONS
        else:
            own = 0
        behind[member] = own + sum(behind[s] for s in sources[member])
        reading = _reading(fusible, member)
        if behind[member] and reading.places * behind[member] > MOST_REPEATED:
            found[member] = reading.readers
            behind[member] = 0
    return {member: readers for member, readers in found.items() if readers}


def _reading(fusible: Fusible, member: int) -> Reading:
    """By whom the results of an operation are read, also by way of slices."""
    region = fusible.region
    readers, places, plain = set[int](), 0.0, False
    paths = Counter({(r, False): 1 for r in region.graph.ops[member].results})
    waiting = [(member, value, shifted) for value, shifted in paths]
    while waiting:  # in the order of the operations, so that all paths to a value are known
        _, value, shifted = heappop(waiting)
        times = paths[value, shifted]
        for user in region.users[value]:
            op = region.graph.ops[user]
            if fusible.is_free(user):
                moves = op.name == "stablehlo.slice"
                places += times * moves
                for reached in ((r, shifted or moves) for r in op.results):
                    if reached not in paths:
                        heappush(waiting, (user, *reached))
                    paths[reached] += times
            elif op.name in WINDOWS and not fusible.accumulates(op):
                readers.add(user)
                window = prod(numbers(op, "window_dimensions"))
                places += times * window / prod(numbers(op, "window_strides"))
            elif shifted or op.name in SHIFTS:
                readers.add(user)
                places += times * (not shifted)
            else:
                plain = True
    return Reading(frozenset(readers), places + plain)
