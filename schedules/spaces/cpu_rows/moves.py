"""Random configs of a rows' space, and neighbours of configs."""

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.cpu_rows.view import Movable
from hlotune.schedules.spaces.moves import retried
from hlotune.schedules.spaces.space import Configs

ROUNDS = 6
SAMPLING_ROUNDS = 20
MOVES = np.array([0.45, 0.4, 0.15])
"""Shares of moves: a knob drawn anew, a knob moved by one, another sketch."""
FIRST_FORM = 0.5
"""The share of drawn forms that are the cheapest one."""


def drawn(space: Movable, n: int, rng: np.random.Generator) -> Configs:
    """Uniform in each knob, but for forms, the cheapest of which are drawn more often."""
    kept = list[Configs]()
    for _ in range(SAMPLING_ROUNDS):
        if (missing := n - sum(map(len, kept))) <= 0:
            break
        size = 2 * missing, len(space.counts)
        configs: Configs = rng.integers(space.counts, size=size).astype(np.int32)
        for (kind, _), column in space.columns.items():
            if kind == "form":
                configs[rng.random(len(configs)) < FIRST_FORM, column] = 0
        kept.append(configs[space.legal(configs)])
    found = np.concatenate(kept)[:n] if kept else np.empty((0, len(space.counts)), np.int32)
    return np.concatenate([found, np.tile(space.heuristic(), (n - len(found), 1))])


def moved(space: Movable, configs: Configs, rng: np.random.Generator) -> Configs:
    """One legal neighbour of each config; where several tries find none, the config itself."""

    def changed(rows: NDArray[np.intp]) -> Configs:
        return _changed(space, configs[rows], rng)

    return retried(configs, changed, space.legal, ROUNDS)


def _changed(space: Movable, configs: Configs, rng: np.random.Generator) -> Configs:
    result = configs.copy()
    kind = rng.choice(len(MOVES), size=len(configs), p=MOVES)
    new, near, other = (np.flatnonzero(kind == k) for k in range(len(MOVES)))
    column = 1 + rng.integers(len(space.counts) - 1, size=len(configs))
    result[new, column[new]] = rng.integers(space.counts[column[new]])
    step = rng.choice(np.array([-1, 1], dtype=np.int32), size=len(near))
    most = space.counts[column[near]] - 1
    result[near, column[near]] = np.clip(result[near, column[near]] + step, 0, most)
    result[other, 0] = rng.integers(len(space.sketches), size=len(other))
    return result
