"""Loop nests as trees of numbers, for models that read a nest as it stands: arrays of populations.

A tree has a root (the call), one node a loop that iterates, and a leaf for each copy of an operand,
for the sum, and for what is done with the sums.  Loops of one iteration have no node, so that
equal nests are equal trees whatever sketch they were reached through.  `NODE_NAMES` says what
stands in which column; docs/features.md has the meaning and an example of each.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.features.cost_terms import Costs, Work, plain_work
from hlotune.schedules.features.footprint import Floats, Touched
from hlotune.schedules.features.loop_levels import NONE, OPERANDS, Levels
from hlotune.schedules.features.loop_paths import CALL_LEVEL, KINDS, NOT_PACKED, Ints
from hlotune.schedules.features.tails import evenness, open_borders, padding
from hlotune.schedules.steps.limit_formulas import tile_registers

ROOT_PARENT, ABSENT = -1, -2
TYPES = ("root", *KINDS, "pack", "sum", "epilogue")
BUFFERS = (*(f"operand{k}" for k in range(OPERANDS)), "result")

OWN_NAMES = (
    *(f"is_{t}" for t in TYPES),
    "is_reduction", "in_registers", "clipped", "peeled", "prefetch",
    "trips", "runs", "flops", "code", "lanes_used", "footprint",
    "footprint_l1", "footprint_l2", "footprint_l3", "padding",
)  # fmt: skip
BUFFER_NAMES = ("bytes", "reuse", "distance", "stride", "run")
ROOT_COSTS = ("core", "l1", "l2", "l3", "packing", "total")
ROOT_NAMES = (
    "element_bytes", "is_float", "operand_bytes", "vector_bytes", "registers", "threads",
    "register_share", "work", "balance", "even", "open_rows", "open_lanes",
    *(f"cost_{name}" for name in ROOT_COSTS),
)  # fmt: skip
NODE_NAMES = (
    *OWN_NAMES,
    *(f"{b}_{name}" for b in BUFFERS for name in BUFFER_NAMES),
    *ROOT_NAMES,
)  # fmt: skip
COLUMN = {name: k for k, name in enumerate(NODE_NAMES)}


@dataclass(frozen=True)
class Nodes:
    """`n` trees with room for the same nodes; slot 0 is the root, then loops, then leaves."""

    values: NDArray[np.float32]
    """`(n, slots, len(NODE_NAMES))`; zeros where there is no node."""
    parent: NDArray[np.int16]
    """`(n, slots)`: slot of each node's parent; ROOT_PARENT of the root, ABSENT of no node.

    A parent stands in an earlier slot than its children.
    """


def nodes_of(v: Levels, work: Work | None = None) -> Nodes:
    """The trees of `n` nests; all that have the same room for loops have the same slots."""
    return nodes_of_levels(v, Costs(v, work or plain_work(v.c)))


def nodes_of_levels(v: Levels, costs: Costs) -> Nodes:
    """The same, of costs that are known."""
    loops = len(v.axis)
    slots = 1 + loops + OPERANDS + 2
    values = np.zeros((slots, len(NODE_NAMES), v.count), dtype=np.float32)
    parent = np.full((slots, v.count), ABSENT, dtype=np.int16)
    present = v.axis != NONE
    parent[0] = ROOT_PARENT
    parent[1 : 1 + loops] = np.where(present, np.arange(loops).reshape(-1, 1), ABSENT)
    _put_root(v, costs, values[0])
    _put_loops(v, values[1 : 1 + loops])
    values[1 : 1 + loops] *= present[:, None, :]
    for k in range(len(v.operands)):
        made = v.packs[k] >= CALL_LEVEL
        parent[1 + loops + k] = np.where(made, np.maximum(v.packs[k], 0), ABSENT)
        _put_pack(v, k, values[1 + loops + k])
        values[1 + loops + k] *= made
    parent[-2], parent[-1] = v.depth, v.split
    _put_sum(v, values[-2])
    _put_epilogue(v, values[-1])
    return Nodes(np.ascontiguousarray(values.transpose(2, 0, 1)), np.ascontiguousarray(parent.T))


def _put(into: Floats, name: str, values: NDArray[Any] | float) -> None:
    into[..., COLUMN[name], :] = values


def _log(x: Floats | float) -> Floats:
    return np.log2(1 + np.asarray(x, dtype=np.float32))


def _put_root(v: Levels, costs: Costs, into: Floats) -> None:
    rows, vectors = v.tile
    t = v.target
    _put(into, "is_root", 1)
    _put_level(v, into, np.zeros(v.count, dtype=np.int64))
    _put(into, "element_bytes", BYTES[v.c.dtype])
    _put(into, "is_float", is_float(v.c.dtype))
    _put(into, "operand_bytes", min(map(v.c.element_bytes, v.c.operands), default=0))
    _put(into, "vector_bytes", t.vector_bytes)
    _put(into, "registers", t.vector_registers)
    _put(into, "threads", t.threads)
    _put(into, "register_share", tile_registers(rows, vectors) / t.vector_registers)
    parts = costs.parts
    _put(into, "work", _ratio(v.flops / costs.work.flops))
    _put(into, "balance", costs.balance)
    _put(into, "even", evenness(v))
    rows, lanes, _ = open_borders(v)
    _put(into, "open_rows", rows)
    _put(into, "open_lanes", lanes)
    for name in ROOT_COSTS:
        _put(into, f"cost_{name}", _ratio(parts[name]))


def _ratio(x: Floats | np.floating[Any]) -> Floats:
    return np.log2(np.maximum(x, np.float32(2.0**-16)))


def _put_level(v: Levels, into: Floats, level: Ints) -> None:
    """What one execution of a level does, for nodes that are not loops."""
    runs, footprint = v.at(v.runs, level), v.at(v.footprint, level)
    _put(into, "runs", _log(runs))
    _put(into, "flops", _log(v.flops / runs))
    _put_footprint(v, into, footprint)
    for name, x in _buffers(v):
        _put(into, f"{name}_bytes", _log(v.at(x.bytes, level)))
        _put(into, f"{name}_run", _log(v.at(x.run, level)))


def _put_footprint(v: Levels, into: Floats, footprint: Floats) -> None:
    _put(into, "footprint", _log(footprint))
    for name, size in zip(("l1", "l2", "l3"), v.target.caches_bytes, strict=True):
        _put(into, f"footprint_{name}", np.log2(footprint / np.float32(size)))


def _buffers(v: Levels) -> list[tuple[str, Touched]]:
    return [*((f"operand{k}", x) for k, x in enumerate(v.operands)), ("result", v.result)]


def _put_loops(v: Levels, into: Floats) -> None:
    for k, kind in enumerate(KINDS):
        _put(into, f"is_{kind}", v.kind == k)
    levels = np.arange(len(v.axis)).reshape(-1, 1)
    serial = v.kind == KINDS.index("serial")
    bits = np.left_shift(1, np.maximum(v.axis, 0))
    _put(into, "is_reduction", v.axis >= len(v.c.parallel))
    _put(into, "in_registers", levels >= v.held)
    _put(into, "clipped", serial & ((v.path.borders[:, 0] & bits) != 0))
    _put(into, "peeled", serial & ((v.path.borders[:, 1] & bits) != 0))
    _put(into, "prefetch", v.path.prefetch)
    _put(into, "trips", _log(v.runs[1:] / v.runs[:-1]))
    _put(into, "runs", _log(v.runs[:-1]))
    _put(into, "flops", _log(v.flops / v.runs[:-1]))
    _put(into, "code", _log(v.code[:-1]))
    _put(into, "lanes_used", np.where(v.kind == KINDS.index("vectorize"), v.lanes_used, 0))
    _put_footprint(v, into, v.footprint[:-1])
    for k, (name, x) in enumerate(_buffers(v)):
        _put_reuse(v, into, name, x, _strides(v, k))


def _put_reuse(v: Levels, into: Floats, name: str, x: Touched, stride: Floats) -> None:
    """What a loop does with a buffer: how often it comes back to the same bytes, and after what."""
    again = v.runs[1:] / v.runs[:-1] * x.bytes[1:] / x.bytes[:-1]
    _put(into, f"{name}_bytes", _log(x.bytes[:-1]))
    _put(into, f"{name}_reuse", np.log2(np.maximum(again, 1)))
    _put(into, f"{name}_distance", np.where(again > 1.01, _log(v.footprint[1:]), 0))
    _put(into, f"{name}_stride", _log(stride))
    _put(into, f"{name}_run", _log(x.run[:-1]))


def _strides(v: Levels, buffer: int) -> Floats:
    """`(L, n)`: bytes between what neighbouring iterations begin at, in a buffer as it lies."""
    operands, axes = v.operands, (*v.c.parallel, *v.c.reduce)
    if buffer == len(operands):
        elements = [v.c.out_stride(a.name) for a in v.c.parallel] + [0] * len(v.c.reduce)
        size, packed = BYTES[v.c.dtype], np.zeros(v.count, dtype=bool)
        inside = v.result.bytes[1:]
    else:
        x = v.c.operands[buffer]
        elements, size = [v.c.stride(x, a.name) for a in axes], v.c.element_bytes(x)
        packed, inside = v.packs[buffer] != NOT_PACKED, operands[buffer].bytes[1:]
    apart = np.zeros(v.axis.shape, dtype=np.float32)
    for a, stride in enumerate(elements):
        apart += v.along[a] * v.steps[a, 1:] * np.float32(abs(stride) * size)
    return np.where(packed & (apart > 0), inside, apart)


def _put_pack(v: Levels, k: int, into: Floats) -> None:
    x, level = v.operands[k], np.maximum(v.packs[k], 0)
    _put(into, "is_pack", 1)
    _put(into, "padding", np.log2(padding(v)[k]))
    _put(into, "runs", _log(v.at(v.runs, level)))
    _put(into, f"operand{k}_bytes", _log(v.at(x.bytes, level)))
    _put(into, f"operand{k}_run", _log(v.at(x.run, level)))


def _put_sum(v: Levels, into: Floats) -> None:
    _put(into, "is_sum", 1)
    _put_level(v, into, v.depth)


def _put_epilogue(v: Levels, into: Floats) -> None:
    """The last stage, where it stands: inside a register tile, or behind a group's chunks."""
    runs = v.at(v.runs, v.split)
    _put(into, "is_epilogue", 1)
    _put(into, "in_registers", v.path.handed_over)
    _put(into, "runs", _log(runs))
    _put(into, "flops", _log(np.float32(v.c.out.flops) / runs))
    _put(into, "result_bytes", _log(v.at(v.result.bytes, v.split)))
