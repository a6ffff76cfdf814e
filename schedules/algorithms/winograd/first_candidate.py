"""The first candidate of a Winograd algorithm: a formula of extents and target.

A block has as many tiles as the second cache holds with their products, so that weights are read
from afar seldom, and blocks are equal shares for the threads.  Where there are too few tiles for
that, or weights are so many that reading them is what takes time, threads share the features: they
transform the inputs together, for each would need all of them.
"""

from math import ceil, log2, prod

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.winograd.rewriting import WEIGHTS
from hlotune.schedules.algorithms.winograd.sketch import WinogradSketch
from hlotune.schedules.algorithms.winograd.view import WinogradView
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import runs_alone

CACHED_SHARE = 0.8
"""The share of L2 for what a block works on."""
FEWEST_ROWS = 4
"""Tiles of a block below which threads share features instead."""
LOADS = 2
"""That a core begins in a cycle: what a register tile needs more of, it waits for."""
SPREAD = 1
"""A sixth of the time where points lie at powers of two, and little elsewhere."""
WEIGHTS_SHARE = 0.25
"""The share of L2 for weights that a task computes at once."""
MOST_RUNS = 2
"""Transforms of all weights by each thread, in half the digits and in its own caches, that take as
long as one by all threads together, whose results cross from cache to cache."""
STEPS = 2
"""Steps of the reduction that are written out: half the branches, and requests in pairs."""


def heuristic_config(space: WinogradView) -> NDArray[np.int32]:
    """The first candidate; where it passes a limit, smaller blocks and tiles."""
    _, tiles, features = space.sizes
    vectors, threads = ceil(features / space.lanes), _threads(space)
    by_tiles = _shares_tiles(space, threads)
    block = _block(space, threads) if by_tiles else tiles
    while True:
        rows, across = _register_tile(space, block)
        panels = ceil(vectors / across)
        group = panels if by_tiles else ceil(panels / threads)
        fetch, depth = _fetch(space, across), _weights_depth(space, across)
        config = _config(space, (block, rows, across, group, STEPS, fetch, depth, SPREAD))
        when = _when(space, ceil(tiles / block) / threads if by_tiles else 1)
        apart = threads > 1 and not by_tiles
        config[0] = space.sketches.index(WinogradSketch(space.outputs, when, apart))
        if space.legal(config[None])[0] or block == 1:
            return config
        block = ceil(block / 2)


def _when(space: WinogradView, runs: float) -> str:
    """Where weights are transformed; `runs` is how often a thread would transform all that it uses.

    Results that pass the last cache are worth transforming anew each time: what a call writes to
    so much scratch goes to memory, and to pages that are new to each call.
    """
    whens = [s.when for s in space.sketches]
    passes = space.compute.tensor(WEIGHTS).bytes > space.target.l3_bytes // 2
    return "task" if "task" in whens and (runs <= MOST_RUNS or passes) else whens[0]


def _weights_depth(space: WinogradView, across: int) -> int:
    """Unrolled steps of the reduction whose weights are computed at once."""
    outer = prod(a.extent for a in space.contraction.reduce[:-1])
    lanes_bytes = space.lanes * BYTES[space.contraction.dtype]
    step_bytes = space.sizes[0] * outer * across * lanes_bytes * STEPS
    return max(1, int(WEIGHTS_SHARE * space.target.l2_bytes / step_bytes))


def _fetch(space: WinogradView, across: int) -> int:
    """How weights that do not stay in the second cache are asked for.

    By panels, or by points where two panels would not fit into it.
    """
    if not _is_far(space):
        return 0
    panel = space.sizes[0] * _depth(space) * across * space.lanes * BYTES[space.contraction.dtype]
    return 1 if 2 * panel <= space.target.l2_bytes else 2


def _is_far(space: WinogradView) -> bool:
    """Whether the weights do not stay in the second cache from block to block."""
    return space.compute.tensor(WEIGHTS).bytes > space.target.l2_bytes // 2


def _depth(space: WinogradView) -> int:
    return prod(a.extent for a in space.contraction.reduce)


def _threads(space: WinogradView) -> int:
    return 1 if runs_alone(space.contraction, space.target) else space.target.threads


def _shares_tiles(space: WinogradView, threads: int) -> bool:
    """Whether threads take blocks of tiles each, and not features of all tiles.

    Then each reads all weights.  Weights from afar are better read once, where one block can hold
    all tiles.
    """
    _, tiles, features = space.sizes
    if threads > 1 and _is_far(space) and tiles <= _most_tiles(space):
        return False
    return ceil(tiles / threads) >= FEWEST_ROWS or tiles >= ceil(features / space.lanes)


def _most_tiles(space: WinogradView) -> int:
    """Tiles of a block that the second cache holds, with their products."""
    points, _, _ = space.sizes
    size, across = BYTES[space.contraction.dtype], 2 * space.lanes
    depth, weights = _depth(space), space.compute.tensor(WEIGHTS).bytes
    room = CACHED_SHARE * space.target.l2_bytes
    room -= weights if weights <= room / 2 else depth * across * size
    return max(1, int(room / (points * (depth + across) * size)))


def _block(space: WinogradView, threads: int) -> int:
    """The largest equal share of the tiles that the second cache holds."""
    _, tiles, _ = space.sizes
    rounds = ceil(tiles / (threads * _most_tiles(space)))
    return ceil(tiles / (threads * rounds))


def _register_tile(space: WinogradView, block: int) -> tuple[int, int]:
    """Rows and vectors of the register tile that wastes least of a block's work.

    The weights of a panel at one point should stay in the first cache, for all rows of a block.
    """
    features, l1_bytes = ceil(space.sizes[2] / space.lanes), space.target.l1_bytes
    slice_bytes = _depth(space) * space.lanes * BYTES[space.contraction.dtype]

    def worth(rows: int, across: int) -> tuple[float, int, int]:
        """How good a tile is; of equal ones the most even, so that no small tile ends a block."""
        useful = features / (ceil(features / across) * across)
        copies = [min(rows, block - at) * across for at in range(0, block, rows)]
        busy = sum(n * min(1, n / space.target.chains) for n in copies) / sum(copies)
        loads = 1 + 0.1 * (block + len(copies) * across) / (block * across)
        far = 1 + 0.08 * log2(max(1, slice_bytes * across / l1_bytes))
        begun = (rows + across) / LOADS / (rows * across / space.target.multiply_adds)
        return round(useful * busy / loads / far / max(1, begun), 6), across, -max(copies)

    pairs = [(int(r) + 1, int(v) + 1) for r, v in space.register_tiles if r < block]
    return max(pairs, key=lambda pair: worth(*pair))


def _config(space: WinogradView, values: tuple[int, ...]) -> NDArray[np.int32]:
    """The nearest values that the knobs have, of the first sketch."""
    config = np.zeros(len(space.counts), dtype=np.int32)
    for n, (knob, value) in enumerate(zip(space.knobs, values, strict=True)):
        config[1 + n] = int(np.argmin(np.abs(np.array(knob.values) - value)))
    return config
