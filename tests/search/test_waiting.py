"""Tuners that wait for each other: in no budget, and told in the report."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.measure.machine import machine_lock
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.timing import peaks
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.interruptible import interruptible, is_anything_left
from hlotune.search.progress import Event, Finished
from hlotune.search.tune import wait_for_earlier_work
from hlotune.tuning_logs import kept_peaks
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.given_up import met_by_ctrl_c
from tests.support.mlp_records import PROGRAM
from tests.support.recorded import PROPERTIES
from tests.support.sessions import FakeDevice, run, two

HOLD = """
import sys
from pathlib import Path
from hlotune.measure.machine import machine_lock as sharing
sharing.lock_paths = lambda: (Path(sys.argv[1]),)
with sharing.alone():
    print('mine', flush=True)
    sys.stdin.read()
"""
TURN_S = 10.0


@dataclass
class BusyDevice(FakeDevice):
    """Another tuner has the machine before each request, for `TURN_S`."""

    turns: Turns = field(default_factory=Turns)

    def _request(self) -> None:
        self.elapsed_s += TURN_S
        self.turns.waited_s += TURN_S
        super()._request()

    def now(self) -> float:
        return self.elapsed_s - self.turns.waited_s


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Other tests hold the lock of the machine."""
    lock = tmp_path / "own.lock"
    monkeypatch.setattr(machine_lock, "lock_paths", lambda: (lock,))
    machine_lock._say_once.cache_clear()
    return lock


@pytest.fixture
def other_tuner(own_lock: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Has the machine until it is killed."""
    program = [sys.executable, "-c", HOLD, str(own_lock)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"mine\n"
        yield other
        other.kill()


def ending(
    other_tuner: "subprocess.Popen[bytes]", begin_s: float, end_s: float
) -> Callable[[], float]:
    """A clock that is looked at where a wait begins, which then has the other tuner killed, and
    where it ends.
    """
    looks = iter((begin_s, end_s))

    def now() -> float:
        other_tuner.kill()
        return next(looks)

    return now


@pytest.mark.usefixtures("own_lock")
def test_who_is_alone_does_not_wait() -> None:
    turns = Turns()
    with turns.alone():
        pass
    assert turns.waited_s == 0.0


@pytest.mark.usefixtures("own_lock")
def test_a_turn_inside_of_another_is_refused_and_does_not_wait_for_itself() -> None:
    turns = Turns()
    with turns.alone(), pytest.raises(RuntimeError, match="no turn inside of another"):
        turns.alone().__enter__()
    with turns.alone():
        pass


def test_the_death_of_another_tuner_ends_the_wait(
    other_tuner: "subprocess.Popen[bytes]", capfd: pytest.CaptureFixture[str]
) -> None:
    turns = Turns(now=ending(other_tuner, 2.0, 5.0))
    with turns.alone():
        assert other_tuner.wait()
    assert turns.waited_s == 3.0
    assert capfd.readouterr().err.count("another tuner is at work") == 1


def test_tuners_of_other_environments_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_lock.lock_paths()
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/var/tmp")
    assert machine_lock.lock_paths() == before


def test_where_no_folder_takes_the_lock_nobody_waits_and_that_is_said(
    tmp_path: Path,
    own_lock: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine_lock, "lock_paths", lambda: (tmp_path / "nowhere" / "lock",))
    for _ in range(2):
        with Turns().alone():
            pass
    said = capfd.readouterr().err
    assert said.count("expected /tmp to take a lock file") == 1
    assert "run one at a time" in said


def test_a_folder_that_takes_no_lock_leaves_it_to_the_next(
    tmp_path: Path, own_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        machine_lock, "lock_paths", lambda: (tmp_path / "nowhere" / "lock", own_lock)
    )
    with Turns().alone():
        assert own_lock.exists()


def test_peaks_are_measured_for_a_list_of_kernels_when_the_other_tuner_is_through(
    other_tuner: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ended, measured = threading.Event(), list[bool]()

    def measure(target: CpuTarget) -> Properties:
        with pytest.raises(RuntimeError, match="no turn inside of another"):
            Turns().alone().__enter__()
        measured.append(ended.is_set())
        return PROPERTIES

    def end() -> None:
        ended.set()
        other_tuner.kill()

    monkeypatch.setattr(peaks, "host_properties", measure)
    monkeypatch.setattr(kept_peaks, "kept", lambda *_: None)
    monkeypatch.setattr(kept_peaks, "keep", lambda *_: None)
    monkeypatch.setattr(machine_lock, "_say_once", lambda words: threading.Timer(0.2, end).start())
    assert run_command(["kernels", PROGRAM, "--json"]) == 0
    listed = json.loads(capfd.readouterr().out)["kernels"]
    assert measured == [True]
    assert any(line["roofline_s"] == line["flops"] / 2e11 for line in listed)


def test_the_clock_of_a_run_stands_still_while_it_waits(
    other_tuner: "subprocess.Popen[bytes]",
) -> None:
    wait = ending(other_tuner, 2.0, 5.0)
    clocks = iter((lambda: 1.0, wait, wait, lambda: 7.0))
    turns = Turns(now=lambda: next(clocks)())
    clock_s = turns.clock_s()
    with turns.alone():
        pass
    assert turns.waited_s == 3.0
    assert turns.clock_s() - clock_s == 7.0 - 1.0 - 3.0


def test_waiting_for_what_ctrl_c_has_left_of_an_earlier_run_is_in_no_budget() -> None:
    gate, turns = threading.Event(), Turns()

    with pytest.raises(KeyboardInterrupt):
        interruptible(lambda: met_by_ctrl_c(gate))
    threading.Timer(0.2, gate.set).start()
    assert is_anything_left()
    wait_for_earlier_work(turns)
    assert not is_anything_left()
    assert turns.waited_s > 0.0
    waited_s = turns.waited_s
    wait_for_earlier_work(turns)
    assert turns.waited_s == waited_s


def test_a_budget_buys_as_many_trials_beside_another_tuner(tmp_path: Path) -> None:
    tasks, limits = two(), Limits(seconds=60.0)
    with Database(tmp_path / "alone.db") as database:
        alone = run(database, tasks, limits=limits)
    busy = BusyDevice(tasks)
    with Database(tmp_path / "busy.db") as database:
        beside = run(database, tasks, busy, limits=limits, turns=busy.turns)
    assert beside.trials == alone.trials > 0
    assert beside.wall_s == pytest.approx(alone.wall_s + beside.waited_s)
    assert (alone.waited_s, beside.waited_s) == (0.0, busy.requests * TURN_S)


def test_the_report_says_how_long_a_run_waited(tmp_path: Path) -> None:
    tasks, events = two(), list[Event]()
    busy = BusyDevice(tasks)
    with Database(tmp_path / "tuning.db") as database:
        result = run(database, tasks, busy, events=events, turns=busy.turns)
        found = report(database, result.run)
    assert found.waited_s == result.waited_s > 0.0
    assert f"{result.waited_s:.1f} s of it waiting for another tuner" in render(found, color=False)
    assert waits(events) == [result.waited_s]


def test_the_report_says_how_long_a_run_was_suspended(tmp_path: Path) -> None:
    tasks, events = two(), list[Event]()
    with Database(tmp_path / "tuning.db") as database:
        result = run(database, tasks, events=events, away_s=30.0)
        found = report(database, result.run)
    assert (found.away_s, result.away_s) == (30.0, 30.0)
    assert found.wall_s == result.wall_s > 30.0
    assert "30.0 s of it suspended" in render(found, color=False)
    assert [e.away_s for e in events if isinstance(e, Finished)] == [30.0]


def test_a_report_of_a_run_that_did_not_wait_has_no_word_of_it(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        found = report(database, run(database, two()).run)
    assert found.waited_s == 0.0
    text = render(found, color=False)
    assert "waiting" not in text and "suspended" not in text


def waits(events: Sequence[Event]) -> list[float]:
    return [e.waited_s for e in events if isinstance(e, Finished)]
