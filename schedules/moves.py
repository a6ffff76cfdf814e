"""Neighbours of configs: small random changes, all configs at once."""

from typing import TYPE_CHECKING

import numpy as np

from hlotune.schedules.space import Configs

if TYPE_CHECKING:
    from hlotune.schedules.cpu import CpuSpace

ROUNDS = 6
MOVES = np.array([0.35, 0.2, 0.2, 0.15, 0.1])
"""Shares of moves: a knob drawn anew, a knob moved by one, another register tile, trips passed
between levels, another sketch."""
SWAP = 0
FACTORS = np.array([2, 3, 4, 7, SWAP])
"""By which one level of an axis gets larger and another smaller; or the two are swapped."""


def moved(space: "CpuSpace", configs: Configs, rng: np.random.Generator) -> Configs:
    """One legal neighbour of each config; where several tries find none, the config itself."""
    result = configs.copy()
    waiting = np.arange(len(configs))
    for _ in range(ROUNDS):
        tried = _changed(space, configs[waiting], rng)
        good = space.legal(tried) & (tried != configs[waiting]).any(axis=1)
        result[waiting[good]] = tried[good]
        waiting = waiting[~good]
        if not len(waiting):
            break
    return result


def _changed(space: "CpuSpace", configs: Configs, rng: np.random.Generator) -> Configs:
    result = configs.copy()
    kind = rng.choice(len(MOVES), size=len(configs), p=MOVES)
    rows = [np.flatnonzero(kind == k) for k in range(len(MOVES))]
    counts = space.knobs.counts
    column = rng.integers(len(counts), size=len(configs))
    result[rows[0], 1 + column[rows[0]]] = rng.integers(counts[column[rows[0]]])
    step = rng.choice(np.array([-1, 1], dtype=np.int32), size=len(rows[1]))
    near = result[rows[1], 1 + column[rows[1]]] + step
    result[rows[1], 1 + column[rows[1]]] = np.clip(near, 0, counts[column[rows[1]]] - 1)
    result[rows[2]] = space.with_tiles(result[rows[2]], rng)
    result[rows[3]] = passed(space, result[rows[3]], rng)
    result[rows[4], 0] = rng.integers(len(space.sketches), size=len(rows[4]))
    return result


def passed(space: "CpuSpace", configs: Configs, rng: np.random.Generator) -> Configs:
    """Makes one level of an axis larger by what it takes from another, or swaps the two."""
    levels = np.array([space.knobs.columns(kind) for kind in ("register", "block", "group")])
    rows, axis = np.arange(len(configs)), rng.integers(levels.shape[1], size=len(configs))
    order = rng.permuted(np.tile(np.arange(3), (len(configs), 1)), axis=1)
    giver, taker = levels[order[:, 0], axis], levels[order[:, 1], axis]
    factor = rng.choice(FACTORS, size=len(configs))
    given, taken = (space.knobs.at(c, configs[rows, 1 + c]) for c in (giver, taker))
    swaps = factor == SWAP
    less = np.where(swaps, taken, np.maximum(1, given // np.maximum(1, factor)))
    more = np.where(swaps, given, taken * factor)
    configs[rows, 1 + giver] = space.knobs.nearest(giver, less)
    configs[rows, 1 + taker] = space.knobs.nearest(taker, more)
    return configs
