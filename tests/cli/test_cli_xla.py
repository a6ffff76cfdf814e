"""`tune xla`: a search of XLA's options by the command line, each trial in a process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.cli import xla
from hlotune.measure.trial import Failure
from hlotune.search.xla_options import Both

PROGRAM = """
import jax.numpy as jnp

def model():
    return lambda x: x @ x, (jnp.ones((64, 64)),)
"""


def request(path: Path, options: dict[str, object]) -> dict[str, object]:
    about = {"program": f"{path}:model", "arg": [], "dim": [], "numerics": "standard"}
    return {**about, "options": options, "pairs": 6}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(PROGRAM)
    return path


def test_a_trial_times_both_sides_and_says_what_xla_refuses(file: Path) -> None:
    found = xla.asked(request(file, {"xla_cpu_multi_thread_eigen": False}))
    assert isinstance(found, Both) and len(found.default_s) == len(found.tried_s) == 6
    refused = xla.asked(request(file, {"xla_no_such_option": True}))
    assert isinstance(refused, Failure) and refused.kind == "build"
    assert "No such compile option" in refused.message


def test_a_process_that_ends_or_hangs_is_a_failure(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = xla.asked(request(file, {}), limit_s=0.01)
    assert isinstance(late, Failure) and late.kind == "timeout"
    ending = (sys.executable, "-c", "import sys; sys.exit('Unknown command line argument')")
    monkeypatch.setattr("hlotune.schedules.processes.python_module", lambda *_: ending)
    ended = xla.asked(request(file, {}))
    assert isinstance(ended, Failure) and ended.kind == "crash"
    assert "Unknown command line argument" in ended.message


def test_the_command_says_what_it_found(file: Path, tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", "xla", f"{file}:model", "--trials", "1", "--database",
         str(database), "--json"],
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (found["trials"], found["failures"]) == (1, 0)
    assert found["speedup"] > 0
