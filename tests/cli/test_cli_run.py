"""A whole tuning run from the command line: search, records, benchmark, interruption."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.cli import run_program
from hlotune.cli.main import run_command
from tests.support.tree import ROOT

pytestmark = pytest.mark.smoke

PROGRAM = "examples/convnet.py:model"
TWO_PRODUCTS = """
import jax.numpy as jnp

def model():
    return (lambda x, v, w: jnp.tanh(x @ v) @ w), (
        jnp.ones((32, 32)), jnp.ones((32, 48)), jnp.ones((48, 64))
    )
"""
"""A program of several kernels that are built at once, so that none is left out of the first batch
and a kill comes before the last one.
"""
TUNE = [sys.executable, "-m", "hlotune"]
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu"}


def tune(*arguments: str) -> Any:
    """The JSON that a command prints."""
    done = subprocess.run(
        [*TUNE, *arguments, "--json"],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_is_recorded_reported_benchmarked_and_explained(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "tuning.db")]
    first = tune("run", PROGRAM, "--trials", "8", *database)
    assert first["trials"] >= 8 and len(first["kernels"]) >= 3
    assert {k["decision"] for k in first["kernels"]} <= {"tuned", "kept xla"}
    assert tune("report", first["run"], *database) == first

    bench = tune("bench", PROGRAM, "--pairs", "6", *database)
    assert bench["default_s"] > 0 and bench["tuned_s"] > 0
    assert all(a["wrong"] is None for a in bench["accuracy"])
    tuned = [k for k in bench["kernels"] if k["status"] == "tuned"]
    timed = [k for k in tuned if not k["not_measured"]]
    assert len(timed) == len(tuned)
    assert all(0 < k["speedup_low"] <= k["speedup"] <= k["speedup_high"] for k in timed)

    statuses = {x["site"]: x["status"] for x in tune("explain", PROGRAM, *database)["sites"]}
    assert statuses["conv0"] != "no record"


def started(*arguments: str, program: str = PROGRAM) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TUNE, "run", program, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(folder: Path, program: str = PROGRAM) -> list[str]:
    """The database of a run that was killed after the first batch of its first kernel."""
    database = ["--database", str(folder / "tuning.db")]
    run = started("--trials", "8", *database, program=program)
    assert run.stderr is not None
    too_late = threading.Timer(300, run.kill)
    too_late.start()
    seen = any(" best " in line for line in run.stderr)
    too_late.cancel()
    run.kill()
    run.communicate(timeout=60)
    assert seen
    assert run.returncode == -signal.SIGKILL
    return database


def test_a_run_that_is_killed_leaves_what_it_had_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "two.py").write_text(TWO_PRODUCTS)
    database = killed(tmp_path, f"{tmp_path / 'two.py'}:model")

    def said(*command: str) -> Any:
        assert run_command([*command, *database, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert said("db", "check")["problems"] == []
    assert said("db", "stats")["rows"]["trials"] >= 8


@pytest.mark.slow
def test_the_next_run_takes_the_database_of_one_that_was_killed(tmp_path: Path) -> None:
    database = killed(tmp_path)
    assert len(tune("run", PROGRAM, "--trials", "1", *database)["kernels"]) == 3


@pytest.mark.slow
def test_workers_that_are_killed_cost_candidates_and_not_the_run(tmp_path: Path) -> None:
    run = started("--trials", "24", "--json", "--database", str(tmp_path / "tuning.db"))
    time.sleep(8)
    for worker in children(run.pid):
        os.kill(worker, signal.SIGKILL)
    out, err = run.communicate(timeout=300)
    assert run.returncode == 0, err
    assert len(json.loads(out)["kernels"]) == 3


def children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text().split()]


@pytest.mark.slow
def test_two_runs_at_once_share_a_database(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "tuning.db")]
    runs = [started("--trials", "4", "--seed", str(seed), *database) for seed in (0, 1)]
    said = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert tune("db", "check", *database)["problems"] == []
    assert tune("bench", PROGRAM, "--pairs", "6", *database)["default_s"] > 0


@pytest.mark.slow
def test_an_interrupted_run_compares_what_it_has_and_leaves_with_130(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "tuning.db")]
    run = started("--budget", "120s", *database)
    assert run.stderr is not None
    for line in run.stderr:
        if " best " in line:
            run.send_signal(signal.SIGINT)
            break
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130, err
    assert "interrupted" in err and "all kernels" in out
    assert tune("db", "check", *database)["problems"] == []
    assert tune("db", "stats", *database)["rows"]["trials"] >= 8


def test_a_run_for_which_nobody_named_a_database_says_where_its_records_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tuning.db"
    result = SimpleNamespace(database=place, run="0123")
    monkeypatch.setenv("HLOTUNE_DB", str(place))
    monkeypatch.setattr("hlotune.measure.workers.early_start.workers_ahead", nullcontext)
    loaded = SimpleNamespace(remarks=())
    monkeypatch.setattr(run_program, "load_program", lambda *_, **__: loaded)
    monkeypatch.setattr(run_program, "tuned", lambda *_: result)
    monkeypatch.setattr(run_program, "end", lambda *_, **__: None)
    monkeypatch.setattr("hlotune.cli.report.print_report", lambda *_, **__: None)

    def said(*options: str) -> str:
        assert run_command(["run", PROGRAM, *options]) == 0
        return capsys.readouterr().err

    assert said() == f"tune: records are in {place}\n"
    assert said("--database", str(place)) == said("--quiet") == said("--json") == ""
