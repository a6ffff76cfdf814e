"""The models that learn nothing: the roofline, and one that says anything."""

import numpy as np
import pytest

from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.random_model import RandomModel
from hlotune.costmodel.roofline import Roofline
from hlotune.schedules.features.summary import NAMES
from tests.support.made_rows import kernels


def test_the_roofline_ranks_by_the_estimate_among_the_features() -> None:
    rows = np.zeros((3, len(NAMES)), np.float32)
    rows[:, NAMES.index("cost_total")] = 0.4, 3.0, 0.2
    assert Roofline().predict(rows).argsort().tolist() == [1, 0, 2]


def test_the_roofline_waits_for_the_thread_with_the_largest_tasks() -> None:
    """Two threads have a task each, and one task is cut short to half of the other."""
    rows = np.zeros((3, len(NAMES)), np.float32)
    rows[:, NAMES.index("balance")] = 1.0, 1.0, 0.5
    rows[:, NAMES.index("even")] = 1.0, 0.75, 0.5
    speed = Roofline().predict(rows)
    assert speed[0] - speed[1] == pytest.approx(np.log2(4 / 3), abs=1e-6)
    assert speed[2] == speed[0]  # `cost_total` knows of the thread that has no task at all


def test_the_random_model_ranks_at_chance_and_says_the_same_twice() -> None:
    features, scores, _ = kernels(2000)
    model = RandomModel(seed=3)
    predicted = model.predict(features)
    assert abs(spearman(scores, predicted)) < 0.1
    np.testing.assert_array_equal(model.predict(features[10:20]), predicted[10:20])
    assert (RandomModel(seed=4).predict(features) != predicted).any()
