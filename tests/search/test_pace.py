"""How far the machine's pace moved in a run, by a fixed probe beside its trials."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import ALONE_S
from hlotune.measure.trial import Candidate, Measurement
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.wire import from_outcome
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.budget.limits import Limits
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report, to_json
from tests.support.sessions import FakeDevice, run, two
from tests.support.tiny_dot import kernel, tiny_dot
from tests.tuning_logs.test_report import SCHEMA, violations

APART = "times of different batches are that far apart"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def taking(*times_us: float) -> Callable[[], float]:
    """A probe that takes these microseconds, one a batch, and from then on the last.

    What it has seen before a batch, it is asked ahead of it.
    """
    waiting = [us / 1e6 for us in times_us for _ in range(2)]
    return lambda: waiting.pop(0) if len(waiting) > 1 else waiting[0]


def test_a_batch_has_the_median_of_what_the_probe_took_beside_its_trials() -> None:
    beside = iter([[2e-5, 3e-5], [2.1e-5]])
    timed = from_outcome(Measurement(samples_s=(1.0,), clock="call"))

    def answer(*_: object) -> Message:
        return Message({**timed, ALONE_S: next(beside)})

    runner = ProcessRunner(host_target(), clock="call")
    runner._channel = cast(Channel, SimpleNamespace(request=answer))
    candidate = Candidate(kernel(), Schedule("direct"))
    runner.measure(kernel(), [(candidate, tiny_dot())] * 2)
    assert runner.probe_s() == 2.1e-5


def test_the_report_says_how_far_the_pace_of_the_machine_moved(database: Database) -> None:
    result = run(database, two(), probe=taking(20, 23, 21))
    found = report(database, result.run)
    assert set(result.probe_s) == {20e-6, 21e-6, 23e-6}
    assert (found.fastest_probe_s, found.slowest_probe_s) == (20e-6, 23e-6)
    moved = "the machine's pace moved by 15.0 %: a fixed probe took 20.0 us in the fastest batch, "
    assert f"{moved}23.0 us in the slowest; {APART}" in render(found, color=False)
    assert list(violations(json.loads(to_json(found)), SCHEMA)) == []


def test_batches_of_nearly_one_pace_are_compared_without_a_word(database: Database) -> None:
    text = render(report(database, run(database, two(), probe=taking(20, 20.8)).run), color=False)
    assert "pace moved by 4.0 %" in text
    assert APART not in text


@pytest.mark.parametrize("probe", [taking(20), lambda: 0.0], ids=["one pace", "no probe"])
def test_where_no_pace_moved_nothing_is_said(
    probe: Callable[[], float], database: Database
) -> None:
    found = report(database, run(database, two(), probe=probe).run)
    assert "pace" not in render(found, color=False)


def test_the_pace_before_an_interruption_counts(database: Database) -> None:
    tasks, limits = two(), Limits(trials=96)
    broken = FakeDevice(tasks, interrupt_at=2 + 16 * 3 + 7)
    stopped = run(database, tasks, broken, limits=limits, probe=taking(20))
    again = run(database, tasks, limits=limits, probe=taking(24), resume=stopped.run)
    found = report(database, again.run)
    assert (found.fastest_probe_s, found.slowest_probe_s) == (20e-6, 24e-6)
