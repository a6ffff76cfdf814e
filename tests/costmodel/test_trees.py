"""Trees rank what they have seen and what they have not."""

import time
from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel.metrics import GroupedScores, pairwise_accuracy, spearman
from hlotune.costmodel.roofline import TIME, Roofline
from hlotune.costmodel.row_selection import kept
from hlotune.costmodel.trees import GROWTH, Lesson, Objective, Trees
from hlotune.schedules.features.summary import NAMES
from tests.support.few_rounds import grow_few_rounds
from tests.support.made_rows import kernels


def test_trees_know_nothing_before_any_data() -> None:
    assert not Trees().predict(np.ones((5, len(NAMES)), np.float32)).any()


@pytest.mark.parametrize(("rows", "groups", "least"), [(64, 1, 0.5), (512, 3, 0.75)])
def test_trees_rank_rows_they_have_not_seen(rows: int, groups: int, least: float) -> None:
    model = Trees()
    model.fit(*kernels(rows, groups))
    features, scores, _ = kernels(1000, seed=1)
    assert spearman(scores[scores > 0], model.predict(features)[scores > 0]) > least


def test_a_few_rows_are_enough_to_start() -> None:
    model = Trees()
    features, scores, groups = kernels(12)
    model.fit(features, scores, groups)
    assert spearman(scores, model.predict(features)) > 0.5


def test_trees_say_of_what_they_have_not_seen_what_a_roofline_says() -> None:
    model = Trees()
    model.fit(*kernels(600))  # whose estimates are all alike
    rows = np.zeros((5, len(NAMES)), np.float32)
    rows[:, TIME] = -6, -2, 0, 3, 9
    assert model.predict(rows).argsort().tolist() == [4, 3, 2, 1, 0]


def test_trees_forget_a_roofline_that_is_wrong() -> None:
    features, scores, groups = kernels(600)
    features[:, TIME] = np.log2(np.maximum(scores, 2**-8))  # the faster, the longer it takes
    assert spearman(scores, Roofline().predict(features)) < -0.9
    model = Trees()
    model.fit(features, scores, groups)
    assert spearman(scores, model.predict(features)) > 0.9


def test_groups_are_compared_within_themselves_only() -> None:
    """Across two kernels of unlike level feature 3 misleads; within each feature 0 decides."""
    rng = np.random.default_rng(0)
    features = rng.random((600, len(NAMES))).astype(np.float32)
    groups = np.arange(600, dtype=np.int32) % 2
    features[:, 3] = groups
    scores = (features[:, 0] * np.where(groups == 1, 1.0, 0.01)).astype(np.float32)
    model = Trees(objective="rank")
    model.fit(features, scores, groups)
    first = groups == 0
    assert spearman(scores[first], model.predict(features)[first]) > 0.8


def test_a_loaded_model_is_built_upon_not_replaced(tmp_path: Path) -> None:
    teacher = Trees("offline")
    teacher.fit(*kernels(1000))
    teacher.save(tmp_path / "shipped.npz")
    pupil, novice = Trees(), Trees()
    pupil.load(tmp_path / "shipped.npz")
    few = kernels(24, seed=2)
    pupil.fit(*few)
    novice.fit(*few)
    features, scores, _ = kernels(1000, seed=3)
    quality = [pairwise_accuracy(scores, m.predict(features)) for m in (pupil, novice)]
    assert quality[0] > quality[1] + 0.05


def test_a_loaded_model_that_ranks_worse_than_chance_is_left_out(tmp_path: Path) -> None:
    features, scores, groups = kernels(400)
    liar, pupil, novice = Trees("offline"), Trees(), Trees()
    liar.fit(features, 1 - scores, groups)
    liar.save(tmp_path / "liar.npz")
    pupil.load(tmp_path / "liar.npz")
    for model in (pupil, novice):
        model.fit(features, scores, groups)
    np.testing.assert_array_equal(pupil.predict(features), novice.predict(features))


@pytest.mark.parametrize("objective", ["rank", "time", "both"])
def test_every_objective_ranks_kernels_that_were_not_seen(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    if objective != "rank":  # those that learn times do it in few rounds
        grow_few_rounds(monkeypatch)
    model = Trees("offline", objective)
    model.fit(*kernels(900, groups=6))
    features, scores, _ = kernels(500, seed=1)
    assert spearman(scores[scores > 0], model.predict(features)[scores > 0]) > 0.8


def test_the_level_of_time_is_learned_where_it_is_asked_for() -> None:
    model = Trees("offline", "time")
    features, scores, groups = kernels(900, groups=6)
    worked = scores > 0.05
    model.fit(features[worked], scores[worked], groups[worked])
    error = model.predict(features)[worked] - np.log2(scores[worked])
    assert np.abs(error).mean() < 0.3


def test_all_rows_are_learned_for_as_many_rounds_as_the_held_out_ones_say() -> None:
    """Whatever the training beside has done by then."""
    model, alone = Trees(), Trees()
    features, scores, groups = kernels(400)
    model.fit(features, scores, groups)
    assert model._grown is not None
    made = model._grown.trees
    rounds = made.booster.num_boosted_rounds()
    assert 1 < rounds < GROWTH["batch"].rounds
    booster = alone._train(alone._members[0], None, Lesson(features, scores, groups), rounds)
    np.testing.assert_array_equal(
        made.margins(features), booster.inplace_predict(features, predict_type="margin")
    )


def test_a_mistake_in_judging_ends_the_training_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> float:
        raise ZeroDivisionError

    monkeypatch.setattr(GroupedScores, "correlation", mistaken)
    with pytest.raises(ZeroDivisionError):
        Trees().fit(*kernels(400))


def test_learning_again_does_not_pile_up_trees(tmp_path: Path) -> None:
    model = Trees()
    sizes = []
    for _ in range(2):
        model.fit(*kernels(200))
        model.save(tmp_path / "model")
        sizes.append((tmp_path / "model").stat().st_size)
    assert sizes[0] == sizes[1]


def test_an_empty_model_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a model that has learned"):
        Trees().save(tmp_path / "model")


def test_rows_beyond_the_cap_are_left_out() -> None:
    most = GROWTH["batch"].rows
    features, scores, groups = kernels(most + 500, groups=3)
    every, some = Trees(), Trees()
    every.fit(features, scores, groups)
    rows = kept(scores, groups, most)
    some.fit(features[rows], scores[rows], groups[rows])
    np.testing.assert_array_equal(every.predict(features), some.predict(features))


def test_a_kernel_that_waits_while_others_are_measured_is_not_forgotten() -> None:
    """In one column the kernels are told apart: what makes one of them fast makes others slow."""
    others = GROWTH["batch"].rows
    features, _, _ = kernels(300 + others)
    groups = np.repeat([0, 1, 2], [300, others // 2, others // 2]).astype(np.int32)
    features[:, 3] = groups == 0
    effect = np.where(groups == 0, 1, -1) * features[:, 0]
    scores = np.exp2(effect - effect.max()).astype(np.float32)
    model = Trees()
    model.fit(features, scores, groups)
    asked = kernels(300, seed=1)[0]
    asked[:, 3] = 1
    assert spearman(asked[:, 0], model.predict(asked)) > 0.8


@pytest.mark.slow
def test_a_fit_takes_a_third_of_a_second_and_20000_predictions_a_tenth() -> None:
    model, rows = Trees(), kernels(GROWTH["batch"].rows, groups=4)
    fits, predictions = [], []
    for _ in range(3):
        start = time.perf_counter()
        model.fit(*rows)
        fits.append(time.perf_counter() - start)
        start = time.perf_counter()
        model.predict(np.resize(rows[0], (20_000, len(NAMES))))
        predictions.append(time.perf_counter() - start)
    assert min(fits) < 0.3
    assert min(predictions) < 0.1
