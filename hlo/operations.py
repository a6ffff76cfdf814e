"""Tables of operations: which are elementwise, which dialects XLA takes, which meet devices."""

from hlotune.schedules.ir.operations import OPERATIONS

KERNELS_ELEMENTWISE = frozenset(
    name for row in OPERATIONS.values() if row.kernels for name in row.full_names
)
"""Elementwise operations that kernels of ours may have."""
ON_SCALARS = {name for row in OPERATIONS.values() for name in row.full_names} | {
    "stablehlo.constant"
}
"""Operations that mean the same of scalars, one by one, and of whole tensors."""

DIALECTS = ("chlo", "func", "sdy", "stablehlo")
"""Whose operations XLA takes in a program."""
COLLECTIVES = frozenset({
    "stablehlo.all_gather", "stablehlo.all_reduce", "stablehlo.all_to_all",
    "stablehlo.collective_broadcast", "stablehlo.collective_permute",
    "stablehlo.cross-replica-sum", "stablehlo.reduce_scatter",
})  # fmt: skip
"""Operations in which several devices may take part."""
RANDOM = "stablehlo.rng"
"""Its values are drawn anew in each call."""
