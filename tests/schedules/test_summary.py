"""Rows of features belong to nests: whatever they were reached through, and with whatever."""

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs
from tests.support.computes import REAL, SMALL, named

AVX512 = TARGETS["znver4"]


def twins(space: CpuSpace, n: int) -> tuple[Configs, Configs]:
    """Configs of one sketch, and configs of another with the same nests."""
    rng = np.random.default_rng(3)
    configs = space.sample(n, rng)
    others = configs.copy()
    others[:, 0] = rng.integers(len(space.sketches), size=n)
    same = space.legal(others) & (space.digest(others) == space.digest(configs))
    same &= others[:, 0] != configs[:, 0]
    assert same.any()
    return configs[same], others[same]


@pytest.mark.parametrize("name", SMALL)
def test_equal_nests_have_equal_features_through_whatever_sketch(name: str) -> None:
    space = named(name).space(AVX512)
    first, second = twins(space, 1000)
    np.testing.assert_array_equal(space.features(first), space.features(second))


def test_a_model_predicts_a_nest_alike_through_whatever_sketch() -> None:
    """It has learned from the configs of one sketch, and is asked of others."""
    space, rng = named("small frozen gemm").space(AVX512), np.random.default_rng(0)
    first, second = twins(space, 3000)
    known = space.sample(400, rng)
    known[:, 0] = first[0, 0]
    known = known[space.legal(known)]
    model = Trees()
    features = space.features(known)
    scores = -features[:, NAMES.index("cost_total")] + rng.normal(0, 0.1, len(known))
    groups = np.zeros(len(known), np.int32)
    model.fit(features, (scores - scores.min()).astype(np.float32), groups)
    predictions = model.predict(space.features(first))
    assert np.ptp(predictions) > 0
    np.testing.assert_array_equal(predictions, model.predict(space.features(second)))


@pytest.mark.parametrize("name", ["C6", "small conv"])
def test_features_do_not_hang_on_what_else_is_in_the_population(name: str) -> None:
    space = named(name).space(AVX512)
    configs = space.sample(100, np.random.default_rng(1))
    whole = space.features(configs)
    assert whole.dtype == np.float32 and whole.shape == (100, len(NAMES))
    for k in range(0, 100, 7):
        np.testing.assert_array_equal(space.features(configs[k : k + 1])[0], whole[k])


@pytest.mark.parametrize("name", REAL)
def test_features_are_finite_and_tell_nests_apart(name: str) -> None:
    space = named(name).space(AVX512)
    configs = space.sample(300, np.random.default_rng(2))
    features = space.features(configs)
    assert np.isfinite(features).all()
    assert len(np.unique(features, axis=0)) > 0.95 * len(np.unique(space.digest(configs)))


def test_a_good_nest_costs_less_than_chance_would_have_it() -> None:
    """The first candidate is among the cheapest tenth, by the estimate alone."""
    for name in ("C2", "C6", "C9", "gemm"):
        space = named(name).space(AVX512)
        rows = np.concatenate(
            [space.heuristic()[None], space.sample(300, np.random.default_rng(0))]
        )
        total = space.features(rows)[:, NAMES.index("cost_total")]
        assert (total < total[0]).mean() < 0.1
