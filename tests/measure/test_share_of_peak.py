"""A kernel in turns with the multiply-add peak, or a read: what share of it the kernel has."""

from collections.abc import Iterator

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.comparison import Beside
from hlotune.measure.timing.share_of_peak import TRIAL_TRIPS, reading, trips_of_a_call
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import ProgramError
from tests.support.tiny_dot import COLUMNS, DEPTH, kernel, tiny_dot


@pytest.fixture(scope="module")
def runner() -> Iterator[ProcessRunner]:
    with ProcessRunner(host_target()) as found:
        yield found


def test_the_peak_beside_a_kernel_is_the_peak_of_the_machine(runner: ProcessRunner) -> None:
    beside = runner.beside_peak(kernel(), tiny_dot(), "f32", pairs=7, limit_s=60.0, cache="warm")
    assert len(beside.samples_s) == len(beside.work_per_s) == 7
    known = runner.properties().flops_per_s["f32"]
    found = max(beside.work_per_s)
    assert known / 10 < found < 10 * known  # whatever else a shared machine does meanwhile


def test_a_kernel_of_few_operations_has_a_small_share(runner: ProcessRunner) -> None:
    beside = runner.beside_peak(kernel(), tiny_dot(), "f32", pairs=6, cache="warm")
    assert 0 < beside.share(2 * 4 * DEPTH * COLUMNS).median < 0.05


def test_the_read_beside_a_kernel_is_as_fast_as_memory_is(runner: ProcessRunner) -> None:
    size = max(64 << 20, 2 * host_target().l3_bytes)
    beside = runner.beside_read(kernel(), tiny_dot(), size, pairs=6, cache="warm")
    assert len(beside.samples_s) == len(beside.work_per_s) == 6
    known = runner.properties().read_bytes_per_s
    assert known / 10 < max(beside.work_per_s) < 10 * known
    assert 0 < beside.share(4 * DEPTH * COLUMNS).median < 0.05


def test_a_read_is_of_as_many_bytes_in_whole_pages_on_each_thread() -> None:
    target = host_target()
    page, threads = 4096, target.threads
    _, read = reading(threads * 5 * page + page - 1, target)
    assert read == threads * 5 * page
    assert reading(1, target)[1] == threads * page


def test_a_read_takes_as_long_as_it_has_bytes() -> None:
    """Its empty call reads a few of them, so that little is taken off."""
    subject, _ = reading(64 << 20, host_target())
    assert min(subject.call() for _ in range(5)) > 10 * min(subject.empty() for _ in range(5))


def test_a_share_is_of_the_peak_of_the_same_round() -> None:
    slow_and_fast = Beside((2e-3, 1e-3, 1e-3), (1e11, 2e11, 2e11))
    assert slow_and_fast.share(10**8).median == pytest.approx(0.5)
    assert slow_and_fast.time_s == 1e-3


def test_an_interrupted_call_makes_no_turn_of_the_peak_longer() -> None:
    """Trips of 2 ns: 16,384 of them take 33 us, and so does an interrupt."""
    some_s, empty_s = 5e-6 + 2e-9 * TRIAL_TRIPS, 5e-6
    for late in range(5):
        empty = iter([empty_s + 40e-6 * (k == late) for k in range(5)])
        some = iter([some_s + 40e-6 * (k == 4 - late) for k in range(5)])
        assert trips_of_a_call(empty.__next__, some.__next__, 1e-10) in (500_000, 500_001)


def test_no_trip_is_taken_for_shorter_than_a_processor_can_make_it() -> None:
    """Where every call of one kind was interrupted, the difference says nothing."""
    assert trips_of_a_call(lambda: 90e-6, lambda: 40e-6, 1e-9) == 1_000_000


def test_a_type_without_a_peak_has_no_share(runner: ProcessRunner) -> None:
    with pytest.raises(ProgramError, match="to run beside multiply-adds of i1, got a device"):
        runner.beside_peak(kernel(), tiny_dot(), "i1")


def test_a_read_of_more_than_there_is_memory_has_no_share(runner: ProcessRunner) -> None:
    with pytest.raises(ProgramError, match=f"to run beside a read of {1 << 60} bytes, got a dev"):
        runner.beside_read(kernel(), tiny_dot(), 1 << 60)
