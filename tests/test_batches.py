"""What a batch has beside the model's favourites: neighbours of the best, other sketches."""

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs
from hlotune.schedules.space import Configs
from hlotune.search.annealing import Annealing
from hlotune.search.elsewhere import elsewhere, standing, turns
from hlotune.search.history import History
from hlotune.search.nearby import CENTRES, nearby
from tests.toy import ToySpace, TrueModel, no_configs

EXTENTS = (9,) * 6


class Sketched(ToySpace):
    """Three structures; the last one is twice as fast, and the model does not know it."""

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        rows = super().sample(n, rng)
        rows[:, 0] = rng.integers(0, 3, n)
        return rows

    def features(self, configs: Configs) -> NDArray[np.float32]:
        return configs.astype(np.float32)

    def times_s(self, configs: Configs) -> NDArray[np.float64]:
        times: NDArray[np.float64] = super().times_s(configs) * np.where(configs[:, 0] == 2, 0.5, 1)
        return times


class Biased(TrueModel):
    """Takes the first structure for ten times as fast as others."""

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        assert isinstance(inputs, np.ndarray)
        liked = np.where(inputs[:, 0] == 0, 0.1, 1)
        return super().predict(inputs[:, 1:]) * liked.astype(np.float32)


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


def test_without_any_trial_there_are_no_neighbours() -> None:
    space = ToySpace(EXTENTS)
    rng = np.random.default_rng(0)
    assert len(nearby(space, TrueModel(space), History(space), 8, rng)) == 0


def test_turns_go_to_the_good_and_to_those_that_had_few() -> None:
    best, offered = np.array([1.0, 0.9, 0.1]), np.array([9, 9, 9])
    assert [k for k, _ in turns(best, np.array([0, 0, 0]), offered, 5)] == [0, 1, 0, 0, 1]
    assert [k for k, _ in turns(best, np.array([50, 2, 0]), offered, 3)] == [1, 1, 1]


def test_a_sketch_without_offers_has_no_turn() -> None:
    best, none = np.array([1.0, 0.5]), np.array([0, 0])
    assert turns(best, none, np.array([1, 2]), 9) == [(0, 0), (1, 0), (1, 1)]


def test_a_sketch_that_was_not_tried_is_hoped_to_be_as_good_as_the_best() -> None:
    space = Sketched(EXTENTS)
    rows = space.sample(8, np.random.default_rng(0))
    rows[:, 0] = np.arange(8) % 2
    best, count = standing(history_of(space, rows), np.arange(3, dtype=np.int32))
    assert count.tolist() == [4, 4, 0]
    assert best[2] == best.max() == 1


def test_a_first_batch_goes_to_sketches_by_turns() -> None:
    space = Sketched(EXTENTS)
    rows = elsewhere(space, Biased(space), History(space), 6, np.random.default_rng(0))
    assert np.bincount(rows[:, 0]).tolist() == [2, 2, 2]


def test_a_model_that_likes_the_wrong_sketch_does_not_keep_the_search_there() -> None:
    space = Sketched(EXTENTS, seed=2)
    search = Annealing(space, Biased(space), (0,), no_configs(space), chains=256, steps=4)
    for _ in range(8):
        batch = search.propose(16)
        search.observe(batch, space.times_s(batch))
    assert search.history.best(1)[0, 0] == 2
    measured = search.history.times_s
    assert measured.min() < 1.1 * space.times_s(np.array([[2, *space.optimum]]))[0]
