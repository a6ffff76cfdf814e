"""Instructions of processors that multiply and add groups of narrow elements: dots, AMX tiles.

These are facts of instruction sets.  The algorithms that use them are in
`schedules/algorithms/dot_instructions/rewriting.py` and `schedules/algorithms/amx/rewriting.py`.
"""

from dataclasses import dataclass

from hlotune.schedules.targets.cpu import CpuTarget


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """An instruction that multiplies groups of neighbours and adds the products to a wider sum."""

    group: str
    """The type that stands for a whole group, `bf16x2`."""
    width: int
    """The number of elements in a group."""
    total: str
    """The type of the sums."""
    features: dict[int, str]
    """The LLVM feature that a target must have, by the bytes of its vectors."""


DOT_INSTRUCTIONS = {
    "bf16": DotInstruction("bf16x2", 2, "f32", {64: "avx512bf16"}),
    "i8": DotInstruction("i8x4", 4, "i32", {64: "avx512vnni", 32: "avxvnni"}),
}
"""The dot instruction by the element type of its operands."""

AMX_ROWS = AMX_GROUPS = AMX_LANES = 16
"""The largest AMX tile: rows of the left operand, groups of the sum, lanes of the right operand."""
AMX_REGISTERS = 8
"""Tile registers of the unit; each holds one tile."""
AMX_FEATURES = {"bf16x2": "amx-bf16", "i8x4": "amx-int8"}
"""The LLVM feature that a target must have, by the type of the groups."""


def has_matrix_unit(target: CpuTarget, group: str) -> bool:
    """Whether a target multiplies AMX tiles of such groups."""
    return AMX_FEATURES.get(group) in target.features and target.vector_bytes == 4 * AMX_LANES
