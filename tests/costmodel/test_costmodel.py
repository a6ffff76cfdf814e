"""What every cost model does: it says numbers, keeps them, and learns from what is sound."""

import time
from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel.inputs import Features, Inputs, columns, require_rows, taken
from hlotune.costmodel.model import MODELS, CostModel
from hlotune.costmodel.roofline import TIME
from hlotune.schedules.errors import ModelError
from hlotune.schedules.features.loop_trees import NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import NAMES
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
