"""How far a model is trusted."""

import numpy as np
import pytest

from hlotune.costmodel.metrics import spearman
from hlotune.search.searchers.exploration_guard import EPSILON, EPSILON_MOST, judged

TIMES = np.arange(1.0, 17.0)


def test_a_model_that_ranks_right_keeps_the_exploring_share_small() -> None:
    assert judged(0.2, -TIMES.astype(np.float32), TIMES) == pytest.approx(0.1)
    assert judged(EPSILON, -TIMES.astype(np.float32), TIMES) == EPSILON


def test_a_model_that_ranks_worse_than_chance_doubles_it_up_to_a_half() -> None:
    wrong = TIMES.astype(np.float32)
    assert judged(0.1, wrong, TIMES) == pytest.approx(0.2)
    assert judged(0.4, wrong, TIMES) == EPSILON_MOST


def test_a_model_a_little_worse_than_chance_keeps_it_as_it_is() -> None:
    predicted = (np.arange(16) * 7 % 16).astype(np.float32)
    assert -1 / np.sqrt(15) < spearman(-TIMES, predicted) < 0
    assert judged(0.2, predicted, TIMES) == 0.2


def test_a_batch_of_a_few_says_nothing() -> None:
    assert judged(0.1, TIMES[:7].astype(np.float32), TIMES[:7]) == 0.1
