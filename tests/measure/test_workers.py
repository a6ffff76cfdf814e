"""Worker processes: whatever a candidate does becomes its outcome, and the next candidate still
works.
"""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.timing import MOST_BRIEF
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from tests.support.outcomes import DIRECT, failure, measured
from tests.support.recorded import kernel as recorded_kernel
from tests.support.tiny_dot import CRASHES, FAULTS, hanging, kernel, tiny_dot

pytestmark = pytest.mark.smoke


@pytest.fixture(scope="module")
def runner() -> Iterator[ProcessRunner]:
    with ProcessRunner(host_target(), cache="warm") as found:
        yield found


def test_the_real_builder_builds_what_the_runner_times(runner: ProcessRunner) -> None:
    with ProcessBuilder(host_target(), processes=1, timeout_s=60.0) as builder:
        wrong, right = builder.build([Candidate(kernel(), Schedule("sorcery")), DIRECT])
    assert failure(wrong).kind == "schedule"
    (trial,) = runner.measure(kernel(), [(DIRECT, right)])
    assert 1e-4 < measured(trial.outcome).build_s < 60.0


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


def test_one_thread_is_one_thread_for_everybody() -> None:
    with ProcessRunner(host_target(1), cache="warm") as runner:
        (trial,) = runner.measure(kernel(), [(DIRECT, tiny_dot())])
        measured(trial.outcome)
        assert runner.properties().flops_per_s["f32"] > 1e9


def test_a_default_that_xla_refuses_is_an_error(runner: ProcessRunner) -> None:
    broken = Kernel("func.func @kernel() -> (tensor<2xf32>) {\n  sorcery\n}\n")
    with pytest.raises(ProgramError, match="expected XLA to compile and run kernel"):
        runner.default(broken)
