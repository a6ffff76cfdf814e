"""What all configs of a contraction's space have in common, computed once."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.ir.borders import index_ranges, interior
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.spaces.cpu_contraction.sketch import (
    PACK_LEVELS,
    Sketch,
    digit,
    packs_at_load,
    panelled_dimension,
    prefetched,
    streamed,
)
from hlotune.schedules.targets.cpu import CpuTarget


@dataclass(frozen=True)
class Tables:
    """Looked up by sketch, operand or axis."""

    vector: Ints
    """By sketch: number of the vectorized axis."""
    chunked: NDArray[np.bool_]
    packs: Ints
    """By sketch and operand: position in PACK_LEVELS."""
    at_load: NDArray[np.bool_]
    """By sketch: whether an operand is packed when the program is loaded."""
    prefetched: NDArray[np.bool_]
    """By sketch: whether it has panels to ask for."""
    streamed: NDArray[np.bool_]
    """By sketch and outermost reduce axis: whether it has rows to ask for."""
    blocked: Ints
    """By operand and vectorized axis: dimension of which a pack has blocks, or -1."""
    digits: Ints
    """By operand and vectorized axis: what the blocks must divide, or 0."""
    spans: tuple[Ints, ...]
    """By operand: elements of each dimension that a step along each axis spans, `(axes, dims)`."""
    longest: tuple[Ints, ...]
    """By operand: elements of each dimension."""
    parallel: Ints
    """Extents of the parallel axes."""
    reduce: Ints
    free: Ints
    """By set of packed operands (as bits) and axis: the first and the last position at which none
    of the other operands is read outside its tensor."""


def tables_of(c: Contraction, target: CpuTarget, sketches: tuple[Sketch, ...]) -> Tables:
    names, tensors = [a.name for a in c.parallel], [x.tensor for x in c.operands]
    packs = [[PACK_LEVELS.index(dict(s.packs)[t]) for t in tensors] for s in sketches]
    blocked = [[panelled_dimension(c, t, v) for v in names] for t in tensors]
    digits = [[digit(c, x, v) or 0 for v in names] for x in c.operands]
    free = [[_free(c, target, v, packed) for v in names] for packed in _subsets(tensors)]
    spans, longest = zip(*(_spans(c, x) for x in c.operands), strict=True) if tensors else ((), ())
    return Tables(
        spans=spans,
        longest=longest,
        parallel=np.array([a.extent for a in c.parallel], dtype=np.int64),
        reduce=np.array([a.extent for a in c.reduce], dtype=np.int64),
        vector=np.array([names.index(s.vector) for s in sketches]),
        chunked=np.array([s.chunked for s in sketches]),
        packs=np.array(packs, dtype=np.int64).reshape(len(sketches), len(tensors)),
        at_load=np.array([packs_at_load(s) for s in sketches]),
        prefetched=np.array([bool(prefetched(c, s)) for s in sketches]),
        streamed=np.array([[bool(streamed(c, s, r.name)) for r in c.reduce] for s in sketches]),
        blocked=np.array(blocked, dtype=np.int64).reshape(len(tensors), len(names)),
        digits=np.array(digits, dtype=np.int64).reshape(len(tensors), len(names)),
        free=np.array(free, dtype=np.int64),
    )


def _spans(c: Contraction, x: Load) -> tuple[Ints, Ints]:
    """What a step along each axis spans of each dimension of an operand, and all that is there."""
    ranges = index_ranges(c.core)
    axes = [a.name for a in (*c.parallel, *c.reduce)]
    bounds = [(e.unit, *e.bounds(ranges)) for e in x.index]
    steps = [[abs(e.coefficients.get(a, 0)) // e.unit for e in x.index] for a in axes]
    longest = [(high - low) // unit + 1 for unit, low, high in bounds]
    return np.array(steps, dtype=np.int64).reshape(len(axes), -1), np.array(longest, dtype=np.int64)


def _subsets(tensors: list[str]) -> list[frozenset[str]]:
    """All subsets, in the order of the numbers that have a bit for each member."""
    return [
        frozenset(t for k, t in enumerate(tensors) if bits >> k & 1)
        for bits in range(1 << len(tensors))
    ]


def _free(c: Contraction, target: CpuTarget, axis: str, packed: frozenset[str]) -> tuple[int, int]:
    visible = replace(c.core, values=tuple(x for x in c.core.loads if x.tensor not in packed))
    return interior(c.compute, visible, axis, 1)
