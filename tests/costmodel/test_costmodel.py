"""Models rank what they have seen and what they have not."""

import time
from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel.inputs import Features, Inputs, columns, require_rows, taken
from hlotune.costmodel.metrics import GroupedScores, pairwise_accuracy, spearman
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.pairwise_gradients import (
    LEVEL,
    PARTNERS,
    both_gradients,
    drawn_partners,
    sums,
)
from hlotune.costmodel.random_model import RandomModel
from hlotune.costmodel.roofline import TIME, Roofline
from hlotune.costmodel.row_selection import kept
from hlotune.costmodel.trees import GROWTH, Lesson, Objective, Trees
from hlotune.schedules.errors import ModelError
from hlotune.schedules.features.loop_trees import NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import NAMES
from tests.support.few_rounds import grow_few_rounds
from tests.support.made_rows import Groups, Scores, kernels
from tests.support.with_torch import every_model


@pytest.fixture(params=every_model(sorted(MODELS)))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(name: str) -> CostModel:
    return MODELS[name]()


def of_kind(model: CostModel, n: int, groups: int = 1) -> tuple[Inputs, Scores, Groups]:
    """`kernels`, in the form that the model reads: the trees are roots alone."""
    features, scores, group = kernels(n, groups)
    return as_read(model, features), scores, group


def as_read(model: CostModel, features: Features) -> Inputs:
    if model.reads == "summary":
        return features
    values = np.zeros((len(features), 1, len(NODE_NAMES)), np.float32)
    values[:, 0, :24] = features[:, :24]
    return Nodes(values, np.full((len(features), 1), ROOT_PARENT, np.int16))


class TestEveryModel:
    def test_predicts_one_number_a_row(self, model: CostModel) -> None:
        features, scores, groups = of_kind(model, 100)
        model.fit(features, scores, groups)
        predicted = model.predict(taken(features, slice(7)))
        assert predicted.shape == (7,)
        assert predicted.dtype == np.float32

    def test_predicts_the_same_after_the_same_fit(self, model: CostModel) -> None:
        features, scores, groups = of_kind(model, 300, groups=2)
        model.fit(features, scores, groups)
        before = model.predict(features)
        model.fit(features, scores, groups)
        np.testing.assert_array_equal(model.predict(features), before)

    def test_predicts_the_same_after_saving_and_loading(
        self, name: str, model: CostModel, tmp_path: Path
    ) -> None:
        features, scores, groups = of_kind(model, 200)
        model.fit(features, scores, groups)
        model.save(tmp_path / "model")
        other = MODELS[name]()
        other.load(tmp_path / "model")
        assert other.knows
        np.testing.assert_array_equal(other.predict(features), model.predict(features))

    def test_says_whether_it_knows_anything(self, model: CostModel) -> None:
        rows = of_kind(model, 5)[0]
        if not isinstance(rows, Nodes):
            rows[:, TIME] = range(5)
        assert model.knows == bool(model.predict(rows).any())
        model.fit(*of_kind(model, 100))
        assert model.knows

    def test_does_not_load_the_file_of_another_model(
        self, name: str, model: CostModel, tmp_path: Path
    ) -> None:
        other = MODELS["random" if name != "random" else "roofline"]()
        other.save(tmp_path / "model")
        with pytest.raises(ModelError, match=f"expected a file of the model {name}, got one of"):
            model.load(tmp_path / "model")

    def test_survives_a_batch_in_which_everything_failed(self, model: CostModel) -> None:
        features, _, groups = of_kind(model, 64)
        model.fit(features, np.zeros(64, np.float32), groups)
        assert np.isfinite(model.predict(features)).all()

    def test_learns_nothing_from_what_is_no_number(self, model: CostModel) -> None:
        inputs, scores, groups = of_kind(model, 60)
        scores[7] = np.nan
        with pytest.raises(ValueError, match="expected finite scores, got nan in row 7"):
            model.fit(inputs, scores, groups)
        inputs, scores, groups = of_kind(model, 60)
        (inputs.values if isinstance(inputs, Nodes) else inputs)[5, ..., 2] = np.inf
        with pytest.raises(ValueError, match="expected finite features, got inf in row 5"):
            model.fit(inputs, scores, groups)

    def test_takes_rows_of_its_own_features_alone(self, model: CostModel) -> None:
        inputs, scores, groups = of_kind(model, 60)
        narrow = cut(inputs)
        wide = len(columns(model.reads))
        said = rf"expected rows of {wide} features, got an array of shape .*{wide - 1}\)"
        with pytest.raises(ValueError, match=said):
            model.predict(narrow)
        with pytest.raises(ValueError, match=said):
            model.fit(narrow, scores, groups)
        model.fit(inputs, scores, groups)
        with pytest.raises(ValueError, match=said):
            model.predict(narrow)

    def test_learns_from_rows_with_a_score_and_a_group_each(self, model: CostModel) -> None:
        inputs, scores, groups = of_kind(model, 60)
        said = "expected a score and a group for each of 60 rows, got 59 scores and 60 groups"
        with pytest.raises(ValueError, match=said):
            model.fit(inputs, scores[:-1], groups)


def cut(inputs: Inputs) -> Inputs:
    """Without the last feature."""
    if isinstance(inputs, Nodes):
        return Nodes(inputs.values[..., :-1], inputs.parent)
    return inputs[:, :-1]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [0, 16])
def test_looking_at_2048_rows_takes_less_than_a_twentieth_of_a_millisecond(slots: int) -> None:
    """Which a search does some hundred times for a batch."""
    n = 2048
    rows: Inputs = np.zeros((n, len(NAMES)), np.float32)
    if slots:
        values = np.zeros((n, slots, len(NODE_NAMES)), np.float32)
        rows = Nodes(values, np.full((n, slots), ROOT_PARENT, np.int16))
    start = time.perf_counter()
    for _ in range(100):
        require_rows(rows, "nodes" if slots else "summary")
    assert time.perf_counter() - start < 100 * 5e-5


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


@pytest.mark.parametrize("name", every_model(sorted(set(MODELS) - {"random", "roofline"})))
def test_failures_teach_every_model_that_learns(name: str) -> None:
    """What fails shows in one feature; of rows that none has learned, those come last."""
    learned, scores, groups = kernels(600)
    asked, truth, _ = kernels(600, seed=1)
    learned[:, 3], asked[:, 3] = scores == 0, truth == 0
    model = MODELS[name]()
    model.fit(as_read(model, learned), scores, groups)
    predicted = model.predict(as_read(model, asked))
    assert np.median(predicted[truth == 0]) < np.quantile(predicted[truth > 0], 0.1)


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


def in_order(n: int, groups: int) -> tuple[Scores, Groups]:
    """Scores of some kernels, kernel by kernel."""
    _, scores, group = kernels(n, groups)
    order = np.argsort(group, kind="stable")
    return scores[order], group[order]


def test_partners_are_drawn_from_all_of_the_same_kernel() -> None:
    _, groups = in_order(300, 5)
    partners = drawn_partners(groups, 40)(np.random.default_rng(0))
    assert partners.shape == (300, 40)
    assert (groups[partners] == groups[:, None]).all()
    assert len(np.unique(partners)) == 300


def test_gradients_are_those_of_a_logistic_loss_on_pairs_and_of_the_level() -> None:
    labels, groups = in_order(60, 3)
    margins = np.random.default_rng(1).standard_normal(60).astype(np.float32)
    partners = drawn_partners(groups)(np.random.default_rng(0))  # the first that are drawn
    grad, curve = LEVEL * (margins - labels), np.full(60, LEVEL)
    for one, others in enumerate(partners):
        for other in others:
            if labels[one] == labels[other]:
                continue
            better, worse = (one, other) if labels[one] > labels[other] else (other, one)
            doubt = 1 / (1 + np.exp(float(margins[better] - margins[worse])))
            grad[[better, worse]] += np.array([-doubt, doubt]) / PARTNERS
            curve[[better, worse]] += doubt * (1 - doubt) / PARTNERS
    found = both_gradients(labels, groups)(margins, None)
    np.testing.assert_allclose(found[0], grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], curve, rtol=1e-5)


def test_sums_of_pairs_are_those_of_numpy_to_the_bit() -> None:
    """So that trees do not hang on how they are computed."""
    pairs = np.random.default_rng(0).standard_normal((500, PARTNERS)) ** 9
    np.testing.assert_array_equal(sums(pairs), pairs.sum(axis=1))


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


def test_the_random_model_ranks_at_chance_and_says_the_same_twice() -> None:
    features, scores, _ = kernels(2000)
    model = RandomModel(seed=3)
    predicted = model.predict(features)
    assert abs(spearman(scores, predicted)) < 0.1
    np.testing.assert_array_equal(model.predict(features[10:20]), predicted[10:20])
    assert (RandomModel(seed=4).predict(features) != predicted).any()
