"""Networks of Keras, flax, equinox and haiku are programs like any other."""

import importlib
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.cli.main import run_command
from hlotune.deploy.apply import apply
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from tests.support.tree import ROOT

pytestmark = pytest.mark.frameworks

NETWORKS = ("keras", "linen", "nnx", "equinox", "haiku")


def result_of(function: Any, arguments: Any) -> np.ndarray:
    return np.asarray(jax.tree.leaves(function(*arguments))[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_tuned_and_gives_what_its_framework_gives(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module(f"examples.frameworks.{name}_images")
    network, arguments = module.model()
    wanted = result_of(network, arguments)
    assert wanted.size in (10, 80) and abs(wanted.sum() - wanted.size / 10) < 1e-4
    program = load(network, *arguments)
    np.testing.assert_allclose(result_of(jitted(program), arguments), wanted, atol=1e-5)
    source, database = f"{ROOT}/examples/frameworks/{name}_images.py:model", tmp_path / "a.db"
    command = ["run", source, "--trials", "4", "--database", str(database)]
    assert run_command([*command, "--quiet", "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert any(k["decision"] in ("tuned", "kept xla") for k in kernels), kernels
    tuned = apply(program, database=database)
    np.testing.assert_allclose(result_of(tuned, arguments), wanted, atol=1e-5)
