"""`tune xla`: a search of XLA's options by the command line, each trial in a process."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hlotune.cli import xla
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.search.xla_options import Both, Found
from tests.support.commands import tune

PROGRAM = """
import jax.numpy as jnp

def model():
    return lambda x: x @ x, (jnp.ones((64, 64)),)
"""


def request(path: Path, options: dict[str, object]) -> dict[str, object]:
    about: dict[str, object] = {
        "program": f"{path}:model", "arg": [], "dim": [], "numerics": "standard", "target": None,
    }  # fmt: skip
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


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((1.5, 1.4, 1.6), "1.50x (95 % interval 1.40 to 1.60)"),
        ((1.0, 0.9, 1.1), "no difference proven, the 95 % interval 0.90 to 1.10 includes 1"),
        ((0.7, 0.6, 0.8), "slower, 0.70x (95 % interval 0.60 to 0.80)"),
    ],
)
def test_options_that_are_slower_are_called_slower(
    interval: tuple[float, float, float], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    speedup, low, high = interval
    final = SimpleNamespace(
        won=low > 1,
        paired=SimpleNamespace(
            default_time_s=1e-3, tuned_time_s=1e-3 / speedup, speedup=speedup, low=low, high=high
        ),
    )
    xla.show(Found("0123456789abcdef", 1, 0, {"a": True}, cast(Any, final)), json=False)
    said = capsys.readouterr().out
    assert words in said
    assert "run 0123456789ab: 1 trial, 0 failed\n" in said


def test_the_command_says_what_it_found(file: Path, tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    done = tune(
        "xla", f"{file}:model", "--budget", "1s", "--database", str(database),
        "--target", host_target().fingerprint, "--json",
    )  # fmt: skip
    assert "records are in" not in done.stderr, "the user named the database"
    found = json.loads(done.stdout)  # one trial, however short the budget is
    assert (found["trials"], found["failures"]) == (1, 0)
    assert found["speedup"] > 0
