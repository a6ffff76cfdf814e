"""The annealer finds what the model likes, spreads its batches, and doubts a bad model."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs, as_summaries
from hlotune.costmodel.random_model import RandomModel
from hlotune.schedules.spaces.space import Configs
from hlotune.search.searchers import guided
from hlotune.search.searchers.annealing import CROSSED, Annealing, join_best, metropolis
from hlotune.search.searchers.batch_selection import APART
from hlotune.search.searchers.exploration_guard import EPSILON, EPSILON_MOST
from hlotune.search.searchers.history import row_hash
from hlotune.search.searchers.random_search import RandomSearch
from tests.support.toy import ToySpace, TrueModel, heuristic_first, no_configs

MILLION = (10,) * 6


class Liar(TrueModel):
    """Ranks everything the wrong way round."""

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        return -super().predict(inputs)


def started(space: ToySpace, model: TrueModel, **sizes: int) -> Annealing:
    """An annealer that has seen eight configs at random."""
    annealing = Annealing(space, model, (space.seed, 1), no_configs(space), **sizes)
    first = space.sample(8, np.random.default_rng(space.seed))
    annealing.observe(first, space.times_s(first))
    model.asked = 0
    return annealing


def finds_the_optimum(space: ToySpace) -> bool:
    """By half of the chains of a real search, which score more than 20,000 configs at once."""
    model = TrueModel(space)
    found = space.times_s(started(space, model, chains=1024, steps=17).propose(64)).min()
    assert model.asked <= 20_000
    return bool(found == space.times_s(space.best[None, :])[0])


def test_annealing_finds_the_best_of_a_million_by_20000_questions() -> None:
    assert sum(finds_the_optimum(ToySpace(MILLION, seed)) for seed in range(10)) >= 9


def test_random_search_does_not_find_it_in_20000_trials() -> None:
    found = 0
    for seed in range(10):
        space = ToySpace(MILLION, seed)
        search = RandomSearch(space, TrueModel(space), (seed, 1), heuristic_first(space))
        times = space.times_s(search.propose(20_000))
        found += times.min() == space.times_s(space.best[None, :])[0]
    assert found <= 1


def test_one_proposal_scores_at_least_20000_configs() -> None:
    space = ToySpace(MILLION)
    model = TrueModel(space)
    started(space, model).propose(64)
    assert model.asked >= 20_000


def test_a_proposal_takes_less_than_half_a_second() -> None:
    space = ToySpace((8,) * 16)
    annealing = started(space, TrueModel(space))
    durations = []
    for _ in range(3):
        start = time.perf_counter()
        annealing.propose(64)
        durations.append(time.perf_counter() - start)
    assert min(durations) < 0.5


class Watched(TrueModel):
    """Keeps the knobs of the first rows that it is asked about in each proposal."""

    def __init__(self, space: ToySpace) -> None:
        super().__init__(space)
        self.begins = list[NDArray[np.float32]]()

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        if not self.asked:
            self.begins.append(as_summaries(inputs)[:, : len(self.space.extents)].copy())
        return super().predict(inputs)


def test_chains_go_on_where_they_were_left() -> None:
    """All but those that stood where another one was; nothing is measured between proposals."""
    space = ToySpace((12,) * 8, seed=3)
    model = Watched(space)
    annealing = started(space, model, chains=256, steps=4)
    annealing.propose(32)
    for _ in range(4):
        left, model.asked = distinct(annealing._chains[:, 1:]), 0
        annealing.propose(32)
        assert len(left) > 128
        assert left <= distinct(model.begins[-1])


def test_chains_at_one_place_but_for_one_begin_anew() -> None:
    space = ToySpace((100,) * 8, seed=1)
    annealing = started(space, TrueModel(space), chains=64, steps=1)
    annealing._chains = np.tile(space.best, (64, 1))
    begun, _ = annealing._start(np.random.default_rng(0))
    assert len(np.unique(begun, axis=0)) == len(begun) == 64
    assert (begun == space.best).all(axis=1).sum() == 1


def test_some_moves_cross_a_chain_with_one_of_the_better_half() -> None:
    """A neighbour differs in one knob; who differs in more has them of one other chain."""
    space, rng = ToySpace((50,) * 8), np.random.default_rng(0)
    chains = space.sample(800, rng)
    values = (-space.times_s(chains)).astype(np.float32)
    moved = started(space, TrueModel(space))._moved(chains, values, rng)
    far = np.flatnonzero((moved != chains).sum(axis=1) > 1)
    assert 0.5 * CROSSED < len(far) / len(chains) < 1.5 * CROSSED
    better = chains[np.argsort(-values)[:400]]
    for k in far:
        assert ((moved[k] == chains[k]) | (moved[k] == better)).all(axis=1).any()


def distinct(rows: NDArray[Any]) -> set[tuple[float, ...]]:
    return {*map(tuple, rows.tolist())}


def test_chains_that_go_on_get_further_than_others() -> None:
    """A little work a batch adds up."""
    space = ToySpace((12,) * 8, seed=3)
    annealing = started(space, TrueModel(space), chains=256, steps=4)
    values = []
    for _ in range(8):
        annealing.propose(32)
        values.append(np.median(space.times_s(annealing._chains)))
    assert values[-1] < 0.8 * values[0]


def test_the_best_measured_configs_are_starting_points() -> None:
    space = ToySpace((100,) * 8, seed=1)
    annealing = Annealing(space, TrueModel(space), (0,), heuristic_first(space), chains=64, steps=1)
    known = space.best[None, :]
    annealing.observe(known, space.times_s(known))
    near = np.count_nonzero(annealing.propose(16) != known, axis=1)
    assert near.min() <= 1 + APART


def test_negative_scores_are_as_good_as_positive_ones() -> None:
    """`TrueModel` predicts negative numbers only; a shift of all scores changes nothing."""

    class Shifted(TrueModel):
        def predict(self, inputs: Inputs) -> NDArray[np.float32]:
            return super().predict(inputs) * np.float32(1024) + np.float32(0.5)

    space = ToySpace(MILLION)
    times = [
        space.times_s(started(space, model).propose(64)).min()
        for model in (TrueModel(space), Shifted(space))
    ]
    assert times[0] == times[1]


def test_a_batch_is_apart_while_there_is_a_choice() -> None:
    space = ToySpace(MILLION)
    batch = started(space, TrueModel(space)).propose(64)[:32]
    differ = np.count_nonzero(batch[:, None] != batch[None], axis=2) + APART * np.eye(32, dtype=int)
    assert differ.min() >= APART


def test_the_exploring_share_grows_while_the_model_misleads_and_shrinks_again() -> None:
    space = ToySpace(MILLION)
    model = Liar(space)
    annealing = started(space, model)
    shares = [observed_share(annealing, space, seed) for seed in range(6)]
    assert shares == sorted(shares)
    assert shares[-1] == EPSILON_MOST
    annealing._model = TrueModel(space)
    assert observed_share(annealing, space, 9) < EPSILON_MOST


def observed_share(annealing: Annealing, space: ToySpace, seed: int) -> float:
    batch = space.sample(64, np.random.default_rng(seed))
    annealing.observe(batch, space.times_s(batch))
    return annealing.epsilon


def test_a_good_model_keeps_the_exploring_share_small() -> None:
    space = ToySpace(MILLION)
    annealing = started(space, TrueModel(space))
    assert observed_share(annealing, space, 1) == EPSILON


def test_a_model_that_knows_something_ranks_the_first_batch() -> None:
    space = ToySpace(MILLION)
    model = TrueModel(space)
    batch = Annealing(space, model, (0,), no_configs(space)).propose(16)
    assert model.asked >= 20_000
    times = space.times_s(batch)
    by_chance = space.times_s(space.sample(1000, np.random.default_rng(0)))
    assert np.median(times[:12]) < by_chance.min()
    assert np.median(times[13:]) > by_chance.min()  # a quarter explores; there is one sketch here


class Sketches(ToySpace):
    """Eight sketches, alike but for their number."""

    sketches = 8

    def _drawn(self, n: int, rng: np.random.Generator) -> Configs:
        drawn = super()._drawn(n, rng)
        drawn[:, 0] = rng.integers(0, self.sketches, n)
        return drawn


def test_what_explores_is_the_best_of_sketches_that_few_trials_had() -> None:
    space = Sketches(MILLION)
    annealing = Annealing(space, TrueModel(space), (0,), no_configs(space))
    known = space.sample(64, np.random.default_rng(1))
    known = known[known[:, 0] >= 3]
    annealing.observe(known, space.times_s(known))
    none = no_configs(space)
    explored = annealing._explored(3, none, np.random.default_rng(2))
    assert sorted(explored[:, 0]) == [0, 1, 2], "of which there was no trial"
    by_chance = space.times_s(space.sample(1000, np.random.default_rng(0)))
    assert space.times_s(explored).max() < np.quantile(by_chance, 0.1)
    last = annealing._explored(1, explored[:2], np.random.default_rng(2))
    assert last[0, 0] == explored[2, 0], "the others are in the batch by then"
    assert sorted(annealing._explored(20, none, np.random.default_rng(2))[:, 0]) == list(range(8))


def test_what_explores_is_as_good_as_what_the_chains_met_of_a_sketch() -> None:
    space = Sketches(MILLION)
    annealing = Annealing(space, TrueModel(space), (0,), no_configs(space))
    batch = annealing.propose(32)  # a quarter of the first batch explores
    assert len(np.unique(batch[:, 0])) == 8
    by_chance = space.times_s(space.sample(1000, np.random.default_rng(0)))
    assert space.times_s(batch).max() < by_chance.min()


def test_of_sketches_that_were_measured_as_little_the_most_promising_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = Sketches(MILLION)
    annealing = Annealing(space, TrueModel(space), (0,), no_configs(space))
    monkeypatch.setattr(annealing, "_score", lambda configs: (configs[:, 0] == 5).astype("f4"))
    explored = annealing._explored(1, no_configs(space), np.random.default_rng(2))
    assert explored[:, 0].tolist() == [5]


def test_where_the_model_misleads_it_is_not_asked_what_to_explore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = ToySpace(MILLION)
    annealing = started(space, Liar(space))
    for seed in range(3):
        observed_share(annealing, space, seed)
    monkeypatch.setattr(annealing, "_explored", None)
    assert len(annealing.propose(32)) == 32


def test_a_model_that_knows_nothing_is_not_asked() -> None:
    class Ignorant(TrueModel):
        knows = False

    space = ToySpace(MILLION)
    model = Ignorant(space)
    annealing = Annealing(space, model, (0,), heuristic_first(space))
    for _ in range(2):
        batch = annealing.propose(16)
        annealing.observe(batch, np.full(16, np.nan))
    assert len(annealing.propose(16)) == 16
    assert model.asked == 0


def test_first_configs_that_were_not_measured_are_proposed_even_when_times_are_known() -> None:
    space = ToySpace(MILLION)
    first = space.sample(3, np.random.default_rng(5))
    annealing = Annealing(space, RandomModel(), (0,), first)
    known = space.sample(4, np.random.default_rng(6))
    annealing.observe(known, space.times_s(known))
    np.testing.assert_array_equal(annealing.propose(16)[:3], first)


def test_a_small_batch_is_as_much_smaller_a_part_of_the_walk() -> None:
    asked = []
    for n in (64, 32, 16, 8):
        space = ToySpace((12,) * 8, seed=3)
        model = TrueModel(space)
        annealing = started(space, model, chains=4096, steps=12)
        annealing.propose(n)
        first, model.asked = model.asked, 0
        annealing.propose(n)
        asked.append(model.asked)
        assert first > 12 * 4096
    moves = -np.diff(asked)
    assert moves == pytest.approx([6 * 4096, 3 * 4096, 0], abs=2048)


class Folded(ToySpace):
    """The last knob does not change the nest."""

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        return row_hash(configs[:, :-1])


def test_configs_of_one_loop_nest_are_measured_once() -> None:
    space = Folded((4, 4, 50))
    annealing = Annealing(space, TrueModel(space), (0,), heuristic_first(space), chains=64, steps=4)
    measured = no_configs(space)
    for _ in range(4):
        batch = annealing.propose(8)
        annealing.observe(batch, space.times_s(batch))
        measured = np.concatenate([measured, batch])
    assert len(np.unique(measured[:, :-1], axis=0)) == len(measured) == 16


def test_many_configs_of_one_loop_nest_leave_room_for_others() -> None:
    space = Folded((40, 40, 1000))
    space.weights[-1] = 0
    annealing = started(space, TrueModel(space), chains=2048, steps=10)
    chosen = [space.times_s(batch) for batch in batches(annealing, space, 8)]
    fast = np.quantile(space.times_s(space.sample(4000, np.random.default_rng(5))), 0.25)
    assert np.mean(np.concatenate(chosen) < fast) > 0.85


def batches(annealing: Annealing, space: ToySpace, count: int) -> Iterator[Configs]:
    for _ in range(count):
        batch = annealing.propose(16)
        annealing.observe(batch, space.times_s(batch))
        yield batch


@pytest.mark.parametrize("rows", [1, 50])
def test_a_batch_is_the_same_however_many_rows_are_looked_through_at_a_time(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = ToySpace((6,) * 4)
    wanted = started(space, TrueModel(space), chains=64, steps=3).propose(20)
    monkeypatch.setattr(guided, "RANKED", rows)
    found = started(space, TrueModel(space), chains=64, steps=3).propose(20)
    np.testing.assert_array_equal(found, wanted)


def test_metropolis_takes_gains_always_and_losses_by_heat() -> None:
    rng = np.random.default_rng(0)
    gains = np.repeat(np.array([1.0, -1.0], np.float32), 4000)
    assert metropolis(gains, 0.0, rng).sum() == 4000
    taken = metropolis(gains, 1.0, rng)
    assert taken[:4000].all()
    assert taken[4000:].mean() == pytest.approx(np.exp(-1), abs=0.03)


def test_the_worst_chains_join_the_best() -> None:
    configs = np.arange(40, dtype=np.int32)[:, None]
    values = np.arange(40, dtype=np.float32)
    join_best(configs, values)
    np.testing.assert_array_equal(configs[:2, 0], [38, 39])
    np.testing.assert_array_equal(configs[2:, 0], np.arange(2, 40))
