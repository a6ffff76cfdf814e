"""The probe on run times that we make, and once on this machine."""

import time

import pytest

from hlotune.codegen.crew import processors
from hlotune.measure.probe import Probe
from hlotune.measure.targets import host_target


def probe(monkeypatch: pytest.MonkeyPatch, *looks: tuple[float, float]) -> Probe:
    """A probe whose looks take these microseconds: one thread alone, and all together."""
    runs = (us * 1e-6 for alone, both in looks for us in (alone, alone, 90.0, both, both))
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


def test_one_thread_has_nothing_to_share() -> None:
    assert Probe(host_target(1)).apart()


def test_a_look_is_short_on_this_machine() -> None:
    looks = Probe(host_target(2))
    start = time.perf_counter()
    looks.apart()
    assert time.perf_counter() - start < 0.1
