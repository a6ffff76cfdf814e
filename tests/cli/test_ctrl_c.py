"""Ctrl-C at a running `tune`, as a terminal sends it: what was found is said, kept, and gone on
with."""

import json
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xgboost

from hlotune.cli import main
from hlotune.cli.main import run_command
from hlotune.costmodel.training_budget import FEWEST_ROWS
from hlotune.costmodel.trees import Trees
from tests.support.commands import tune_interrupted
from tests.support.made_rows import kernels
from tests.support.tree import ROOT

PROGRAM = """
import jax.numpy as jnp

WIDTHS = (32, 48, 64)

def model():
    def layers(x, *weights):
        for w in weights:
            x = jnp.tanh(x @ w)
        return x
    return layers, (jnp.ones((32, 32)), *(jnp.ones(s) for s in zip(WIDTHS, WIDTHS[1:])))
"""

"""A program of several kernels, so that neither search nor comparison is over before a signal
comes.
"""


def interrupted(words: list[str], *, at: str) -> tuple[str, str]:
    """What a command of `tune` that was interrupted when it said `at` printed: stdout, stderr."""
    run = tune_interrupted(at, *words)
    assert at in run.stderr
    assert run.returncode == 130, run.stderr
    assert "Traceback" not in run.stderr
    return run.stdout, run.stderr


def going_on(err: str) -> list[str]:
    """The command that an interrupted run names, without its first word."""
    found = re.search(r"^tune: to go on: tune (.*)$", err, re.MULTILINE)
    assert found is not None, err
    return shlex.split(found[1])


def unfinished(out: str) -> int:
    """The trials that an unfinished run reports."""
    found = re.search(r": (\d+) trials of candidates, unfinished$", out, re.MULTILINE)
    assert found is not None, out
    return int(found[1])


def test_a_run_interrupted_while_it_searches_and_then_while_it_compares_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tiny.py").write_text(PROGRAM)
    database = ["--database", str(tmp_path / "tuning.db")]
    run = ["run", f"{tmp_path / 'tiny.py'}:model", "--trials", "4", *database]

    out, err = interrupted(run, at="best")
    assert "interrupted: comparing champions of" in err
    assert 4 <= unfinished(out) < 8

    out, err = interrupted(going_on(err), at="comparing champions of 2")
    assert unfinished(out) == 8
    assert "whole program: not timed" in out

    assert run_command([*going_on(err), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["trials"] == 8 and report["finished"]
    assert {k["decision"] for k in report["kernels"]} <= {"tuned", "tuned together", "kept xla"}
    assert run_command(["db", "check", *database]) == 0


LEARNING = """
from hlotune.costmodel.trees import Trees
from tests.support.made_rows import kernels

rows = kernels(20_000, groups=12)
print("begins", flush=True)
Trees("offline").fit(*rows)
"""


def test_a_fit_that_is_interrupted_ends_at_once_and_with_no_error_of_a_library() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEARNING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as learning:
        assert learning.stdout is not None and learning.stdout.readline() == "begins\n"
        time.sleep(1)
        learning.send_signal(signal.SIGINT)
        _, err = learning.communicate(timeout=60)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "ignored" not in err and "XGBoostError" not in err


def test_the_few_rows_of_a_first_batch_are_not_learned_where_an_interrupt_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned_on: list[threading.Thread] = []
    train = xgboost.train

    def noted(*args: Any, **options: Any) -> Any:
        learned_on.append(threading.current_thread())
        return train(*args, **options)

    monkeypatch.setattr(xgboost, "train", noted)
    Trees().fit(*kernels(FEWEST_ROWS - 1, groups=1))
    assert learned_on and threading.main_thread() not in learned_on


def test_an_interrupt_that_python_cannot_raise_comes_again_in_the_main_thread_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In another one it ends work that was given up, and would be a second Ctrl-C of nobody."""
    told = list[str]()
    monkeypatch.setattr(main, "again", lambda: told.append("again"))
    hook = main.told_again(lambda unraisable: told.append("told"))
    for error in (KeyboardInterrupt, ValueError):
        unraisable = SimpleNamespace(exc_type=error)
        hook(unraisable)
        other = threading.Thread(target=hook, args=[unraisable])
        other.start()
        other.join()
    assert told == ["again", "told", "told"]
