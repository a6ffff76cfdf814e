"""Several devices of one kind: measured at the same time, each by one worker at a time."""

import json
import threading
from inspect import signature
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine import machine_lock
from hlotune.measure.machine.devices import devices_like
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.several_devices import VISIBLE, SeveralDevices, visible_devices
from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.gpu import gpu_target
from hlotune.schedules.targets.tpu import tpu_target
from hlotune.search.workers import Runner
from hlotune.search.xla_options import Trials
from tests.support.noting_device import command
from tests.support.recorded import KERNEL, schedule
from tests.support.sessions import FakeDevice
from tests.support.tuners import FakeRunner

H200 = gpu_target("cuda:h200")
BUILT = Built(object=b"", scratch_bytes=0, packed=(), flops=0, threads=1, algorithm="blocks",
              backend="pallas")  # fmt: skip
OBJECTS = [(Candidate(KERNEL, schedule(n)), BUILT) for n in range(6)]


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_lock, "lock_paths", lambda: (tmp_path / "own.lock",))
    monkeypatch.setattr(machine_lock, "_say_once", lambda words: None)
    monkeypatch.delenv(VISIBLE, raising=False)


def measured(notes: Path, *numbers: int, together: int = 1) -> list[Trial]:
    with SeveralDevices(H200, numbers, command=command(notes, together)) as runner:
        assert runner.width == len(numbers)
        return runner.measure(KERNEL, OBJECTS)


def read(notes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


def overlapping(notes: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """The pairs of devices that were measured on at the same time."""
    found = set()
    for a, b in combinations(notes, 2):
        if a["start"] < b["end"] and b["start"] < a["end"]:
            low, high = sorted((a["device"], b["device"]))
            found.add((low, high))
    return found


def test_devices_are_measured_at_the_same_time_and_trials_keep_their_order(tmp_path: Path) -> None:
    trials = measured(tmp_path / "notes", 0, 1, together=2)
    assert [t.candidate for t in trials] == [c for c, _ in OBJECTS]
    assert all(isinstance(t.outcome, Measurement) for t in trials)
    notes = read(tmp_path / "notes")
    assert (len(notes), overlapping(notes)) == (6, {("0", "1")})


def test_two_tuners_take_turns_on_a_device_that_both_have(tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=measured, args=(tmp_path / "notes", *numbers))
        for numbers in ((0, 1), (1,))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    notes = read(tmp_path / "notes")
    assert len(notes) == 12
    assert overlapping(notes) <= {("0", "1")}


def test_who_has_the_whole_machine_keeps_all_devices_waiting(tmp_path: Path) -> None:
    released = threading.Event()
    waiting = threading.Thread(target=measured, args=(tmp_path / "notes", 0))
    with Turns().alone():
        waiting.start()
        released.wait(1.0)
        assert not (tmp_path / "notes").exists()
    waiting.join()
    assert len(read(tmp_path / "notes")) == 6


def test_failures_of_the_builder_pass_through(tmp_path: Path) -> None:
    failure = Failure("build", "no")
    with SeveralDevices(H200, (0, 1), command=command(tmp_path / "notes")) as runner:
        (trial,) = runner.measure(KERNEL, [(OBJECTS[0][0], failure)])
    assert trial.outcome is failure


def test_a_run_has_waited_as_long_as_the_device_that_waited_longest(tmp_path: Path) -> None:
    held, waits, looks = threading.Event(), threading.Event(), iter((2.0, 5.0))

    def hold() -> None:
        with machine_lock.alone(device=f"{H200.platform}1"):
            held.set()
            assert waits.wait(60)

    def clock_s() -> float:
        """Is looked at where a wait begins, and where it ends."""
        waits.set()
        return next(looks)

    run = Turns(now=clock_s)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with SeveralDevices(H200, (0, 1), command=command(tmp_path / "notes"), turns=run) as runner:
        runner.measure(KERNEL, OBJECTS)
    thread.join()
    assert run.waited_s == 3.0


def test_each_device_compiles_what_it_will_measure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = list[tuple[str, int]]()

    def ask(
        runner: ProcessRunner, do: str, kernel: Kernel, mode: str, extra: Any, *_: Any, **__: Any
    ) -> None:
        asked.append((name[id(runner)], len(extra["sizes"])))

    monkeypatch.setattr(ProcessRunner, "_ask", ask)
    with SeveralDevices(H200, (0, 1), command=command(tmp_path / "notes")) as runner:
        name = {id(r): str(n) for n, r in enumerate((runner, *runner._others))}
        kernels = [(KERNEL, built) for _, built in OBJECTS[:5]]
        runner.compile_together(kernels, spread=True)
        assert sorted(asked) == [("0", 3), ("1", 2)]
        asked.clear()
        runner.compile_together(kernels)
        assert asked == [("0", 5)], "comparisons are the first device's"


@pytest.mark.parametrize(
    "kind", [ProcessRunner, SeveralDevices, SimulatedDevice, Trials, FakeRunner, FakeDevice]
)
def test_every_runner_has_the_verbs_of_its_protocol(kind: type) -> None:
    """An `isinstance` of structure would not see parameters; their names are compared."""
    for verb in ("compile_together", "measure"):
        wanted, found = (list(signature(getattr(c, verb)).parameters) for c in (Runner, kind))
        assert found == wanted, verb
    assert hasattr(kind, "width")


def test_devices_that_somebody_chose_are_those(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "3,GPU-7")
    assert visible_devices() == {0: "3", 1: "GPU-7"}


def test_devices_of_a_target_are_counted_and_too_few_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinds = ["NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA H200"]
    monkeypatch.setattr(jax, "devices", lambda *_: [SimpleNamespace(device_kind=k) for k in kinds])
    assert devices_like(H200, 2) == (0, 2)
    with pytest.raises(TargetError, match=r"expected 3 devices that are NVIDIA H200.* finds 2"):
        devices_like(H200, 3)
    with pytest.raises(TargetError, match=r"expected to measure on one tpu:v5e, got 2"):
        devices_like(tpu_target("tpu:v5e"), 2)
    with pytest.raises(
        TargetError, match="expected a GPU as the target of 2 devices, got this mach"
    ):
        devices_like(host_target(), 2)
