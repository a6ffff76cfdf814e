"""The table of ATen's operations: one row each, from the files of their families."""

from collections.abc import Mapping

from hlotune.hlo.frontends.pytorch import (
    complex_numbers,
    control_flow,
    elementwise,
    linear_algebra,
    placing,
    pools,
    products,
    recurrent,
    reductions,
    refused,
    resizing,
    shapes,
    sizes,
)
from hlotune.hlo.frontends.pytorch.types import Operation

OPERATIONS: Mapping[str, Operation] = {
    **complex_numbers.ROWS,
    **elementwise.ROWS,
    **linear_algebra.ROWS,
    **placing.ROWS,
    **pools.ROWS,
    **products.ROWS,
    **recurrent.ROWS,
    **reductions.ROWS,
    **refused.ROWS,
    **resizing.ROWS,
    **shapes.ROWS,
    **sizes.ROWS,
}
"""By name without its overload."""
PREFIX = "torch.ops.aten."
HIGHER = "torch.ops.higher_order."
"""Operations that take graphs."""
_PYTHON = "_operator."


def row_of(target: str) -> tuple[Operation | None, bool]:
    """The row of an operation as the graph names it, and whether it changes its first input."""
    if target.startswith(_PYTHON):
        return sizes.OPERATORS.get(target.removeprefix(_PYTHON)), False
    if target.startswith(HIGHER):
        return control_flow.ROWS.get(target.removeprefix(HIGHER)), False
    name = target.removeprefix(PREFIX).partition(".")[0] if target.startswith(PREFIX) else ""
    if name in OPERATIONS:
        return OPERATIONS[name], False
    return OPERATIONS.get(name.removesuffix("_")), name.endswith("_")
