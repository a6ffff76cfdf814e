"""ONNX Runtime and OpenVINO themselves, on models that are written of programs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.deploy.apply import applied
from hlotune.deploy.bench import prepared
from hlotune.deploy.exported import exported
from hlotune.deploy.rivals import contest
from hlotune.deploy.rivals.contest import contested
from hlotune.deploy.rivals.runtimes import RUNTIMES, Runtime
from hlotune.hlo.frontends.program import load
from hlotune.tuning_logs.database import Database
from tests.deploy.test_to_onnx import FAMILIES, normal
from tests.examples.test_examples import SMALL, source

pytestmark = pytest.mark.frameworks


NOT_TAKEN = {
    ("openvino", "gpt2:small"): "process of OpenVINO ended with -11",
    ("openvino", "llama:small"): "OpenVINO does not take the model: TypeError: expected element",
    ("openvino", "llama:small_decode"): "OpenVINO does not take the model: TypeError: expected el",
    ("onnxruntime", "llama:small"): "ONNX Runtime does not take the model: NotImplemented",
    ("onnxruntime", "llama:small_decode"): "ONNX Runtime does not take the model: NotImplemented",
}
"""OpenVINO 2026.4.1 ends its process at an addition behind a product of GPT-2; neither runtime runs
the decoder in bf16."""


def require_checked(program: Any, folder: Path, runtime: Runtime) -> None:
    done = exported(program, folder / "model.onnx", runtime=runtime)
    assert done.not_checked is None
    assert done.checked_by and done.checked_by.startswith(runtime.name)
    assert all(a.wrong is None for a in done.accuracy)


@pytest.mark.parametrize("function, arguments", FAMILIES)
def test_onnx_runtime_gives_the_right_results_of_every_family(
    function: Callable[..., Any], arguments: tuple[Any, ...], tmp_path: Path
) -> None:
    require_checked(load(function, *arguments), tmp_path, RUNTIMES["onnxruntime"])


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=RUNTIMES)
def test_an_example_runs_elsewhere(name: str, runtime: Runtime, tmp_path: Path) -> None:
    refusal = NOT_TAKEN.get((runtime.package, name))
    if refusal is not None:
        done = exported(load(source(name)), tmp_path / "model.onnx", runtime=runtime)
        assert done.not_checked and refusal in done.not_checked
    else:
        require_checked(load(source(name)), tmp_path, runtime)


def test_what_the_reference_implementation_gets_wrong_runs_elsewhere(tmp_path: Path) -> None:
    """Largest elements of long lines, and transposed convolutions in groups."""
    weights = jnp.asarray(normal(3, 2, 2, 6))

    def function(x: Any) -> Any:
        moved = lax.conv_general_dilated(
            x, weights, (1, 1), ((1, 1), (1, 1)), lhs_dilation=(2, 2), feature_group_count=2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )  # fmt: skip
        return lax.cummax(x, 1), moved

    require_checked(load(function, normal(2, 5, 6, 4)), tmp_path, RUNTIMES["onnxruntime"])


def test_both_are_timed_beside_xla_and_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "ROUNDS", 6)
    program = load(lambda x: jnp.tanh(x @ x.T), normal(64, 64))
    Database(tmp_path / "empty.db").close()
    tuned = applied(program, database=tmp_path / "empty.db")
    found = contested(prepared(program), tuned)
    assert [s.name for s in found] == ["XLA", "hlotune", "ONNX Runtime", "OpenVINO"]
    assert all(len(s.samples_s) == 6 and min(s.samples_s) > 0 for s in found)
    assert all(np.isfinite(a.tuned_error) for s in found for a in s.accuracy)
