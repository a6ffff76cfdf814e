"""Coordinate descent tries neighbours of the best measured configs."""

import numpy as np

from hlotune.schedules.spaces.space import Configs
from hlotune.search.searchers.descent import CENTRES, along_axes, nearby
from hlotune.search.searchers.history import History
from tests.support.toy import ToySpace, TrueModel

EXTENTS = (9,) * 6


def history_of(space: ToySpace, rows: Configs) -> History:
    history = History(space)
    history.add(rows, space.times_s(rows))
    return history


def test_neighbours_are_of_the_best_and_most_of_the_very_best() -> None:
    space = ToySpace(EXTENTS, seed=1)
    history = history_of(space, space.sample(64, np.random.default_rng(0)))
    near = nearby(space, TrueModel(space), history, 16, np.random.default_rng(1))
    away = (near[:, None] != history.best(CENTRES)[None]).sum(axis=2)
    assert (away.min(axis=1) <= 1).all()
    assert np.bincount(away.argmin(axis=1)).argmax() == 0
    assert len(near) == 15
    assert history.unseen(near).all()


def test_of_neighbours_those_are_taken_that_the_model_likes() -> None:
    space = ToySpace(EXTENTS, seed=1)
    history = history_of(space, space.sample(1, np.random.default_rng(0)))
    near = nearby(space, TrueModel(space), history, 8, np.random.default_rng(1))
    every = space.neighbours(np.repeat(history.configs, 500, axis=0), np.random.default_rng(2))
    assert space.times_s(near).max() < np.quantile(space.times_s(every), 0.2)


def test_all_steps_along_an_axis_are_looked_at() -> None:
    space = ToySpace((3, 3, 3), forbidden=0)
    steps = along_axes(space, np.array([0, 1, 0, 2], np.int32))
    assert steps.tolist() == [[0, 2, 0, 2], [0, 1, 1, 2], [0, 1, 0, 1]]


class DrawsNothing(ToySpace):
    """Whose neighbours, where they are drawn, are no others."""

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        return configs


def test_descent_walks_along_axes_to_where_no_step_is_downhill() -> None:
    space = DrawsNothing(EXTENTS, seed=1)
    history = history_of(space, space.sample(1, np.random.default_rng(0)))
    model, rng = TrueModel(space), np.random.default_rng(1)
    while len(steps := nearby(space, model, history, 4, rng)):
        history.add(steps, space.times_s(steps))
    best = history.best(1)
    around = along_axes(space, best[0])
    assert space.times_s(best)[0] < space.times_s(around).min()
    assert not history.unseen(around).any()


def test_without_any_trial_there_are_no_neighbours() -> None:
    space = ToySpace(EXTENTS)
    rng = np.random.default_rng(0)
    assert len(nearby(space, TrueModel(space), History(space), 8, rng)) == 0
