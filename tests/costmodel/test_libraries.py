"""Cost models whose library is not installed say so in one line, and how to install it."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.costmodel import pretrained
from tests.support.tree import ROOT

WITHOUT = """
import shlex, sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing one of these fails now
from hlotune.cli.main import run_command
sys.exit(min(run_command(shlex.split(command)) for command in sys.argv[2:]))
"""
PRODUCT = """
import jax.numpy as jnp

def model():
    return (lambda x, w: x @ w), (jnp.ones((32, 24)), jnp.ones((24, 40)))
"""


def tune(without: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """Commands of `tune`, quoted as for a shell, in a process in which some libraries, with commas
    between, are not installed; it ends with the least of their exit codes.
    """
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, without, *commands],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> str:
    """The command that tunes a tiny product, in a folder whose name is two words."""
    product = tmp_path / "tiny product" / "product.py"
    product.parent.mkdir()
    product.write_text(PRODUCT, encoding="utf-8")
    options = ("--trials", "2", "--database", str(tmp_path / "t.db"))
    return shlex.join(("run", f"{product}:model", *options))


def test_networks_without_torch_name_the_command_that_installs_it(run: str, tmp_path: Path) -> None:
    done = tune("torch", *(f"{run} --model {model}" for model in ("mlp", "treegru", "ensemble")))
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("tune: ")] == [
        f"tune: the model {needs} needs the library torch, which is not installed; install it with "
        "`pip install torch`, or choose another model"
        for needs in ("mlp", "treegru", "mlp")
    ]
    assert not (tmp_path / "t.db").exists()


def test_trees_without_xgboost_name_the_command_that_installs_it(run: str, tmp_path: Path) -> None:
    models = ("trees", "trees-rank", "trees-time")
    done = tune("xgboost", *(f"{run} --model {model}" for model in models))
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if line.startswith("tune: ")] == [
        f"tune: the model {model} needs the library xgboost, which is not installed; install it "
        "with `pip install xgboost-cpu`, or choose another model"
        for model in models
    ]
    assert not (tmp_path / "t.db").exists()


def test_exporting_trees_without_xgboost_names_the_command_that_installs_it(tmp_path: Path) -> None:
    source, out = pretrained.shipped("trees"), tmp_path / "trees.json"
    words = ("model", "export", "--file", str(source), "-o", str(out))
    done = tune("xgboost", shlex.join(words))
    assert done.returncode == 2
    assert "trees needs the library xgboost, which is not installed" in done.stderr
    assert not out.exists()


def test_a_search_by_the_roofline_needs_neither(run: str) -> None:
    done = tune("torch,xgboost", f"{run} --model roofline")
    assert done.returncode == 0, done.stderr


def test_a_search_by_the_default_model_needs_no_torch(run: str) -> None:
    done = tune("torch", run)
    assert done.returncode == 0, done.stderr
