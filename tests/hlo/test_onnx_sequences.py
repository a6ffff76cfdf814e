"""Sequences of tensors inside of ONNX models are taken apart while the model is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.support.onnx_models import model, node, tensor

X = np.arange(15, dtype=np.float32).reshape(3, 5)


def computed(nodes: list[Any], folder: Path, **stored: Any) -> Any:
    made = model(nodes, [tensor("x", [3, 5])], [tensor("y", None)], stored)
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    (y,) = jitted(load(path))(X)
    return np.asarray(y)


def test_parts_of_a_tensor_are_put_together_again(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x sizes", "s", axis=1),
        node("SequenceAt", "s last", "z"),
        node("SequenceInsert", "s z first", "t"),
        node("SequenceErase", "t", "u"),
        node("ConcatFromSequence", "u", "y", axis=1),
    ]
    y = computed(nodes, tmp_path, sizes=np.array([2, 3]), last=np.int64(-1), first=np.int64(0))
    np.testing.assert_array_equal(y, np.concatenate([X[:, 2:], X[:, :2]], 1))


def test_rows_are_stacked_along_another_axis(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x", "rows", keepdims=0),
        node("SequenceLength", "rows", "n"),
        node("Cast", "n", "f", to=1),
        node("ConcatFromSequence", "rows", "z", axis=1, new_axis=1),
        node("Mul", "z f", "y"),
    ]
    np.testing.assert_array_equal(computed(nodes, tmp_path), 3 * X.T)


def test_parts_of_one_size_end_with_a_smaller_one(tmp_path: Path) -> None:
    nodes = [node("SplitToSequence", "x size", "s", axis=1), node("SequenceAt", "s place", "y")]
    y = computed(nodes, tmp_path, size=np.int64(2), place=np.int64(2))
    np.testing.assert_array_equal(y, X[:, 4:])


@pytest.mark.parametrize(
    "nodes, stored, message",
    [
        (
            [node("SequenceConstruct", "x x", "s"), node("SequenceAt", "s k", "y")],
            {"k": np.int64(2)},
            "SequenceAt of position 2 among 2; give one that is there",
        ),
        (
            [node("SequenceEmpty", "", "e"), node("SequenceInsert", "e x k", "s"),
             node("SequenceAt", "s zero", "y")],
            {"k": np.int64(1), "zero": np.int64(0)},
            "SequenceInsert at position 1 of 0; give one that is there",
        ),
        ([node("SequenceAt", "x k", "y")], {"k": np.int64(0)}, "of a value that is no sequence"),
        (
            [node("SplitToSequence", "x k", "s"), node("ConcatFromSequence", "s", "y", axis=0)],
            {"k": np.array([1, 1])},
            r"into parts of \[1, 1\] of an axis of 3; give sizes that add up",
        ),
        (
            [node("SplitToSequence", "x k", "s"), node("ConcatFromSequence", "s", "y", axis=0)],
            {"k": np.int64(0)},
            "into parts of 0; give a size above 0",
        ),
    ],
)  # fmt: skip
def test_what_is_not_there_is_told(
    nodes: list[Any], stored: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ProgramError, match=message):
        computed(nodes, tmp_path, **stored)
