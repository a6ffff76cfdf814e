"""How configs move: what a level of an axis gives, another takes."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.spaces import moves
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.moves import passed, retried
from hlotune.schedules.spaces.space import Configs
from tests.support.computes import gemm

SPACE: CpuSpace = gemm(512, 512, 512).space(TARGETS["znver4"])
LEVELS = ("register", "block", "group")


def trips(configs: Configs) -> np.ndarray:
    """`(n, 3, axes)`: what each level takes."""
    return np.stack([SPACE.knobs.values(kind, configs[:, 1:]) for kind in LEVELS], axis=1)


def before_and_after(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    configs = SPACE.sample(n, rng)
    return trips(configs), trips(passed(SPACE, configs.copy(), rng))


@pytest.mark.parametrize("together", [1, 2, 256])
@pytest.mark.parametrize(("tries", "wanted"), [(2, [1, 0, 0, 0]), (4, [1, 3, 4, 0])])
def test_of_several_tries_the_first_that_is_legal_is_taken(
    together: int, tries: int, wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The k-th change of a config is k; each has a least legal one, and the last has none."""
    monkeypatch.setattr(moves, "TOGETHER", together)
    least, made = np.array([1, 3, 4, 9]), np.zeros(4, dtype=np.int32)
    rows = np.stack([np.arange(4), np.zeros(4)], axis=1).astype(np.int32)

    def changed(of: NDArray[np.intp]) -> Configs:
        result = rows[of]
        for row in result:
            made[row[0]] += 1
            row[1] = made[row[0]]
        return result

    def legal(configs: Configs) -> NDArray[np.bool_]:
        return configs[:, 1] >= least[configs[:, 0]]

    assert retried(rows, changed, legal, tries)[:, 1].tolist() == wanted


def test_every_config_has_a_neighbour_and_all_are_legal() -> None:
    configs = SPACE.sample(300, np.random.default_rng(0))
    found = SPACE.neighbours(configs, np.random.default_rng(1))
    assert SPACE.legal(found).all()
    assert (found != configs).any(axis=1).mean() > 0.95


def test_trips_pass_between_two_levels_of_one_axis_and_nothing_else_changes() -> None:
    before, after = before_and_after(500)
    changed = before != after
    assert (changed.any(axis=1).sum(axis=1) <= 1).all()
    assert (changed.sum(axis=(1, 2)) <= 2).all()
    assert changed.any(axis=(1, 2)).mean() > 0.7


def test_two_levels_are_swapped_sometimes() -> None:
    before, after = before_and_after(500)
    same_values = (np.sort(before, axis=1) == np.sort(after, axis=1)).all(axis=(1, 2))
    assert 0.05 < (same_values & (before != after).any(axis=(1, 2))).mean() < 0.5


def test_what_one_level_gives_the_other_takes() -> None:
    """An axis of 512 moves in steps of about a quarter octave: products stay near."""
    before, after = before_and_after(500)
    ratio = after.prod(axis=1) / before.prod(axis=1)
    assert np.median(np.abs(np.log2(ratio[(before != after).any(axis=1)]))) < 0.5


def test_a_knob_stands_where_it_first_reaches_a_value() -> None:
    knobs = SPACE.knobs
    block = np.array(knobs.columns("block"))
    column, values = block[[0, 0, 0]], np.array([1, 17, 10**6])
    positions = knobs.nearest(column, values)
    found = knobs.at(column, positions.astype(np.int32))
    assert found.tolist() == [1, 19, 512]
