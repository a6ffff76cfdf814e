"""The probe on run times that we make, and once on this machine."""

from itertools import chain, repeat

import pytest

from hlotune.codegen.crew import processors
from hlotune.measure.probe import Probe
from hlotune.measure.targets import host_target


def probe(monkeypatch: pytest.MonkeyPatch, *microseconds: float) -> Probe:
    """A probe whose looks take these times, the last one for ever; a look is three runs."""
    looks = chain(microseconds, repeat(microseconds[-1]))
    runs = (us * 1e-6 for look in looks for us in (9.0, look, look))
    monkeypatch.setattr(Probe, "_run_s", lambda _: next(runs))
    return Probe(host_target(2))


@pytest.fixture(autouse=True)
def _two_processors() -> None:
    if len(processors()) < 2:
        pytest.skip("one processor has no threads to part")


def test_threads_at_full_speed_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = probe(monkeypatch, 8.0, 8.5, 10.0)
    assert [looks.apart() for _ in range(3)] == [True, True, True]


def test_threads_at_half_speed_share_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = probe(monkeypatch, 8.0, 16.0, 8.0)
    assert [looks.apart() for _ in range(3)] == [True, False, True]


def test_a_probe_that_began_on_a_shared_core_learns_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = probe(monkeypatch, 16.0, 8.0, 16.0)
    assert [looks.apart() for _ in range(3)] == [True, True, False]


def test_one_thread_has_nothing_to_share() -> None:
    assert Probe(host_target(1)).apart()


def test_a_look_is_short_on_this_machine() -> None:
    looks = Probe(host_target(2))
    looks.apart()
    assert 1e-7 < looks._best_s < 1e-3
