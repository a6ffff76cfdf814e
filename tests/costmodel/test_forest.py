"""Trees that are asked by machine code of our own say the very numbers that xgboost says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from hlotune.costmodel import forest
from hlotune.costmodel.forest import DEEPEST, Asked
from hlotune.costmodel.merge_forests import merged
from hlotune.costmodel.metrics import spearman
from hlotune.costmodel.pretrained import shipped
from hlotune.costmodel.trees import GROWTH, TOGETHER, Objective, Trees
from hlotune.schedules.features.summary import NAMES
from tests.support.few_rounds import grow_few_rounds
from tests.support.made_rows import kernels

Floats = NDArray[np.float32]


def rows(n: int, columns: int = len(NAMES)) -> Floats:
    return np.random.default_rng(7).standard_normal((n, columns)).astype(np.float32)


def grown(depth: int = 4, rounds: int = 9, before: Any = None, **parameters: Any) -> Any:
    """Trees on 400 rows of six columns."""
    told = rows(400, 6)
    label = told[:, 0] * told[:, 1] + np.sin(3 * told[:, 2])
    settings = {"max_depth": depth, "nthread": 1, "base_score": 0.0, **parameters}
    return xgboost.train(settings, xgboost.DMatrix(told, label), rounds, xgb_model=before)


def said_by_xgboost(booster: Any, asked: Floats) -> Floats:
    said = booster.inplace_predict(asked, predict_type="margin")
    return np.asarray(said, np.float32).reshape(len(asked))  # xgboost 3.4 gives (0, 0) for no rows


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 300])
@pytest.mark.parametrize("depth", [1, 3, 6, DEEPEST])
def test_sums_are_the_numbers_of_xgboost(n: int, depth: int) -> None:
    booster = grown(depth)
    asked = Asked(booster)
    assert asked.forests is not None
    np.testing.assert_array_equal(asked.margins(rows(n, 6)), said_by_xgboost(booster, rows(n, 6)))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_they_are_for_vectors_of_every_length(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "_lanes", lambda: lanes)
    booster = grown()
    np.testing.assert_array_equal(
        Asked(booster).margins(rows(50, 6)), said_by_xgboost(booster, rows(50, 6))
    )


def test_bounds_themselves_go_to_the_second_child() -> None:
    booster = grown()
    (found,) = Asked(booster).forests or ()
    bounds = np.unique(found.bounds[found.tests == 0])
    asked = np.repeat(bounds[:, None], 6, axis=1)
    np.testing.assert_array_equal(Asked(booster).margins(asked), said_by_xgboost(booster, asked))


def test_trees_of_one_leaf_say_what_it_says() -> None:
    booster = grown(min_child_weight=1e9, base_score=0.25)
    np.testing.assert_array_equal(
        Asked(booster).margins(rows(20, 6)), said_by_xgboost(booster, rows(20, 6))
    )


def test_a_model_that_grew_on_another_says_both() -> None:
    base = grown(6)
    booster = grown(3, rounds=4, before=base)
    asked = Asked(booster, Asked(base))
    assert [len(f.tests) for f in asked.forests or ()] == [9, 4]
    np.testing.assert_array_equal(asked.margins(rows(99, 6)), said_by_xgboost(booster, rows(99, 6)))


def test_what_is_missing_is_left_to_xgboost() -> None:
    booster, asked = grown(), rows(40, 6)
    asked[3, 1] = asked[17, 0] = np.nan
    np.testing.assert_array_equal(Asked(booster).margins(asked), said_by_xgboost(booster, asked))


def test_trees_that_are_too_deep_are_left_to_xgboost() -> None:
    booster = grown(DEEPEST + 2, min_child_weight=0)
    asked = Asked(booster)
    assert asked.forests is None
    np.testing.assert_array_equal(asked.margins(rows(40, 6)), said_by_xgboost(booster, rows(40, 6)))


@pytest.mark.parametrize("objective", ["both", "rank", "time"])
def test_every_objective_is_asked_so(objective: Objective) -> None:
    model = Trees(objective=objective)
    model.fit(*kernels(300, groups=3))
    assert model._grown is not None
    made = model._grown.trees
    assert made.forests is not None
    np.testing.assert_array_equal(made.margins(rows(70)), said_by_xgboost(made.booster, rows(70)))


def test_the_shipped_trees_are_asked_so_and_what_grows_on_them_too() -> None:
    path: Path | None = shipped("trees")
    assert path is not None
    model = Trees()
    model.load(path)
    for _ in range(2):
        assert model._grown is not None
        made = model._grown.trees
        assert made.forests is not None
        np.testing.assert_array_equal(
            made.margins(rows(70)), said_by_xgboost(made.booster, rows(70))
        )
        model.fit(*kernels(200, groups=2))


def test_forests_as_one_say_the_weighted_sum_of_what_they_say() -> None:
    several, weights = [grown(4), grown(6, rounds=5, base_score=0.5), grown(2)], [0.5, 1.25, -2.0]
    together = Asked(merged(several, weights))
    assert [len(f.tests) for f in together.forests or ()] == [9 + 5 + 9]
    begun = 1.25 * 0.5  # what the first begins with, nothing, is what all do
    sums = sum(w * said_by_xgboost(b, rows(99, 6)) for b, w in zip(several, weights, strict=True))
    sums = np.asarray(sums) - begun
    np.testing.assert_allclose(together.margins(rows(99, 6)), sums, rtol=1e-5, atol=1e-5)
    grown_on = grown(3, rounds=4, before=together.booster)
    np.testing.assert_array_equal(
        Asked(grown_on, together).margins(rows(99, 6)), said_by_xgboost(grown_on, rows(99, 6))
    )


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    grow_few_rounds(monkeypatch)


@pytest.mark.usefixtures("few_rounds")
def test_offline_trees_on_both_are_the_mean_of_forests_of_equal_spreads(tmp_path: Path) -> None:
    told = kernels(900, groups=6)
    together, alone = Trees("offline"), Trees("offline")
    alone._members = TOGETHER[:1]
    for model in (together, alone):
        model.fit(*told)
    together.save(tmp_path / "trees.npz")
    loaded = Trees()
    loaded.load(tmp_path / "trees.npz")
    asked = kernels(500, seed=1)[0]
    np.testing.assert_array_equal(loaded.predict(asked), together.predict(asked))
    assert rounds_of(together) > rounds_of(alone)
    spreads = [np.std(m.predict(told[0])) for m in (alone, together)]
    assert spreads[1] == pytest.approx(spreads[0], rel=0.2)


@pytest.mark.usefixtures("few_rounds")
def test_forests_that_grow_together_on_a_loaded_model_have_its_trees_once(tmp_path: Path) -> None:
    teacher, pupil = Trees("offline"), Trees("offline")
    teacher.fit(*kernels(900, groups=6))
    teacher.save(tmp_path / "trees.npz")
    pupil.load(tmp_path / "trees.npz")
    pupil.fit(*kernels(900, seed=5, groups=6))
    most = rounds_of(teacher) + len(TOGETHER) * GROWTH["offline"].rounds
    assert rounds_of(teacher) < rounds_of(pupil) <= most
    rows, scores, _ = kernels(500, seed=9)
    quality = [spearman(scores, m.predict(rows)) for m in (teacher, pupil)]
    assert quality[1] > quality[0] - 0.02


def rounds_of(model: Trees) -> int:
    assert model._grown is not None
    return int(model._grown.trees.booster.num_boosted_rounds())
