"""A whole tuning run from the command line: search, records, benchmark, interruption."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tree import ROOT

pytestmark = pytest.mark.slow

PROGRAM = "examples/convnet.py:model"
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


def test_a_run_is_recorded_benchmarked_and_not_measured_twice(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "tuning.db")]
    first = tune("run", PROGRAM, "--trials", "8", *database)
    assert first["trials"] >= 8 and len(first["kernels"]) == 3
    assert {k["decision"] for k in first["kernels"]} <= {"tuned", "kept xla"}
    assert tune("report", first["run"], *database) == first

    bench = tune("bench", PROGRAM, "--pairs", "6", *database)
    assert bench["default_s"] > 0 and bench["tuned_s"] > 0
    assert all(a["wrong"] is None for a in bench["accuracy"])

    statuses = {x["site"]: x["status"] for x in tune("explain", PROGRAM, *database)["sites"]}
    assert statuses["conv0"] != "no record"


def test_an_interrupted_run_compares_what_it_has_and_leaves_with_130(tmp_path: Path) -> None:
    database = ["--database", str(tmp_path / "tuning.db")]
    run = subprocess.Popen(
        [*TUNE, "run", PROGRAM, "--budget", "120s", *database],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    for line in run.stderr:
        if " best " in line:
            run.send_signal(signal.SIGINT)
            break
    out, err = run.communicate(timeout=120)
    assert run.returncode == 130, err
    assert "interrupted" in err and "all kernels" in out
    assert tune("db", "stats", *database)["rows"]["trials"] >= 8
