"""The probe on run times that we make, and once on this machine."""

import time

import pytest

from hlotune.codegen.runtime.loader import Loaded
from hlotune.codegen.runtime.thread_pool import processors
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import GIVES_UP_S, Probe, say_never_apart
from hlotune.measure.timing.timing import steady
from tests.support.soon import soon


def probe(monkeypatch: pytest.MonkeyPatch, *looks: tuple[float, float]) -> Probe:
    """A probe whose looks take these microseconds: one thread alone, and all together.

    The first run of all threads wakes them; there is a third where the second is slow as well.
    """
    runs = (
        us * 1e-6
        for alone, both in looks
        for us in (alone, alone, 90.0, both, *([both] if both > 1.25 * alone else []))
    )
    monkeypatch.setattr(Probe, "_run_s", lambda _, __: next(runs))
    return Probe(host_target(2))


@pytest.fixture(autouse=True)
def _two_processors() -> None:
    if len(processors()) < 2:
        pytest.skip("one processor has no threads to part")


def test_threads_at_full_speed_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = probe(monkeypatch, (20.0, 20.0), (20.0, 21.0), (26.0, 28.0))
    assert [looks.apart() for _ in range(3)] == [True, True, True]


def test_threads_at_half_speed_share_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = probe(monkeypatch, (20.0, 20.0), (20.0, 39.0), (20.0, 20.0))
    assert [looks.apart() for _ in range(3)] == [True, False, True]


def test_a_probe_that_begins_on_a_shared_core_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not probe(monkeypatch, (20.0, 38.0)).apart()


def test_a_slower_clock_is_no_shared_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = probe(monkeypatch, (20.0, 20.0), (27.0, 28.0))
    assert [looks.apart() for _ in range(2)] == [True, True]


class Machine:
    """A clock, and threads that take twice as long together for as long as we say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.together, self.runs = 0.0, True, 0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now_s)
        monkeypatch.setattr(Probe, "_run_s", self._run_s)

    def _run_s(self, loaded: Loaded) -> float:
        self.runs += 1
        run_s = 40e-6 if self.together and loaded.built.threads > 1 else 20e-6
        self.now_s += run_s
        return run_s

    def sample(self) -> float:
        self.now_s += 1e-3
        return 1e-3


def test_a_look_at_threads_that_are_awake_and_apart_is_three_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    machine.together, looks = False, Probe(host_target(2))
    assert looks.apart()
    assert machine.runs == 3


def test_threads_that_never_come_apart_cost_a_run_little(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say_never_apart.cache_clear()
    machine = Machine(monkeypatch)
    looks = Probe(host_target(2))
    for _ in range(1000):
        steady(machine.sample, looks.apart)
    assert machine.now_s - 1000 * 1e-3 < 3.0
    assert looks.gave_up and looks.apart()
    (line,) = capsys.readouterr().err.splitlines()
    assert "samples are taken as they come" in line


def test_one_lucky_look_keeps_no_run_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    looks = Probe(host_target(2), tell=lambda: None)
    for number in range(1000):
        machine.together = number % 10 > 0
        steady(machine.sample, looks.apart)
    assert looks.gave_up


def test_threads_that_were_apart_once_are_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(monkeypatch)
    looks = Probe(host_target(2))
    machine.together = False
    for _ in range(10):
        steady(machine.sample, looks.apart)
    machine.together, start_s = True, machine.now_s
    for _ in range(20):  # longer than a probe waits for threads that were never apart
        steady(machine.sample, looks.apart)
    assert machine.now_s - start_s > 20 * 0.3 > 2 * GIVES_UP_S
    assert not looks.gave_up and not looks.apart()
    assert capsys.readouterr().err == ""


def test_one_thread_has_nothing_to_share() -> None:
    assert Probe(host_target(1)).apart()


def test_what_one_thread_took_is_kept_until_it_is_to_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = probe(monkeypatch, (20.0, 20.0), (21.0, 22.0), (20.0, 39.0), (26.0, 27.0))
    assert [looks.apart() for _ in range(3)] == [True, True, False]
    assert looks.alone_s() == pytest.approx([20e-6, 21e-6])
    looks.forget()
    looks.apart()
    assert looks.alone_s() == pytest.approx([26e-6])


def test_one_thread_runs_once_where_there_was_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "_run_s", lambda _, __: 30e-6)
    looks = Probe(host_target(1))
    assert looks.apart()
    assert looks.alone_s() == looks.alone_s() == [30e-6]


def test_a_look_is_short_on_this_machine() -> None:
    looks = Probe(host_target(2))

    def is_short() -> bool:
        start = time.perf_counter()
        looks.apart()
        return time.perf_counter() - start < 0.1

    assert soon(is_short)
