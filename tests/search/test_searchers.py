"""What every searcher promises, tested on each."""

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.schedules.spaces.space import Configs
from hlotune.search.searchers.searcher import SEARCHERS, Searcher
from tests.support.toy import ToySpace, heuristic_first, no_configs


@pytest.fixture(params=sorted(SEARCHERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def space() -> ToySpace:
    return ToySpace((6, 6, 6, 6, 6), seed=2, forbidden=4)


def searcher(name: str, toy: ToySpace, seed: int = 0, first: Configs | None = None) -> Searcher:
    rows = heuristic_first(toy) if first is None else first
    return SEARCHERS[name](toy, Trees(), (seed, 7), rows)


def batches(search: Searcher, toy: ToySpace, count: int, n: int = 16) -> Configs:
    """Proposals of several batches, each observed; every fifth candidate fails."""
    rows = no_configs(toy)
    for _ in range(count):
        batch = search.propose(n)
        times = toy.times_s(batch)
        times[4::5] = np.nan
        search.observe(batch, times)
        rows = np.concatenate([rows, batch])
    return rows


class TestEverySearcher:
    def test_proposes_as_many_as_asked_for(self, name: str) -> None:
        toy = space()
        search = searcher(name, toy)
        assert search.propose(64).shape == (64, 6)
        assert len(batches(search, toy, 2, n=5)) == 10

    def test_proposes_legal_configs_only(self, name: str) -> None:
        toy = space()
        assert toy.legal(batches(searcher(name, toy), toy, 5)).all()

    def test_begins_with_what_is_to_be_first_and_nothing_else_of_its_own(self, name: str) -> None:
        toy = space()
        first = toy.sample(3, np.random.default_rng(1))
        batch = searcher(name, toy, first=first).propose(16)
        np.testing.assert_array_equal(batch[:3], first)
        assert not (batch == toy.heuristic()).all(axis=1).any()

    def test_leaves_out_what_is_not_legal(self, name: str) -> None:
        toy = space()
        seed = np.array([[0, 4, 0, 0, 0, 0]], np.int32)
        first = searcher(name, toy, first=seed).propose(16)
        assert not (first == seed).all(axis=1).any()

    def test_never_proposes_what_was_observed(self, name: str) -> None:
        toy = space()
        rows = batches(searcher(name, toy), toy, 8)
        assert len(np.unique(rows, axis=0)) == len(rows)

    def test_proposes_nothing_that_others_measured(self, name: str) -> None:
        toy = ToySpace((3, 3))
        search = searcher(name, toy)
        known = np.array([[0, a, b] for a in range(3) for b in range(3) if a != 2], np.int32)
        search.observe(known, toy.times_s(known))
        rest = search.propose(16)
        assert sorted(rest[:, 2].tolist()) == [0, 1, 2]
        assert (rest[:, 1] == 2).all()

    def test_proposes_nothing_when_the_space_is_exhausted(self, name: str) -> None:
        toy = ToySpace((2, 2))
        search = searcher(name, toy)
        assert len(batches(search, toy, 3, n=16)) == 4
        assert search.propose(16).shape == (0, 3)

    def test_survives_batches_in_which_everything_fails(self, name: str) -> None:
        toy = space()
        search = searcher(name, toy)
        for _ in range(3):
            batch = search.propose(16)
            search.observe(batch, np.full(len(batch), np.nan))
        assert len(search.propose(16)) == 16

    def test_the_same_seed_and_observations_give_the_same_proposals(self, name: str) -> None:
        toy = space()
        a, b = (batches(searcher(name, toy, seed=5), toy, 4) for _ in range(2))
        np.testing.assert_array_equal(a, b)

    def test_another_seed_gives_other_proposals(self, name: str) -> None:
        toy = space()
        a, b = (batches(searcher(name, toy, seed=s), toy, 2) for s in (5, 6))
        assert (a != b).any()

    def test_goes_on_from_a_saved_state_as_if_never_stopped(self, name: str) -> None:
        toy = space()
        search = searcher(name, toy)
        batches(search, toy, 3)
        other = searcher(name, toy)
        other.restore(search.state())
        np.testing.assert_array_equal(batches(search, toy, 3), batches(other, toy, 3))

    def test_a_broken_state_is_refused(self, name: str) -> None:
        with pytest.raises(ValueError, match="expected the saved state of a searcher"):
            searcher(name, space()).restore(b"not a state")

    def test_a_state_is_small(self, name: str) -> None:
        toy = space()
        search = searcher(name, toy)
        batches(search, toy, 10)
        assert len(search.state()) < 100_000


def test_descent_walks_downhill_by_neighbours() -> None:
    """Without a model that knows anything, from one measured config."""
    toy = ToySpace((8,) * 5, seed=4)
    search = searcher("descent", toy)
    start = toy.sample(1, np.random.default_rng(0))
    search.observe(start, toy.times_s(start))
    rows = batches(search, toy, 12)
    assert toy.times_s(rows).min() < 0.5 * toy.times_s(start)[0]
