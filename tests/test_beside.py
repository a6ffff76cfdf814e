"""A kernel in turns with the multiply-add peak: what share of it the kernel has."""

from collections.abc import Iterator

import pytest

from hlotune.measure.comparison import BesidePeak
from hlotune.measure.runner import ProcessRunner
from hlotune.measure.targets import host_target
from hlotune.schedules.errors import ProgramError
from tests.tiny_dot import COLUMNS, DEPTH, kernel, tiny_dot


@pytest.fixture(scope="module")
def runner() -> Iterator[ProcessRunner]:
    with ProcessRunner(host_target()) as found:
        yield found


def test_the_peak_beside_a_kernel_is_the_peak_of_the_machine(runner: ProcessRunner) -> None:
    beside = runner.beside_peak(kernel(), tiny_dot(), "f32", pairs=7, cache="warm")
    assert len(beside.samples_s) == len(beside.peak_flop_per_s) == 7
    known = runner.properties().flops_per_s["f32"]
    found = max(beside.peak_flop_per_s)
    assert known / 10 < found < 10 * known  # whatever else a shared machine does meanwhile


def test_a_kernel_of_few_operations_has_a_small_share(runner: ProcessRunner) -> None:
    beside = runner.beside_peak(kernel(), tiny_dot(), "f32", pairs=6, cache="warm")
    assert 0 < beside.share(2 * 4 * DEPTH * COLUMNS).median < 0.05


def test_a_share_is_of_the_peak_of_the_same_round() -> None:
    slow_and_fast = BesidePeak((2e-3, 1e-3, 1e-3), (1e11, 2e11, 2e11))
    assert slow_and_fast.share(10**8).median == pytest.approx(0.5)
    assert slow_and_fast.time_s == 1e-3


def test_a_type_without_a_peak_has_no_share(runner: ProcessRunner) -> None:
    with pytest.raises(ProgramError, match="to run beside multiply-adds of i1, got a device"):
        runner.beside_peak(kernel(), tiny_dot(), "i1")
