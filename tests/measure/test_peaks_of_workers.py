"""Times that no machine reaches, peaks that were measured while it was busy, and workers that are
taken away.
"""

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import cast

import pytest

from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import NEVER_APART, say_never_apart
from hlotune.measure.timing.impossible_times import peak_type
from hlotune.measure.trial import Failure, Measurement
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.wire import from_outcome
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.targets.kinds import named_target
from hlotune.schedules.targets.target import Properties
from tests.support.outcomes import DIRECT, failure, measured
from tests.support.recorded import PROPERTIES
from tests.support.tiny_dot import kernel, tiny_dot

pytestmark = pytest.mark.smoke


def test_a_peak_that_was_reached_before_makes_a_time_possible() -> None:
    before = replace(PROPERTIES, flops_per_s={"f32": 1e30})
    with ProcessRunner(host_target(), cache="warm", known=before) as runner:
        (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot(flops=10**15))])
        measured(trial.outcome)
        today = runner.properties()
    assert today.flops_per_s["f32"] == 1e30
    assert 1e9 < today.flops_per_s["f64"] < 1e30


class DyingWorker:
    """Measures peaks once, then neither again nor beside a kernel; each time is a second."""

    dead = False

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        if message.header["do"] == "measure":
            return Message(from_outcome(Measurement(samples_s=(1.0,) * 5, cache="warm")))
        if self.dead or message.header["do"] == "beside":
            return Failure("device", "before it was ready, the worker died (exit code 7)")
        self.dead = True
        return Message(asdict(PROPERTIES))

    def close(self) -> None: ...


def test_peaks_stay_as_they_were_where_they_cannot_be_measured_again() -> None:
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = worker = cast(Channel, DyingWorker())
    possible, impossible = tiny_dot(flops=10**9), tiny_dot(flops=10**15)
    objects = [(DIRECT, built) for built in (possible, impossible, possible)]
    before, refused, after = (t.outcome for t in runner.measure(kernel(), objects))
    assert cast(DyingWorker, worker).dead
    assert failure(refused).kind == "device" and "peak" in failure(refused).message
    assert measured(before) == measured(after)
    assert runner.properties() == PROPERTIES


class BusyWorker:
    """A worker on a machine that was busy when its peaks were measured; each time is a second.

    Beside a kernel multiply-adds then are eleven times as fast as its peaks say.
    """

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        if message.header["do"] == "measure":
            return Message(from_outcome(Measurement(samples_s=(1.0,) * 5, cache="warm")))
        if message.header["do"] == "beside":
            return Message({"is": "beside", "samples_s": [1.0] * 9, "work_per_s": [1.1e10] * 9})
        return Message(asdict(replace(PROPERTIES, flops_per_s={"f32": 1e9})))

    def close(self) -> None: ...


@pytest.mark.parametrize(("flops", "is_possible"), ((10**10, True), (2 * 10**10, False)))
def test_a_time_is_impossible_that_beats_multiply_adds_beside_it(
    flops: int, is_possible: bool
) -> None:
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = cast(Channel, BusyWorker())
    (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot(flops=flops))])
    assert isinstance(trial.outcome, Measurement) == is_possible
    assert runner.properties().flops_per_s["f32"] == (1.1e10 if is_possible else 1e9)


class SlowedWorker(BusyWorker):
    """Multiply-adds are as slow beside a kernel as before, but for one turn of them."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        self.asked.append(message.header["do"])
        if message.header["do"] == "beside":
            rates = [1e9] * 30 + [1.1e10]
            return Message({"is": "beside", "samples_s": [1.0] * 31, "work_per_s": rates})
        return super().request(message, timeout_s)


def test_a_kernel_is_sound_that_is_no_faster_than_the_fastest_multiply_adds() -> None:
    """Another process takes as long from a turn of multiply-adds as from ten short kernels."""
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = cast(Channel, worker := SlowedWorker())
    built = tiny_dot(flops=115 * 10**8)
    trials = runner.measure(kernel(), [(DIRECT, built)] * 3)
    assert all(isinstance(t.outcome, Measurement) for t in trials)
    assert worker.asked.count("beside") == 1


def test_what_a_sound_kernel_reached_is_a_peak_from_then_on() -> None:
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = cast(Channel, SlowedWorker())
    runner.measure(kernel(), [(DIRECT, tiny_dot(flops=115 * 10**8))])
    assert runner.properties().flops_per_s["f32"] == pytest.approx(1.15e10)


class LostWorker:
    """The system takes it away at the first request of each kind."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        do = message.header["do"]
        self.asked.append(do)
        if self.asked.count(do) == 1:
            return Failure("device", "the worker died (SIGKILL)")
        if do == "properties":
            return Message(asdict(PROPERTIES))
        return Message(from_outcome(Measurement(samples_s=(1.0,) * 5, cache="warm")))

    def close(self) -> None: ...


def test_a_worker_that_the_machine_took_away_is_asked_again_where_no_candidate_is_to_blame() -> (
    None
):
    runner = ProcessRunner(host_target(), cache="warm")
    runner._channel = worker = cast(Channel, LostWorker())
    assert runner.properties() == PROPERTIES
    assert runner.default(kernel()).time_s == 1.0
    (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot(flops=1))])
    assert failure(trial.outcome).kind == "device"
    asked = cast(LostWorker, worker).asked
    assert asked == ["properties", "properties", "default", "default", "measure"]


def test_peaks_that_were_never_measured_are_an_error() -> None:
    runner = ProcessRunner(host_target(), cache="warm")
    worker = DyingWorker()
    worker.dead = True
    runner._channel = cast(Channel, worker)
    with pytest.raises(ProgramError, match=r"expected the peaks of .*, got a device \(before it"):
        runner.properties()


def test_peaks_are_those_of_the_types_that_the_kernel_uses() -> None:
    known = Properties(
        flops_per_s={"f32": 2.0, "f64": 1.0, "bf16": 4.0}, read_bytes_per_s=1.0, clock_hz=1.0
    )
    texts = ("tensor<2xf64>", "tensor<2xf32>, tensor<2xi32>", "tensor<2xbf16>, tensor<f32>")
    found = [peak_type(Kernel(t), host_target(), known) for t in texts]
    assert found == ["f64", "f32", "bf16"]
    assert peak_type(Kernel("tensor<2xi32>"), host_target(), known) is None
    h100 = named_target("cuda:h100")
    assert h100.peaks is not None
    assert peak_type(Kernel("tensor<2xf32>"), h100, h100.peaks) == "tf32"


def test_products_of_bytes_have_the_peak_of_bytes_or_none() -> None:
    """Whatever floats they are scaled to: their dots are faster than any of these."""
    floats = Properties(flops_per_s={"f32": 2.0}, read_bytes_per_s=1.0, clock_hz=1.0)
    both = replace(floats, flops_per_s={"f32": 2.0, "i8": 8.0})
    scaled = Kernel("tensor<2x4xi8>, tensor<4x2xi8>, tensor<2x2xi32>, tensor<2x2xf32>")
    plain = Kernel("tensor<2x4xi8>, tensor<4x2xi8>, tensor<2x2xi32>")
    found = [[peak_type(k, host_target(), p) for k in (scaled, plain)] for p in (floats, both)]
    assert found == [[None, None], ["i8", "i8"]]


def test_who_runs_a_search_hears_that_threads_never_come_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The process that finds it out has nobody who reads what it prints."""
    say_never_apart.cache_clear()
    answer = Message({**asdict(PROPERTIES), NEVER_APART: True})
    runner = ProcessRunner(host_target())
    runner._channel = cast(Channel, SimpleNamespace(request=lambda *_: answer))
    assert runner.properties() == PROPERTIES
    assert "samples are taken as they come" in capsys.readouterr().err
