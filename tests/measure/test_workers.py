"""Worker processes: whatever a candidate does becomes its outcome, and the next candidate still
works.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import NEVER_APART, say_never_apart
from hlotune.measure.timing.impossible_times import peak_type
from hlotune.measure.timing.timing import MOST_BRIEF
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.channel import Channel, Message, pack
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.wire import from_outcome, from_target, to_outcome
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.kinds import named_target, target_of
from hlotune.schedules.targets.target import Properties
from tests.support.recorded import PROPERTIES
from tests.support.recorded import kernel as recorded_kernel
from tests.support.tiny_dot import CRASHES, FAULTS, hanging, kernel, tiny_dot

pytestmark = pytest.mark.smoke

FAULTY = (sys.executable, str(Path(__file__).parents[1] / "support" / "faulty_builder.py"))
DIRECT = Candidate(kernel(), Schedule("direct"))


def candidate(algorithm: str) -> Candidate:
    return Candidate(kernel(), Schedule(algorithm))


@pytest.fixture(scope="module")
def runner() -> Iterator[ProcessRunner]:
    with ProcessRunner(host_target(), cache="warm") as found:
        yield found


@pytest.fixture
def builder() -> Iterator[ProcessBuilder]:
    with ProcessBuilder(host_target(), timeout_s=1.0, command=FAULTY) as found:
        yield found


def failure(outcome: object) -> Failure:
    assert isinstance(outcome, Failure), outcome
    return outcome


def measured(outcome: object) -> Measurement:
    assert isinstance(outcome, Measurement), outcome
    return outcome


def test_builds_come_back_in_the_order_of_their_candidates(builder: ProcessBuilder) -> None:
    names = [f"n{i}" for i in range(20)]
    builts = builder.build([candidate(n) for n in names])
    assert [b.object.decode() for b in builts if not isinstance(b, Failure)] == names


def test_a_build_that_crashes_fails_alone(builder: ProcessBuilder) -> None:
    before, crash, after = builder.build([candidate(a) for a in ("a", "crash", "b")])
    assert failure(crash).kind == "crash"
    assert "SIGSEGV" in failure(crash).message
    assert not isinstance(before, Failure)
    assert not isinstance(after, Failure)


def test_a_build_that_hangs_is_stopped(builder: ProcessBuilder) -> None:
    builder.build([candidate("a")] * 2)
    start = time.monotonic()
    hang, after = builder.build([candidate("hang"), candidate("b")])
    assert failure(hang) == Failure("timeout", "no answer within 1 s; the worker was stopped")
    assert not isinstance(after, Failure)
    assert time.monotonic() - start < 10


def test_the_last_words_of_a_worker_are_reported(builder: ProcessBuilder) -> None:
    (dead,) = builder.build([candidate("exit")])
    assert failure(dead) == Failure("crash", "the worker died (exit code 7): out of cheese")


def test_what_is_no_object_is_a_failed_build(builder: ProcessBuilder) -> None:
    (nonsense,) = builder.build([candidate("nonsense")])
    assert failure(nonsense).kind == "build"


def test_the_default_is_not_built(builder: ProcessBuilder) -> None:
    (outcome,) = builder.build([Candidate(kernel(), DEFAULT)])
    assert "runner times it" in failure(outcome).message


def test_the_real_builder_builds_what_the_runner_times(runner: ProcessRunner) -> None:
    with ProcessBuilder(host_target(), processes=1, timeout_s=60.0) as builder:
        wrong, right = builder.build([candidate("sorcery"), DIRECT])
    assert failure(wrong).kind == "schedule"
    (trial,) = runner.measure(kernel(), [(DIRECT, right)])
    assert 1e-4 < measured(trial.outcome).build_s < 60.0


def test_a_worker_ends_with_its_parent() -> None:
    program = (
        "import subprocess, sys\n"
        f"w = subprocess.Popen({FAULTY!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "w.stdout.read(12); print(w.pid, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    )
    worker = Path(f"/proc/{int(done.stdout)}/stat")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not worker.exists() or worker.read_text().rsplit(") ")[-1].startswith("Z"):
            return
        time.sleep(0.02)
    raise AssertionError("the worker outlived its parent")


def answer(*code: str, ready: bool = True) -> Failure:
    """What comes of a request to a worker that runs some lines of code."""
    begin = (
        "import os, signal, sys",
        "from hlotune.measure.workers.channel import Message, pack",
        "def say(data): sys.stdout.buffer.write(data); sys.stdout.flush()",
        'say(pack(Message({"ready": True}))); sys.stdin.buffer.read(12)' if ready else "",
    )
    channel = Channel((sys.executable, "-c", "\n".join((*begin, *code))))
    try:
        return failure(channel.request(Message({"do": "build"}), 5.0))
    finally:
        channel.close()


def test_an_answer_that_is_no_message_is_a_crash() -> None:
    assert answer("say(b'x' * 1000); sys.stdin.read()").kind == "crash"


def test_a_worker_killed_by_the_system_is_a_mishap_of_the_machine() -> None:
    killed = answer("os.kill(os.getpid(), signal.SIGKILL)")
    assert (killed.kind, "memory runs out" in killed.message) == ("device", True)
    assert answer("os.kill(os.getpid(), signal.SIGABRT)").kind == "crash"


def test_a_worker_that_never_gets_ready_is_a_mishap_of_the_machine() -> None:
    early = answer("sys.exit('no such library')", ready=False)
    assert early == Failure(
        "device", "before it was ready, the worker died (exit code 1): no such library"
    )
    absent = failure(Channel(("/no/such/program",)).request(Message({}), 5.0))
    assert (absent.kind, "No such file" in absent.message) == ("device", True)


def test_a_process_with_many_open_files_still_talks_to_its_workers() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with ProcessBuilder(host_target(), processes=1, command=FAULTY) as builder:
            assert isinstance(builder.build([candidate("a")])[0], Built)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_frame_holds_its_header_as_plain_json() -> None:
    data = pack(Message({"do": "it"}, b"blob"))
    assert json.loads(data[12:-4]) == {"do": "it"}
    assert data.endswith(b"blob")


@pytest.mark.parametrize(
    "outcome",
    [Failure("crash", "boom"), Measurement(samples_s=(1.0, 2.0), cache="warm", error=0.5)],
)
def test_outcomes_survive_the_wire(outcome: Outcome) -> None:
    assert to_outcome(json.loads(json.dumps(from_outcome(outcome)))) == outcome


def test_targets_survive_the_wire() -> None:
    target = host_target()
    assert target_of(json.loads(json.dumps(from_target(target)))) == target


def test_a_right_kernel_is_timed(runner: ProcessRunner) -> None:
    (trial,) = runner.measure(kernel(11), [(DIRECT, tiny_dot(rows=11))])
    found = measured(trial.outcome)
    assert len(found.samples_s) >= 3, "fewer than five on a busy machine alone"
    assert found.cache == "warm"
    assert found.numerics == "strict"
    assert 1e-9 < found.time_s < 1e-2


def test_the_pace_beside_trials_is_told_once(runner: ProcessRunner) -> None:
    runner.probe_s()
    runner.measure(kernel(11), [(DIRECT, tiny_dot(rows=11))])
    assert runner.probe_s() > 1e-6
    assert runner.probe_s() == 0.0


def test_every_outcome_stands_at_its_candidate_and_the_run_goes_on(runner: ProcessRunner) -> None:
    objects: list[tuple[Candidate, Built | Failure]] = [
        (DIRECT, tiny_dot(FAULTS["the last tap is lost"])),
        (DIRECT, Failure("build", "as the builder said")),
        *((DIRECT, tiny_dot(fault)) for fault in CRASHES.values()),
        (DIRECT, tiny_dot(packed=True)),
    ]
    outcomes = [t.outcome for t in runner.measure(kernel(), objects)]
    kinds = [failure(o).kind for o in outcomes[:-1]]
    assert kinds == ["wrong_result", "build", *["crash"] * len(CRASHES)]
    measured(outcomes[-1])


def test_a_hanging_kernel_is_stopped_and_the_next_is_timed(runner: ProcessRunner) -> None:
    (hang,) = runner.measure(kernel(), [(DIRECT, hanging())], limit_s=3.0)
    assert failure(hang.outcome).kind == "timeout"
    (after,) = runner.measure(kernel(), [(DIRECT, tiny_dot())])
    measured(after.outcome)


def test_the_default_is_timed_as_a_candidate(runner: ProcessRunner) -> None:
    unused = Failure("schedule", "not built")
    (trial,) = runner.measure(kernel(), [(Candidate(kernel(), DEFAULT), unused)])
    assert measured(trial.outcome).numerics == "strict"


def test_constants_are_rotated_in_the_mode_of_a_network(runner: ProcessRunner) -> None:
    objects = [(DIRECT, tiny_dot()), (DIRECT, tiny_dot(packed=True))]
    trials = runner.measure(kernel(), objects, cache="model")
    assert [measured(t.outcome).cache for t in trials] == ["model", "model"]
    assert runner.default(kernel(), cache="model").time_s > 0


def resident_bytes(runner: ProcessRunner) -> int:
    process = runner._channel._process
    assert process is not None
    pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def test_a_worker_frees_large_operands_when_it_is_told_to(runner: ProcessRunner) -> None:
    large = recorded_kernel(1 << 25)
    runner.default(large)
    before = resident_bytes(runner)
    runner.forget()
    assert resident_bytes(runner) < before - (100 << 20)
    assert runner.default(kernel()).time_s > 0


def test_a_worker_gives_the_memory_of_results_back_when_it_is_told_to(
    runner: ProcessRunner,
) -> None:
    """It keeps what is freed, so that no call of a kernel meets fresh pages."""
    runner.default(recorded_kernel(1 << 12))
    idle = resident_bytes(runner)
    runner.default(recorded_kernel(1 << 25))
    runner.forget()
    assert resident_bytes(runner) < idle + (48 << 20)


def test_comparing_gives_paired_samples_and_names_who_failed(runner: ProcessRunner) -> None:
    objects: list[tuple[Candidate, Built | Failure]] = [
        (DIRECT, tiny_dot(FAULTS["channels are swapped"])),
        (DIRECT, tiny_dot()),
        (DIRECT, Failure("build", "no")),
        (DIRECT, tiny_dot(packed=True)),
    ]
    found = runner.compare(kernel(), objects, pairs=7)
    assert [type(c) for c in found.candidates] == [Failure, Measurement, Failure, Measurement]
    assert failure(found.candidates[0]).kind == "wrong_result"
    rounds = len(found.default.samples_s)
    assert 7 <= rounds <= MOST_BRIEF
    assert len(measured(found.candidates[1]).samples_s) == rounds


def test_a_time_beyond_the_peak_is_measured_again_and_refused(runner: ProcessRunner) -> None:
    (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot(flops=10**15))])
    assert failure(trial.outcome).kind == "device"
    assert "peak" in failure(trial.outcome).message


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


def test_one_thread_is_one_thread_for_everybody() -> None:
    with ProcessRunner(host_target(1), cache="warm") as runner:
        (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot())])
        measured(trial.outcome)
        assert runner.properties().flops_per_s["f32"] > 1e9


def test_a_default_that_xla_refuses_is_an_error(runner: ProcessRunner) -> None:
    broken = Kernel("func.func @kernel() -> (tensor<2xf32>) {\n  sorcery\n}\n")
    with pytest.raises(ProgramError, match="expected XLA to compile and run kernel"):
        runner.default(broken)


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
