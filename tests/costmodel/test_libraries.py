"""Cost models whose library is not installed say so in one line, and how to install it."""

import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.costmodel import pretrained
from tests.support.tree import ROOT

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing one of these fails now
from hlotune.cli.main import run_command
sys.exit(run_command(sys.argv[2:]))
"""
MLP = ("run", "examples/mlp.py:model", "--trials", "2")


def tune(without: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tune` in a process in which some libraries, with commas between, are not installed."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, without, *arguments],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("model", ["mlp", "treegru", "ensemble"])
def test_networks_without_torch_name_the_command_that_installs_it(
    model: str, tmp_path: Path
) -> None:
    done = tune("torch", *MLP, "--model", model, "--database", str(tmp_path / "t.db"))
    needs = "mlp" if model == "ensemble" else model
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"tune: the model {needs} needs the library torch, which is not installed; install it with "
        "`pip install torch`, or choose another model"
    )
    assert not (tmp_path / "t.db").exists()


@pytest.mark.parametrize("model", ["trees", "trees-rank", "trees-time"])
def test_trees_without_xgboost_name_the_command_that_installs_it(
    model: str, tmp_path: Path
) -> None:
    done = tune("xgboost", *MLP, "--model", model, "--database", str(tmp_path / "t.db"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"tune: the model {model} needs the library xgboost, which is not installed; install it "
        "with `pip install xgboost-cpu`, or choose another model"
    )
    assert not (tmp_path / "t.db").exists()


def test_exporting_trees_without_xgboost_names_the_command_that_installs_it(tmp_path: Path) -> None:
    source, out = pretrained.shipped("trees"), tmp_path / "trees.json"
    done = tune("xgboost", "model", "export", "--file", str(source), "-o", str(out))
    assert done.returncode == 2
    assert "trees needs the library xgboost, which is not installed" in done.stderr
    assert not out.exists()


def test_a_search_by_the_roofline_needs_neither(tmp_path: Path) -> None:
    database = str(tmp_path / "t.db")
    done = tune("torch,xgboost", *MLP, "--model", "roofline", "--database", database)
    assert done.returncode == 0, done.stderr


def test_a_search_by_the_default_model_needs_no_torch(tmp_path: Path) -> None:
    done = tune("torch", *MLP, "--database", str(tmp_path / "t.db"))
    assert done.returncode == 0, done.stderr
