"""Generations on the model: parents by rank, children of both, the optimum found."""

import numpy as np
import pytest

from hlotune.measure.machine.targets import TARGETS
from hlotune.search.searchers.crossover import crossed
from hlotune.search.searchers.evolution import PRESSURE, Evolution, fitness
from tests.support.computes import gemm
from tests.support.toy import ToySpace, TrueModel, no_configs


def found_s(space: ToySpace, **sizes: int) -> float:
    """Least time in a batch after eight configs at random."""
    search = Evolution(space, TrueModel(space), (space.seed, 1), no_configs(space), **sizes)
    first = space.sample(8, np.random.default_rng(space.seed))
    search.observe(first, space.times_s(first))
    return float(space.times_s(search.propose(64)).min())


def test_evolution_finds_the_best_of_a_million_by_20000_questions() -> None:
    found = 0
    for seed in range(10):
        space = ToySpace((10,) * 6, seed)
        best_s = space.times_s(space.best[None, :])[0]
        found += found_s(space, population=1024, generations=18) == best_s
    assert found >= 8


def test_more_generations_find_better_candidates() -> None:
    space = ToySpace((20,) * 10, seed=5)
    times = [found_s(space, population=256, generations=n) for n in (1, 8, 40)]
    assert times[0] > times[1] > times[2]


def test_the_fittest_has_most_children_whatever_the_scale() -> None:
    values = np.array([0.0, 3.0, 1.0, 2.0], np.float32)
    shares = fitness(values)
    assert shares.sum() == pytest.approx(1)
    assert np.argsort(shares).tolist() == [0, 2, 3, 1]
    np.testing.assert_allclose(fitness(1000 * values - 7), shares)
    assert shares[1] / shares[0] == pytest.approx(np.exp(PRESSURE * 3 / 4))


def test_equals_have_equal_chances() -> None:
    assert len(np.unique(fitness(np.zeros(5, np.float32)))) == 1


def test_children_have_each_column_from_one_parent_and_one_stretch_from_the_father() -> None:
    space, rng = ToySpace((50,) * 8), np.random.default_rng(0)
    mothers, fathers = space.sample(200, rng), space.sample(200, rng)
    children = crossed(space, mothers, fathers, rng)
    from_father = (children == fathers) & (children != mothers)
    assert ((children == mothers) | (children == fathers)).all()
    assert from_father.any(axis=1).mean() > 0.95
    for child, mother, father in zip(children, mothers, fathers, strict=True):
        columns = np.flatnonzero(mother != father)
        taken = (child == father)[columns].astype(int)
        assert (np.diff(taken) == 1).sum() <= 1


def test_children_are_legal_also_where_few_mixtures_are() -> None:
    space, rng = gemm(512, 512, 512).space(TARGETS["znver4"]), np.random.default_rng(1)
    mothers, fathers = space.sample(200, rng), space.sample(200, rng)
    children = crossed(space, mothers, fathers, rng)
    assert space.legal(children).all()
    assert (children != mothers).any(axis=1).mean() > 0.8


def test_twins_have_their_mother_as_child() -> None:
    space, rng = ToySpace((5, 5)), np.random.default_rng(0)
    rows = space.sample(4, rng)
    np.testing.assert_array_equal(crossed(space, rows, rows, rng), rows)
