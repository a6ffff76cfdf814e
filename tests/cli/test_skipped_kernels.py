"""An error of one kernel leaves that kernel alone, with its reason; the others are tuned."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.cli.kernel_limits import schedules_of
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Trial
from hlotune.schedules.errors import DatabaseError, ModelError, ScheduleError, reason_alone
from hlotune.schedules.spaces.cpu_contraction.first_candidate import build
from hlotune.search.learning import transfer
from hlotune.search.progress import Event, KernelSkipped, KernelStopped
from hlotune.search.result import TuneResult
from hlotune.search.tasks import Task, tasks
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import SkippedKernel, report, to_json
from tests.support.sessions import FakeDevice, Objects, run, two
from tests.support.toy import ToySpace


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


class Broken(ToySpace):
    """Raises an error of no meaning, as a formula with a missing guard does."""

    def heuristic(self) -> NDArray[np.int32]:
        raise ValueError("min() arg is an empty sequence")


class BreaksLater(FakeDevice):
    """A candidate of a convolution raises after others went well."""

    measured = 0

    def measure(
        self,
        kernel: Kernel,
        objects: Objects,
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        self.measured += self._task(kernel).label == "conv"
        if self.measured == 41:
            raise ZeroDivisionError("division by zero")
        return super().measure(kernel, objects, cache=cache, limit_s=limit_s)


def broken(task: Task) -> Task:
    return replace(task, space=Broken((8,) * 5, 1))


def told(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]


def ran(database: Database, tasks: Sequence[Task], device: FakeDevice | None = None) -> Any:
    events = list[Event]()
    return run(database, tasks, device or FakeDevice(tasks), events=events), events


def test_a_kernel_whose_first_candidate_raises_is_skipped_with_the_reason(
    database: Database,
) -> None:
    conv, dense = two()
    result, events = ran(database, [broken(conv), dense])
    assert [(k.label, k.won) for k in result.kernels] == [("dense", True)]
    (skip,) = told(events, KernelSkipped)
    assert skip.label == "conv"
    wanted = "a fault of hlotune: ValueError: min() arg is an empty sequence in test_skipped_kernel"
    assert skip.reason.startswith(wanted)
    assert result.skipped == (("conv", skip.reason),)


def test_a_kernel_whose_search_raises_later_keeps_what_it_found(database: Database) -> None:
    tasks = two()
    result, events = ran(database, tasks, BreaksLater(tasks))
    (stop,) = told(events, KernelStopped)
    assert (stop.label, "ZeroDivisionError" in stop.reason) == ("conv", True)
    found = {k.label: k for k in result.kernels}
    assert 0 < found["conv"].trials < 96 == found["dense"].trials
    assert found["conv"].best_s is not None, "its best schedule still meets the default"


class BreaksInFinals(FakeDevice):
    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        if self._task(kernel).label == "conv":
            raise IndexError("list index out of range")
        return super().final(kernel, objects, pairs)


def test_a_kernel_whose_final_raises_keeps_the_default(database: Database) -> None:
    tasks = two()
    result, events = ran(database, tasks, BreaksInFinals(tasks))
    assert {k.label: k.won for k in result.kernels} == {"conv": False, "dense": True}
    assert [e.label for e in told(events, KernelSkipped)] == ["conv"]


def test_the_report_says_which_kernels_were_left_alone_and_why(database: Database) -> None:
    conv, dense = two()
    result: TuneResult = ran(database, [broken(conv), dense])[0]
    found = report(database, result.run)
    text = render(found, color=False)
    assert "not tuned, conv: a fault of hlotune: ValueError" in text
    (skip,) = json.loads(to_json(found))["skipped"]
    assert skip["label"] == "conv"
    assert skip["reason"].startswith("a fault of hlotune: ValueError")


def test_kernels_that_were_left_alone_for_one_reason_share_a_line(database: Database) -> None:
    result: TuneResult = ran(database, two())[0]
    found = report(database, result.run)
    many = tuple(SkippedKernel(f"dot{n}", "no time") for n in range(6))
    text = render(replace(found, skipped=many), color=False)
    assert "not tuned, dot0, dot1, dot2, dot3 and 2 more: no time\n" in text


@pytest.mark.parametrize("error", [DatabaseError("disk full"), ModelError("no such file")])
def test_an_error_of_the_whole_run_is_no_kernels_own(error: Exception) -> None:
    with pytest.raises(type(error)):
        reason_alone(error)


def test_an_error_of_ours_is_the_reason_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HLOTUNE_DEBUG", "1")
    assert reason_alone(ScheduleError("split: 3 does not divide 8")) == "split: 3 does not divide 8"
    assert capsys.readouterr().err == ""


def test_a_fault_shows_its_traceback_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HLOTUNE_DEBUG", "1")
    try:
        Broken((8,) * 5).heuristic()
    except ValueError as error:
        reason_alone(error)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def products() -> Program:
    """Two: the space of the one with few results asks for a first candidate as it is made."""
    shapes = (2, 4096), (4096, 4), (64, 64)
    x, w, y = (np.zeros(shape, np.float32) for shape in shapes)
    return load(lambda x, w, y: (x @ w + 1, y @ y), x, w, y)


@pytest.fixture
def broken_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_tile(*_: object) -> NDArray[np.int64]:
        raise ValueError("attempt to get argmax of an empty sequence")

    monkeypatch.setattr(build, "best_tile", no_tile)


@pytest.mark.usefixtures("broken_formula")
def test_a_kernel_whose_space_cannot_be_made_is_skipped_in_each_of_its_forms() -> None:
    found, skipped = tasks(sites(products()), TARGETS["x86-64"])
    assert [t.label for t in found] == ["dot 64x64x64"]
    assert [s.label for s in skipped] == ["dot 2x4096x4 +bias", "dot 2x4096x4"]
    assert all(s.reason.startswith("a fault of hlotune: ValueError: attempt") for s in skipped)


@pytest.mark.usefixtures("broken_formula")
def test_the_list_of_kernels_says_why_one_has_no_schedules() -> None:
    (site, *_) = sites(products())
    ours = schedules_of(site.kernel)
    assert ours.sketches == 0
    assert "ValueError: attempt to get argmax of an empty sequence" in (ours.reason or "")


def test_a_recorded_kernel_that_raises_teaches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def raising(_: Kernel) -> Any:
        raise KeyError("stablehlo.unknown")

    monkeypatch.setattr(transfer, "graph_of", raising)
    assert transfer._compute(Kernel("func.func @kernel() { other }")) is None
