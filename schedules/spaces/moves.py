"""Neighbours of configs: small random changes, all configs at once."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.cpu_contraction.view import ContractionSpace
from hlotune.schedules.spaces.space import Configs

ROUNDS = 6
TOGETHER = 256
"""Changes that are tried at a time where fewer wait for one."""
MOVES = np.array([0.35, 0.2, 0.2, 0.15, 0.1])
"""Shares of moves: a knob drawn anew, a knob moved by one, another register tile, trips passed
between levels, another sketch."""
SWAP = 0
FACTORS = np.array([2, 3, 4, 7, SWAP])
"""By which one level of an axis gets larger and another smaller; or the two are swapped."""


def moved(space: ContractionSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    """One legal neighbour of each config; where several tries find none, the config itself."""
    return retried(configs, lambda rows: _changed(space, configs[rows], rng), space.legal, ROUNDS)


def retried(
    configs: Configs,
    changed: Callable[[NDArray[np.intp]], Configs],
    legal: Callable[[Configs], NDArray[np.bool_]],
    tries: int,
) -> Configs:
    """Each config changed for the first time legally, within so many tries, or as it was.

    `changed` makes a change of each of some rows.  Where few wait, several tries are made at once:
    a call costs as much for one row as for some hundred.
    """
    result, waiting = configs.copy(), np.arange(len(configs))
    while tries and len(waiting):
        at_once = min(tries, max(1, TOGETHER // len(waiting)))
        rows = np.tile(waiting, at_once)
        tried = changed(rows)
        good = np.flatnonzero(legal(tried) & (tried != configs[rows]).any(axis=1))
        good = good[::-1]  # of equal rows the last is kept
        result[rows[good]] = tried[good]
        is_waiting = np.ones(len(configs), np.bool_)
        is_waiting[rows[good]] = False
        waiting = waiting[is_waiting[waiting]]
        tries -= at_once
    return result


def _changed(space: ContractionSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    result = configs.copy()
    kind = rng.choice(len(MOVES), size=len(configs), p=MOVES)
    rows = [np.flatnonzero(kind == k) for k in range(len(MOVES))]
    counts = space.knobs.counts
    column = rng.integers(len(counts), size=len(configs))
    result[rows[0], 1 + column[rows[0]]] = rng.integers(counts[column[rows[0]]])
    step = rng.choice(np.array([-1, 1], dtype=np.int32), size=len(rows[1]))
    near = result[rows[1], 1 + column[rows[1]]] + step
    result[rows[1], 1 + column[rows[1]]] = np.clip(near, 0, counts[column[rows[1]]] - 1)
    result[rows[2]] = with_random_tiles(space, result[rows[2]], rng)
    result[rows[3]] = passed(space, result[rows[3]], rng)
    result[rows[4], 0] = rng.integers(len(space.sketches), size=len(rows[4]))
    return result


def passed(space: ContractionSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    """Makes one level of an axis larger by what it takes from another, or swaps the two.

    Levels have different values to choose from: each gets the least of its own that reaches what
    was passed, or its largest, so that what they come to together may change.
    """
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


def with_random_tiles(
    space: ContractionSpace, configs: Configs, rng: np.random.Generator
) -> Configs:
    """Puts a random register tile that fits into each config."""
    columns = 1 + np.array(space.knobs.columns("register"))
    names = [a.name for a in space.contraction.parallel]
    vector = space.tables.vector[configs[:, 0]]
    for v, tiles in space.tiles.items():
        rows = np.flatnonzero(vector == names.index(v))
        picked = tiles[rng.integers(len(tiles), size=len(rows))]
        configs[rows[:, None], columns[None, :]] = picked
    return configs
