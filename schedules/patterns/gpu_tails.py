"""Tails: expressions that a kernel computes from its sums and other tensors, beyond a bias.

Examples are a residual sum, the scale of a norm, the tanh form of the Gaussian unit, and a mask of
scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Axis, Compute, Tensor
from hlotune.schedules.ir.expr import Affine, Expr, distinct_loads
from hlotune.schedules.patterns.gpu_operations import require_known
from hlotune.schedules.patterns.inlined import LEFT_ALONE, PLACES, inlined


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """The expression of a result at one point; two tails are equal only if identical."""

    value: Expr
    sums: str
    """The name of the tensor of sums, which `value` reads at its own point."""
    axes: tuple[Axis, ...]
    """All axes of the result, in row-major order."""
    row_axes: int
    """The number of leading axes that are not columns."""
    tensors: tuple[Tensor, ...]
    """The other tensors that `value` reads."""
    dtype: str
    """The element type of the result."""


def tail_of(compute: Compute, core: str, row_axes: int) -> Tail:
    """The tail that follows the sums of stage `core`: the last stage of a contraction.

    Raises UnsupportedKernel where that stage computes several values for each point, or has types
    or operations that kernels lack.
    """
    stages = inlined(compute)
    if [s.name for s in stages[:-1]] != [core] or len(stages[-1].values) != 1:
        raise UnsupportedKernel(
            f"expected one sum and one value made of it, got {[s.name for s in stages]}: "
            f"{LEFT_ALONE}"
        )
    first, last = stages
    sums = first.stores[0].tensor
    read = {x.tensor for x in distinct_loads(last.values)} - {sums, PLACES}
    tensors = tuple(t for t in compute.arguments if t.name in read)
    result = compute.tensor(last.stores[0].tensor)
    require_known((*tensors, result), last.values)
    if result.dtype == "i1":
        raise UnsupportedKernel(f"expected results that are no truths, got i1: {LEFT_ALONE}")
    _require_in_order(last.stores[0].index, last.parallel)
    return Tail(last.values[0], sums, last.parallel, row_axes, tensors, result.dtype)


def _require_in_order(index: Sequence[Affine], axes: Sequence[Axis]) -> None:
    if tuple(index) != tuple(Affine.axis(a.name) for a in axes):
        raise UnsupportedKernel(
            f"expected results in the order of their axes, got {', '.join(map(str, index))}: "
            f"{LEFT_ALONE}"
        )
