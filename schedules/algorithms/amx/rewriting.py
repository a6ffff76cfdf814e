"""Sums of products by a processor's matrix unit: tiles of rows, of groups, and of lanes.

    sum over g of dot(a[m, g], b[g, n])   for 16 rows m, 16 groups g and 16 lanes n at once

The groups are those of `schedules/algorithms/dot_instructions/rewriting.py`, so that the compute is
the one that `dots` makes; but the unit takes bytes of both operands with their signs, and nothing
has to be taken off again.  A tile of the left operand has a row for each m, in which groups lie
together; one of the right has a row for each group.  The sums of up to eight tiles, less those of
operands, stay in the unit's own registers.
"""

from dataclasses import replace

from hlotune.schedules.algorithms.dot_instructions.rewriting import Grouping, grouping, in_groups
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.patterns.contraction import Contraction, contraction

MATRIX = "matrix"


def matrix(compute: Compute) -> Compute:
    """The algorithm.  Raises ScheduleError for a compute without such a sum."""
    found = grouping(compute, signed=True)
    if found is None:
        raise ScheduleError(
            f"matrix: expected a sum of products of bf16 in f32 or of i8 in i32, over an axis that "
            f"both operands have plain, got\n{compute}\nuse `direct`"
        )
    return in_groups(compute, found)


def matrix_contraction(compute: Compute, group: Grouping) -> Contraction:
    return replace(contraction(in_groups(compute, group)), inner=group.axis.name)
