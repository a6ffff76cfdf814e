"""The register tile of the first candidate: the one that wastes least.

Of the work of all its copies, the share that is useful, times what the multiply-add units can do
with it: a tile of few accumulators waits for its own results, one of few rows for loads, one that
reads much in a step for the second cache.
"""

from collections.abc import Collection
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.flops import points
from hlotune.schedules.patterns.contraction import SPLIT_LANE, Contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import runs_alone
from hlotune.schedules.spaces.cpu_contraction.first_candidate.window_reuse import (
    loaded_share,
    waits_for_loads,
    written_taps,
)
from hlotune.schedules.spaces.cpu_contraction.vector_axes import neighbours, scatter_cycles
from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.steps.limit_formulas import has_code
from hlotune.schedules.targets.cpu import LINE_BYTES, WAY_BYTES

FEW_LINES = 4
"""That are fetched along with their neighbours."""
MOST_STREAMS = 8
"""That the processor follows at a time."""
UNEVEN_WORTH = 1.06
"""How much longer the busiest thread may work before tasks are cut along another axis: rows lie in
the cache of the core that has written them.  On 56x56x144 a depthwise window whose tasks were cut
along columns took 1.14 times as long as other tiles, and 0.83 with rows at 1.05 times a share."""
LOADED = 2.8
"""How many times as long as a multiply-add a vector takes that it waits for, on cores that take
vectors in two halves: of depthwise convolutions on a Zen 4, whose tiles have from 0.36 to 0.63
loads for each multiply-add, the time is that of these numbers to a few hundredths."""
CHECKED, CHECKED_ROWS = 1.15, 1.5
"""How much longer a tile takes that checks each tap along an axis of which it has one row, as it
was measured there too, and one that checks each of several rows, a guess."""
BODIES = 3
"""That a loop has whose borders are written apart: the first iteration, those inside, the last."""
CROWDED = 2 / 3
"""Share of a set's ways that the rows of one operand may take; the others stream through it."""


def best_tile(
    space: ContractionSpace, vector: str, packed: Collection[str] = ()
) -> NDArray[np.int64]:
    """Positions of the best register tile among those that fit; tensors named lie in panels."""
    tiles = space.tiles[vector].astype(np.int64)
    c = space.contraction
    extents = np.array([a.extent for a in c.parallel])
    column = [a.name for a in c.parallel].index(vector)
    width = (tiles + 1) * np.where(np.arange(len(extents)) == column, space.lanes, 1)
    useful = np.prod(extents / (-(-extents // width) * width), axis=1)
    useful *= _on_padding(c, vector, tiles + 1)
    across = tiles[:, column] + 1
    total = np.prod(tiles + 1, axis=1)
    busy = np.minimum(1, total / space.target.chains)
    ports = sum(_loads(space, x, vector, tiles + 1) for x in c.operands) / total
    full = space.target.rates.busy_ports
    waits = any(waits_for_loads(c, x) for x in c.operands)
    halves = waits and space.target.takes_halves and not c.windows[vector]
    if waits and not halves:
        ports = np.maximum(ports, full)  # what is shared beyond that is no gain
    pressed = 0.5 * space.target.multiply_adds * np.maximum(0, ports - full)
    loads = 1 + 0.03 * ports + pressed
    if halves:
        loads = (1 + LOADED * ports) * _checked(space, vector, tiles + 1)
    # rows along one axis alone keep the loads of a tile near one another
    spread = 1 + 0.02 * (
        (tiles > 0).sum(axis=1)
        - (across > 1)
        + _streams(c, vector, tiles + 1, space.target.rates.most_stride)
    )
    score = useful * busy / loads / spread * (1 - 0.1 / total) / _crowding(space, vector, tiles + 1)
    score /= starved(space, vector, packed, tiles + 1) * _scattered(space, vector, tiles + 1)
    score /= _uneven(space, vector, width)
    best: NDArray[np.int64] = tiles[int(np.argmax(score))]
    return best


def _uneven(space: ContractionSpace, vector: str, width: NDArray[np.int64]) -> NDArray[np.float64]:
    """Work of the busiest thread, as a multiple of an equal share, for tiles of `(n, elements)`.

    Tasks are cut along one axis, rows before vectors, or along two where that is worth it.
    """
    c, threads = space.contraction, space.target.threads
    if runs_alone(c, space.target):
        return np.ones(len(width))
    counts = -(-np.array([a.extent for a in c.parallel]) // width)
    v = [a.name for a in c.parallel].index(vector)
    found = np.full(len(width), np.inf)
    for cut in (*(counts[:, k] for k in range(counts.shape[1]) if k != v), counts[:, v]):
        found = _better(found, -(-cut // threads) * threads / cut)
    every = np.prod(counts, axis=1)
    return _better(found, -(-every // threads) * threads / every)


def _better(uneven: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(other * UNEVEN_WORTH < uneven, other, uneven)


def _checked(space: ContractionSpace, vector: str, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
    """How much longer a tile takes whose borders are too much code to be written out apart."""
    c = space.contraction
    every = np.prod(tiles, axis=1) * prod(r.extent for r in written_taps(c, vector))
    among_rows = every.copy()
    for k, a in enumerate(c.parallel):
        if a.name != vector and c.windows[a.name]:
            bodies = np.where(tiles[:, k] < a.extent, BODIES, 1)
            every = every * bodies
            among_rows = among_rows * np.where(tiles[:, k] > 1, bodies, 1)
    return np.select([has_code(every), has_code(among_rows)], [1.0, CHECKED], CHECKED_ROWS)


def _on_padding(c: Contraction, vector: str, tiles: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of the taps that are not on padding.

    Tiles of one row along a window leave such taps out, and so do those as long as its axis, but
    for those of several phases: these have as many taps as the one that has most.
    """
    share = np.ones(len(tiles))
    phases = {a for numbered in c.phases.values() for a in numbered}
    for k, a in enumerate(c.parallel):
        for x in c.windows[a.name] if a.name != vector else ():
            d = next(d for d, e in enumerate(x.index) if a.name in e.coefficients)
            real, total = points(c.core, x, d, c.compute.tensor(x.tensor).shape[d])
            partly = (tiles[:, k] > 1) & ((tiles[:, k] < a.extent) | (a.name in phases))
            share = np.where(partly, share * real / total, share)
    return share


def _loads(
    space: ContractionSpace, x: Load, vector: str, tiles: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Loads of an operand for one step of a register tile: rows and vectors along which it varies.

    What varies along all axes, as in depthwise convolutions, is loaded for each multiply-add, but
    for what neighbours share of a window.
    """
    c = space.contraction
    varies = np.array([a.name in x.axes for a in c.parallel])
    loads: NDArray[np.float64] = np.where(varies, tiles, 1).prod(axis=1).astype(np.float64)
    if waits_for_loads(c, x):
        loads *= loaded_share(c, x, vector, tiles, space.target.vector_registers)
    return loads


def _streams(
    c: Contraction, vector: str, tiles: NDArray[np.int64], most_stride: int
) -> NDArray[np.bool_]:
    """Whether vectors of an operand come from more places apart than are fetched ahead."""
    found = np.zeros(len(tiles), dtype=np.bool_)
    for x in (x for x in c.operands if 0 < abs(c.stride(x, vector)) <= most_stride):
        for k, a in enumerate(c.parallel):
            far = abs(c.stride(x, a.name)) * c.element_bytes(x) >= LINE_BYTES
            found |= far and a.name != vector and tiles[:, k] > MOST_STREAMS
    return found


def _crowding(
    space: ContractionSpace, vector: str, tiles: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How much rows of a tile that fall into the same sets of the first cache slow it down."""
    c, target = space.contraction, space.target
    ways = target.l1_bytes / WAY_BYTES
    most = np.zeros(len(tiles))
    # along the lanes of a split reduction, vectors of a row walk through memory like broadcasts
    for x in (x for x in c.operands if not c.stride(x, vector) or vector == SPLIT_LANE):
        for k, a in enumerate(c.parallel):
            step = c.stride(x, a.name) * c.element_bytes(x)
            if step and a.name != vector:
                apart = gcd(step, WAY_BYTES)
                most = np.maximum(most, tiles[:, k] * apart / WAY_BYTES)
    return np.where(most > CROWDED * ways, 1.25, 1.0)


def starved(
    space: ContractionSpace, vector: str, packed: Collection[str], tiles: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How much longer a tile waits for vectors from the second cache than it multiplies.

    Vectors that the whole reduction of a tile reads are too many for the first cache, and the next
    tile reads them again.
    """
    c, vector_bytes = space.contraction, space.target.vector_bytes
    steps = prod(a.extent for a in c.reduce)
    across = tiles[:, [a.name for a in c.parallel].index(vector)]
    along = [x for x in c.operands if c.stride(x, vector)]
    apart = sum(x.tensor not in packed and _lies_apart(c, x) for x in along)
    run = across * vector_bytes
    scattered, streamed = apart * (-(-run // LINE_BYTES) * LINE_BYTES), (len(along) - apart) * run
    again = (scattered + streamed) * steps >= space.target.l1_bytes
    lines = sum(_lines(c, x, tiles) for x in c.operands if not c.stride(x, vector))
    cycles = np.prod(tiles, axis=1) / space.target.multiply_adds
    rates = space.target.rates
    waits = scattered / rates.l2_scattered_bytes + (streamed + lines * LINE_BYTES) / rates.l2_bytes
    return np.where(again, np.maximum(1.0, waits / cycles), 1.0)


def _lies_apart(c: Contraction, x: Load) -> bool:
    """Whether what consecutive steps read of an operand lies several lines apart."""
    return c.step_bytes(x, c.reduce[-1:]) >= FEW_LINES * LINE_BYTES


def _lines(c: Contraction, x: Load, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cache lines of an operand that a step of a tile reads and no other step does.

    None where neighbours in the reduction share lines.
    """
    size = c.element_bytes(x)
    found = np.ones(len(tiles), dtype=np.int64)
    if c.step_bytes(x) < LINE_BYTES:
        return 0 * found
    for k, a in enumerate(c.parallel):
        step = abs(c.stride(x, a.name)) * size
        found *= -(-tiles[:, k] * min(step, LINE_BYTES) // LINE_BYTES) if step else 1
    return found


def _scattered(
    space: ContractionSpace, vector: str, tiles: NDArray[np.int64]
) -> NDArray[np.float64]:
    """How much longer a tile takes whose vectors lie across the result."""
    c = space.contraction
    if c.out_stride(vector) == 1:
        return np.ones(len(tiles))
    cycles = prod(a.extent for a in c.reduce) / space.target.multiply_adds
    return (
        1 + scatter_cycles(neighbours(c, vector, tiles), space.lanes, space.target.rates) / cycles
    )
