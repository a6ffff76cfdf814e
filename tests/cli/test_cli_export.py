"""`tune export` writes a program as an ONNX model and says whether a runtime has checked it."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from hlotune.cli.bench import print_standings
from hlotune.cli.main import run_command
from hlotune.deploy.rivals.contest import Standing
from hlotune.deploy.rivals.runtimes import RUNTIMES
from tests.support.call_times import calls_take
from tests.support.stand_in_runtime import install

EXPORT = ("export", "--onnx", "examples/mlp.py:batch_1000")


def test_a_program_is_written_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch)
    out = tmp_path / "mlp.onnx"
    assert run_command([*EXPORT, "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "batch_1000 as " in said and "nodes of ONNX, opset 18" in said
    assert "ONNX Runtime 0.0.1 gives the right results of it, on example and on random arg" in said
    (x,) = onnx.load(out).graph.input
    assert [d.dim_value for d in x.type.tensor_type.shape.dim] == [1000, 784]


def test_what_takes_long_is_said_to_be_checked_on_the_example_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, monkeypatch)
    calls_take(10.0, monkeypatch)
    assert run_command([*EXPORT, "-o", str(tmp_path / "mlp.onnx")]) == 0
    said = capsys.readouterr().out
    assert "gives the right results of it, on example arguments: relative error" in said


def test_without_a_runtime_the_results_are_said_not_to_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(RUNTIMES["onnxruntime"]), "absent", "not installed: pip install it")
    assert run_command([*EXPORT, "-o", str(tmp_path / "mlp.onnx"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["not_checked"] == "ONNX Runtime is not installed: pip install it"
    assert told["checked_by"] is None and told["accuracy"] == []
    assert told["inputs"] == ["x"] and told["bytes"] == (tmp_path / "mlp.onnx").stat().st_size


def test_what_cannot_be_exported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model.onnx"

    def refused(*command: str) -> str:
        assert run_command([*command, "-o", str(out)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and not out.exists()
        return said

    assert "expected the form to write, got none; name it: --onnx" in refused(
        "export", "examples/mlp.py:model"
    )
    (tmp_path / "transform.py").write_text("import jax.numpy as jnp\ntransform = jnp.fft.rfft\n")
    source = f"{tmp_path}/transform.py:transform"
    assert "written to ONNX, got stablehlo.fft; leave them out of the program" in refused(
        "export", "--onnx", source, "--arg", "f32[8]"
    )
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert "pip install 'hlotune[onnx]'" in refused(*EXPORT)


def test_standings_show_speeds_against_xla_and_what_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spread = np.linspace(0.99, 1.01, 8)
    print_standings(
        [
            Standing("XLA", "", tuple(2e-3 * spread)),
            Standing("hlotune", "", tuple(1e-3 * spread)),
            Standing("OpenVINO", absent="not installed: pip install openvino"),
        ]
    )
    said = capsys.readouterr().out
    assert "2.00x" in said and "2.00 ms" in said
    assert "OpenVINO: not installed: pip install openvino" in said
