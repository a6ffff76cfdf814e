"""The lattice covers a space evenly from its first points on."""

import numpy as np
import pytest

from hlotune.costmodel.random_model import RandomModel
from hlotune.measure.machine.targets import TARGETS
from hlotune.search.searchers.grid import Grid, lattice, primes
from tests.support.computes import gemm
from tests.support.toy import ToySpace, no_configs


def test_primes_are_prime() -> None:
    assert primes(0) == []
    assert primes(8) == [2, 3, 5, 7, 11, 13, 17, 19]


@pytest.mark.parametrize("count", [16, 100])
def test_each_beginning_covers_each_dimension(count: int) -> None:
    """No stretch of an axis that is four times an even share stays without a point."""
    points = np.sort(lattice(np.zeros(4), 0, count), axis=0)
    assert np.diff(points, axis=0).max() < 4 / count


def test_a_lattice_leaves_smaller_holes_than_chance() -> None:
    corners = np.random.default_rng(0).random((2000, 2))

    def largest_hole(points: np.ndarray) -> float:
        distance = np.abs(corners[:, None] - points[None]).max(axis=2).min(axis=1)
        return float(distance.max())

    rng = np.random.default_rng(1)
    chance = [largest_hole(rng.random((64, 2))) for _ in range(20)]
    assert largest_hole(lattice(np.zeros(2), 0, 64)) < min(chance)


def test_a_walk_in_parts_is_the_walk_in_one() -> None:
    whole = lattice(np.full(3, 0.2), 0, 20)
    parts = [lattice(np.full(3, 0.2), begin, 10) for begin in (0, 10)]
    np.testing.assert_allclose(np.concatenate(parts), whole)


def test_small_batches_walk_as_a_large_one_does() -> None:
    space = ToySpace((30,) * 4)
    large = Grid(space, RandomModel(), (1,), no_configs(space)).propose(24)
    search = Grid(space, RandomModel(), (1,), no_configs(space))
    batches = []
    for _ in range(3):
        batches.append(search.propose(8))
        search.observe(batches[-1], space.times_s(batches[-1]))
    np.testing.assert_array_equal(np.concatenate(batches), large)


def test_real_spaces_have_legal_points() -> None:
    space = gemm(512, 512, 512).space(TARGETS["znver4"])
    batch = Grid(space, RandomModel(), (1,), space.heuristic()[None, :][:0]).propose(32)
    assert len(batch) == 32
    assert space.legal(batch).all()
