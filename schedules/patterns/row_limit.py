"""The least time of a compute without a contraction: bytes that must move, operations at peak.

Both are under-estimated, never over-estimated.  Only arguments and results must move, each once,
as far as some point reads or stores them; what stages hand over may stay in registers.  Of these
bytes a cache level that holds them all from call to call passes none to the next one.
"""

from math import prod

from hlotune.schedules.dtypes import BYTES, is_float
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Affine, operations
from hlotune.schedules.ir.operations import row_of
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties


def least_seconds(compute: Compute, target: CpuTarget, properties: Properties) -> float:
    """Seconds of one warm call on all threads of a target, at least."""
    moved_s = seconds_of_bytes(moved_bytes(compute), target, properties)
    return max(seconds_of_operations(compute, target, properties), moved_s)


def seconds_of_operations(compute: Compute, target: CpuTarget, properties: Properties) -> float:
    """Seconds that the operations of all stages take at least on all threads."""
    clock = properties.clock_hz * target.threads
    arithmetic = sum(s.needed_points * operations_of(s) / _lanes(s, target) for s in compute.stages)
    return arithmetic / (target.rates.vectors_a_multiply_add * target.multiply_adds * clock)


def seconds_of_bytes(moved: int, target: CpuTarget, properties: Properties) -> float:
    """Seconds that it takes at least to move so many bytes, each once, in one warm call."""
    clock = properties.clock_hz * target.threads
    levels = (0, target.threads * target.l1_bytes, target.threads * target.l2_bytes)
    times = [
        max(0, moved - held) / (rate * clock)
        for held, rate in zip(levels, target.rates.most_bytes, strict=True)
    ]
    return max(*times, max(0, moved - target.l3_bytes) / properties.read_bytes_per_s)


def moved_bytes(compute: Compute) -> int:
    """Bytes of arguments and results that some point reads or stores, at least."""
    found: dict[str, int] = {}
    for stage in compute.stages:
        accesses = [(x.tensor, x.index) for x in stage.loads]
        accesses += [(x.tensor, x.index) for x in stage.stores]
        for name, index in accesses:
            tensor = compute.tensor(name)
            if tensor.is_outer:
                reached = min(tensor.elements, _distinct(stage, index)) * BYTES[tensor.dtype]
                found[name] = max(found.get(name, 0), reached)
    return sum(found.values())


def operations_of(stage: Stage) -> float:
    """Simple operations of one point of a stage, at least."""
    merges = 0
    if stage.combine:
        types = [tuple(stage.values[k].dtype for k in group) for group in stage.groups]
        merges = sum(map(stage.combine.operations, types))
    # a multiply-add is one instruction
    own = sum(row_of(x.op).simple_operations for x in operations(stage.values)) + merges
    return own / 2 if all(is_float(v.dtype) for v in stage.values) else own


def _distinct(stage: Stage, index: tuple[Affine, ...]) -> int:
    """Elements that an index map reaches: of one axis in each dimension, at least."""
    extents = stage.extents
    return prod(max((extents.get(a, 1) for a, _ in e.terms), default=1) for e in index)


def _lanes(stage: Stage, target: CpuTarget) -> float:
    """Elements in a vector of the narrowest type that a stage computes with."""
    narrowest = min(BYTES[v.dtype] for v in stage.values)
    return target.vector_bytes / narrowest
