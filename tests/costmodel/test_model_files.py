"""Files of models say what they are; a run starts from the shipped one, another, or nothing."""

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel import files, pretrained
from hlotune.costmodel.export import write_foreign
from hlotune.costmodel.files import Header, Training, header_of
from hlotune.costmodel.inputs import columns
from hlotune.costmodel.model import MODELS
from hlotune.costmodel.roofline import log_speed
from hlotune.costmodel.trees import START, Trees
from hlotune.schedules.errors import ModelError
from tests.support.with_torch import with_torch

SEEN = Training(trials=640, kernels=("a", "b"), families=("f",), seed=3)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "roofline.npz"
    MODELS["roofline"]().save(path)
    return path


@pytest.fixture
def old_file(model_file: Path) -> Path:
    """A file of a model whose features are not today's."""
    files.write(model_file, Header("roofline", "0-elder"), {})
    return model_file


def test_a_file_tells_what_it_was_trained_on(model_file: Path) -> None:
    assert header_of(model_file).training is None
    files.annotate(model_file, SEEN)
    assert header_of(model_file).training == SEEN
    MODELS["roofline"]().load(model_file)


def test_arrays_come_back_as_they_were_written(tmp_path: Path) -> None:
    header = Header("trees", files.features_key("summary"))
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    files.write(tmp_path / "m", header, {"weights": weights})
    with files.arrays_of(tmp_path / "m", "trees", "summary") as arrays:
        np.testing.assert_array_equal(arrays["weights"], weights)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("trees", lambda booster: None),
        ("trees", np.zeros_like),
        ("trees", lambda booster: booster[:100]),
        with_torch("treegru", lambda weights: None),
        with_torch("treegru", lambda weights: weights[:1]),
        with_torch("treegru", lambda weights: np.full_like(weights, np.nan)),
    ],
)
def test_a_model_whose_arrays_are_spoiled_is_refused(
    name: str, change: Callable[[np.ndarray], np.ndarray | None], tmp_path: Path
) -> None:
    source = pretrained.shipped(name)
    assert source is not None
    header, arrays = files.read_file(source)
    largest = max(arrays, key=lambda k: arrays[k].size)
    changed = {**arrays, largest: change(arrays[largest])}
    files.write(tmp_path / "m", header, {k: v for k, v in changed.items() if v is not None})
    with pytest.raises(ModelError, match=r"got (one that is damaged or of another kind|a booster)"):
        pretrained.start(name, tmp_path / "m")


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ModelError, match=r"expected a model among ensemble, .*, got forest9; take"):
        pretrained.start("forest9")


def test_the_same_model_is_the_same_file(model_file: Path, tmp_path: Path) -> None:
    MODELS["roofline"]().save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == model_file.read_bytes()


@pytest.mark.parametrize("content", [b"", b"PK", b"no model", b"{}"])
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelError, match=r"expected a file of a cost model at .*tune model train"):
        header_of(tmp_path / "m")


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda path: path.write_text("no model"), "got one that is damaged or of another kind"),
        (lambda path: path.mkdir(), "got Is a directory"),
        (lambda path: None, "got No such file or directory"),
    ],
)
def test_a_refusal_says_what_is_at_the_path(
    make: Callable[[Path], object], got: str, tmp_path: Path
) -> None:
    make(tmp_path / "m")
    with pytest.raises(ModelError, match=f"/m, {got}; `tune model train`"):
        header_of(tmp_path / "m")


def test_a_file_with_any_byte_spoiled_is_refused_in_words_or_read(tmp_path: Path) -> None:
    path, weights = tmp_path / "m", np.arange(64, dtype=np.float32)
    files.write(path, Header("trees", "1-x", SEEN), {"weights": weights})
    whole, refused = path.read_bytes(), 0
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            header_of(path)
        except ModelError:
            refused += 1
    assert refused > len(whole) // 2


def test_a_file_that_cannot_be_finished_leaves_the_old_one(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model_file.read_bytes()

    def full(path: Path, content: bytes) -> int:
        path.open("wb").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        files.annotate(model_file, SEEN)
    assert model_file.read_bytes() == before
    assert list(model_file.parent.iterdir()) == [model_file]


@pytest.mark.parametrize(("features", "named"), [("today", True), ("0-elder", False)])
def test_exported_trees_name_features_of_their_own_version(
    features: str, named: bool, tmp_path: Path
) -> None:
    source = pretrained.shipped("trees")
    assert source is not None
    header, arrays = files.read_file(source)
    key = files.features_key("summary") if features == "today" else features
    files.write(tmp_path / "m", dataclasses.replace(header, features=key), arrays)
    write_foreign(tmp_path / "m", tmp_path / "m.json")
    learner = json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["learner"]
    assert learner["feature_names"] == (list(columns("summary")) if named else [])
    assert float(learner["attributes"]["start"]) == float(arrays["start"])


def test_trees_of_a_file_without_a_start_began_at_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, len(columns("summary")))).astype(np.float32)
    model = Trees()
    model.fit(rows, rng.random(200).astype(np.float32), np.zeros(200, np.int32))
    model.save(tmp_path / "m")
    header, arrays = files.read_file(tmp_path / "m")
    files.write(tmp_path / "old", header, {"booster": arrays["booster"]})
    old = Trees()
    old.load(tmp_path / "old")
    begun = START * log_speed(rows)
    np.testing.assert_allclose(old.predict(rows) + begun, model.predict(rows), atol=1e-5)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a file of a cost model"):
        header_of(tmp_path / "missing")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    header = dataclasses.replace(Header("trees", "1-x"), format=files.FORMAT + 1)
    files.write(tmp_path / "m", header, {})
    with pytest.raises(ModelError, match="expected a model file of format 2 or older, got 3"):
        header_of(tmp_path / "m")


def test_other_features_are_refused(old_file: Path) -> None:
    with pytest.raises(ModelError, match=r"expected a model of features .*, got 0-elder"):
        MODELS["roofline"]().load(old_file)


def test_without_a_shipped_model_a_run_starts_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    begun = pretrained.start("trees-time")
    assert not begun.model.knows
    assert begun.words == "trees-time, untrained"
    assert begun.digest is None


def test_a_run_starts_from_the_shipped_model(
    model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.annotate(model_file, SEEN)
    monkeypatch.setattr(pretrained, "FOLDER", model_file.parent)
    begun = pretrained.start("roofline")
    assert begun.words == "roofline, trained on 640 trials of 2 kernels"
    assert begun.digest is not None


def test_a_shipped_model_of_other_features_is_left_alone_and_so_said(
    old_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", old_file.parent)
    begun = pretrained.start("roofline")
    assert begun.words == "roofline, untrained: the shipped one is of other features"
    assert begun.digest is None


def test_a_file_that_was_asked_for_must_fit(old_file: Path) -> None:
    with pytest.raises(ModelError, match="expected a model of features"):
        pretrained.start("roofline", old_file)


def test_another_file_is_taken_instead_of_the_shipped_one(
    model_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", model_file.parent)
    (tmp_path / "own").mkdir()
    own = Path(shutil.copy(model_file, tmp_path / "own" / "mine"))
    files.annotate(own, SEEN)
    begun = pretrained.start("roofline", own)
    assert begun.words == "roofline, trained on 640 trials of 2 kernels"
