"""Trees that numpy asks say what xgboost says, and files of others are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from hlotune.costmodel.files import write_arrays
from hlotune.costmodel.tree_tables import load, tables_of
from hlotune.schedules.errors import ModelError

DEPTH = 4


def rows(n: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).integers(-3, 4, (n, 6)).astype(np.float32)


def grown(rounds: int = 12) -> Any:
    told = rows(300)
    label = told[:, 0] * told[:, 1] + np.sin(3 * told[:, 2])
    settings = {"max_depth": DEPTH, "nthread": 1, "base_score": 0.0, "gamma": 20.0}
    return xgboost.train(settings, xgboost.DMatrix(told, label), rounds)


def test_sums_are_those_of_xgboost_on_bounds_too() -> None:
    booster = grown()
    dumped = booster.get_dump(dump_format="json")
    assert min(text.count("leaf") for text in dumped) < 2**DEPTH  # some are not full
    said = booster.predict(xgboost.DMatrix(rows(500)))
    assert said.std() > 0.1
    np.testing.assert_allclose(tables_of(dumped, DEPTH).predict(rows(500)), said, atol=1e-5)


def test_trees_come_back_from_a_file_for_the_features_that_they_read(tmp_path: Path) -> None:
    trees, file = tables_of(grown().get_dump(dump_format="json"), DEPTH), tmp_path / "trees.npz"
    trees.save(file, "gpu-1")
    again = load(file, "gpu-1")
    np.testing.assert_array_equal(again.predict(rows(50)), trees.predict(rows(50)))
    with pytest.raises(ModelError, match="expected trees of features gpu-2, got gpu-1"):
        load(file, "gpu-2")


def test_files_that_are_no_trees_are_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "trees.npz"
    with pytest.raises(ModelError, match=r"expected a file of trees at .*, got none"):
        load(file, "gpu-1")
    key = np.frombuffer(b"gpu-1", np.uint8)
    feature, value = np.zeros((2, 7), np.int32), np.zeros((2, 7), np.float32)
    write_arrays(file, key=key, feature=feature, threshold=value, value=value)
    with pytest.raises(ModelError, match="trees whose arrays do not fit one another"):
        load(file, "gpu-1")
