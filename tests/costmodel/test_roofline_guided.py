"""A learner beside a roofline: who is asked, and when."""

from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.pretrained import untrained
from hlotune.costmodel.roofline import Roofline
from hlotune.costmodel.roofline_guided import Guided
from hlotune.costmodel.trees import Trees
from hlotune.measure.machine.targets import TARGETS
from tests.support.computes import gemm

SPACE = gemm(256, 256, 256).space(TARGETS["znver4"])
FEATURES = SPACE.features(SPACE.sample(300, np.random.default_rng(0)))
GROUP = np.zeros(300, np.int32)


def truth() -> np.ndarray:
    """Scores that hang half on what the roofline sees, half on something else."""
    physical = Roofline().predict(FEATURES)
    other = FEATURES @ np.random.default_rng(1).standard_normal(FEATURES.shape[1])
    mixed = (physical - physical.mean()) / physical.std() + (other - other.mean()) / other.std()
    scores: np.ndarray = np.exp2(mixed - mixed.max()).astype(np.float32)
    return scores


def test_before_anything_is_learned_the_roofline_speaks_alone() -> None:
    guided = Guided(Trees())
    assert guided.knows
    np.testing.assert_array_equal(guided.predict(FEATURES), Roofline().predict(FEATURES))


def test_after_few_trials_both_together_rank_better_than_either() -> None:
    scores, few = truth(), slice(0, 24)
    guided, trees = Guided(Trees()), Trees()
    for model in (guided, trees):
        model.fit(FEATURES[few], scores[few], GROUP[few])
    rest = slice(24, None)
    found, learned, physical = (
        spearman(scores[rest], m.predict(FEATURES[rest])) for m in (guided, trees, Roofline())
    )
    assert found > max(learned, physical)


def test_after_many_trials_it_follows_what_was_learned() -> None:
    against = (-Roofline().predict(FEATURES)).astype(np.float32)
    scores = np.exp2(against - against.max())
    guided = Guided(Trees())
    guided.fit(FEATURES, scores, GROUP)
    assert spearman(scores, guided.predict(FEATURES)) > 0.5


def test_rows_that_teach_nothing_leave_the_roofline() -> None:
    guided = Guided(Trees())
    guided.fit(FEATURES[:4], np.zeros(4, np.float32), GROUP[:4])
    np.testing.assert_array_equal(guided.predict(FEATURES), Roofline().predict(FEATURES))


def test_its_file_is_the_learner_s(tmp_path: Path) -> None:
    guided, trees = Guided(Trees()), Trees()
    guided.fit(FEATURES, truth(), GROUP)
    guided.save(tmp_path / "m")
    trees.load(tmp_path / "m")
    again = Guided(Trees())
    again.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict(FEATURES), Roofline().predict(FEATURES))
    assert trees.knows


def test_an_untrained_run_starts_with_trees_beside_a_roofline() -> None:
    found = untrained("trees", "")
    assert isinstance(found.model, Guided)
    assert found.words == "trees beside a roofline, untrained"


@pytest.mark.torch
def test_an_untrained_network_says_why() -> None:
    assert untrained("mlp", ": why").words == "mlp, untrained: why"
