"""The formulas of limits on registers, code and scratch: of one nest, and of arrays of configs.

`schedules/steps/limits.py` asks them of the loops of one nest, the spaces of arrays of the numbers
that their configs stand for; so each formula takes integers, or integer arrays over configs.
"""

from math import inf
from typing import Any

Count = Any
"""An integer, or an integer array over configs; a formula gives the same kind."""
Bits = Any
"""A truth, or an array of them."""

CODE_STATEMENTS = 1024
"""Statements written out in one function, all bodies together: some 50 ms of LLVM."""
TASK_BYTES = 4 << 20
CALL_BYTES = 256 << 20
MOST_BYTES = {"register": 0, "task": TASK_BYTES, "call": CALL_BYTES, "load": inf}
"""The largest buffer, by its scope; what is packed when a program is loaded is no scratch."""


def tile_registers(rows: Count, across: Count, results: int = 1) -> Count:
    """Vector registers of a register tile: its results, one row of operands and one broadcast."""
    return rows * across * results + across + 1


def vectors_of(elements: Count, lanes: Count) -> Count:
    """Vectors that hold so many elements."""
    return -(-elements // lanes)


def bodies_of(extent: Count, step: Count, size: Count) -> Count:
    """How often a loop whose body has static sizes is written: a ragged end is written apart.

    `size` is what the loop walks at most, of an axis of this extent.
    """
    return 1 + (extent % step != 0) * (size > step)


def whole_blocks(extent: Count, block: Count) -> Count:
    """The elements of a dimension that a layout stores, the last block filled up."""
    return -(-extent // block) * block


def has_code(statements: Count) -> Bits:
    """Whether so many statements may be written out."""
    return statements <= CODE_STATEMENTS
