"""The table of models from ONNX against the same in JAX."""

from pathlib import Path

import numpy as np

from benchmarks.onnx_images import Line, from_onnx, made, table, timed


def test_the_ratio_is_the_time_from_onnx_over_that_from_jax() -> None:
    line = Line("a.py:model", (2e-3,) * 11, (3e-3,) * 11, 1e-7, 4, 5)
    (row,) = table([line]).rows
    assert row == ["a.py:model", "2", "3", "1.500", "1.500 to 1.500", "4 of 5", "1.0e-07"]


def test_sides_take_turns() -> None:
    calls: list[str] = []
    samples = timed({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert "".join(calls) == "bbbaaaaaabbb"
    assert {len(found) for found in samples.values()} == {2}


def test_the_onnx_model_takes_the_image_with_channels_first(tmp_path: Path) -> None:
    function, image = made("examples/squeezenet.py:small")
    program = from_onnx(function, image, tmp_path / "model.onnx")
    assert program.graph.argument_types[0].shape == tuple(np.transpose(image, (0, 3, 1, 2)).shape)
