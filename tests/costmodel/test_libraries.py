"""Cost models whose library is not installed say so in one line, and how to install it.

`tests/cli/test_fresh_commands.py` searches without them.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.costmodel import pretrained
from tests.support.commands import tune_lacking
from tests.support.tree import ROOT

PRODUCT = """
import jax.numpy as jnp

def model():
    return (lambda x, w: x @ w), (jnp.ones((32, 24)), jnp.ones((24, 40)))
"""
STARTED = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from hlotune.costmodel.pretrained import start
from hlotune.schedules.errors import HlotuneError
for model in sys.argv[2:]:
    try:
        start(model)
    except HlotuneError as error:
        print(error)
"""
"""Makes models where some libraries, with commas between, are not installed."""


def started(without: str, *models: str) -> list[str]:
    """What making each of these models says."""
    words = [sys.executable, "-c", STARTED, without, *models]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture
def run(tmp_path: Path) -> list[str]:
    """The command that tunes a tiny product, in a folder whose name is two words."""
    product = tmp_path / "tiny product" / "product.py"
    product.parent.mkdir()
    product.write_text(PRODUCT, encoding="utf-8")
    return ["run", f"{product}:model", "--trials", "2", "--database", str(tmp_path / "t.db")]


def test_networks_without_torch_name_the_command_that_installs_it(
    run: list[str], tmp_path: Path
) -> None:
    assert started("torch", "mlp", "treegru", "ensemble") == [
        f"the model {needs} needs the library torch, which is not installed; install it with "
        "`pip install torch`, or choose another model"
        for needs in ("mlp", "treegru", "mlp")
    ]
    done = tune_lacking("torch", *run, "--model", "treegru")
    assert done.returncode == 2
    assert "\ntune: the model treegru needs the library torch" in f"\n{done.stderr}"
    assert not (tmp_path / "t.db").exists()


def test_trees_without_xgboost_name_the_command_that_installs_it(
    run: list[str], tmp_path: Path
) -> None:
    models = ("trees", "trees-rank", "trees-time")
    assert started("xgboost", *models) == [
        f"the model {model} needs the library xgboost, which is not installed; install it "
        "with `pip install xgboost-cpu`, or choose another model"
        for model in models
    ]
    done = tune_lacking("xgboost", *run, "--model", "trees")
    assert done.returncode == 2
    assert "\ntune: the model trees needs the library xgboost" in f"\n{done.stderr}"
    assert not (tmp_path / "t.db").exists()


def test_exporting_trees_without_xgboost_names_the_command_that_installs_it(tmp_path: Path) -> None:
    source, out = pretrained.shipped("trees"), tmp_path / "trees.json"
    words = ("model", "export", "--file", str(source), "-o", str(out))
    done = tune_lacking("xgboost", *words)
    assert done.returncode == 2
    assert "trees needs the library xgboost, which is not installed" in done.stderr
    assert not out.exists()
