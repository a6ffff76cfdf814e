"""Peaks that a verified kernel beats in a comparison, call included, are of a slow minute."""

from dataclasses import asdict, replace
from typing import cast

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Candidate, Failure
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.steps.schedule import Schedule
from tests.support.recorded import PROPERTIES
from tests.support.tiny_dot import kernel, tiny_dot


class ComparingWorker:
    """Its comparisons have calls of a second, and each look at the peaks finds twice as much."""

    def __init__(self) -> None:
        self.peak = 0.5e9
        self.asked: list[str] = []

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        self.asked.append(message.header["do"])
        match message.header["do"]:
            case "verify":
                return Message({"is": "verdict", "error": 0.0, "numerics": "strict"})
            case "compare":
                samples_s = [[2.0] * 9, [1.0] * 9]
                return Message({"is": "comparison", "samples_s": samples_s, "behind": []})
            case _:
                self.peak *= 2
                return Message(asdict(replace(PROPERTIES, flops_per_s={"f32": self.peak})))

    def close(self) -> None: ...


def compared(flops: int, *, with_peaks: bool) -> ProcessRunner:
    """A runner that has compared a kernel of so many operations twice."""
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = cast(Channel, ComparingWorker())
    if with_peaks:
        assert runner.properties().flops_per_s["f32"] == 1e9
    candidate = Candidate(kernel(), Schedule("direct"))
    for _ in range(2):
        runner.compare(kernel(), [(candidate, tiny_dot(flops=flops))], pairs=9)
    return runner


@pytest.mark.parametrize(("flops", "peak"), ((10**8, 1e9), (3 * 10**9, 2e9)))
def test_peaks_that_a_kernel_beats_are_measured_again_once(flops: int, peak: float) -> None:
    assert compared(flops, with_peaks=True).properties().flops_per_s["f32"] == peak


def test_peaks_that_nobody_asked_for_are_not_measured_for_a_comparison() -> None:
    assert compared(3 * 10**9, with_peaks=False).properties().flops_per_s["f32"] == 1e9


def test_a_comparison_measures_no_peaks_itself() -> None:
    """The seconds would count as those of the kernel's final."""
    runner = compared(3 * 10**9, with_peaks=True)
    worker = cast(ComparingWorker, runner._channel)
    assert worker.asked.count("properties") == 1
    assert [runner.properties().flops_per_s["f32"] for _ in range(2)] == [2e9, 2e9]
    assert worker.asked.count("properties") == 2
