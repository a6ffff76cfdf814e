"""Workers that build, and what goes between them and who asks: each candidate fails alone."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlotune.codegen.built import Built
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.channel import Channel, Message, pack
from hlotune.measure.workers.wire import from_outcome, from_target, to_outcome
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.kinds import target_of
from tests.support.outcomes import failure
from tests.support.tiny_dot import kernel

pytestmark = pytest.mark.smoke

FAULTY = (sys.executable, str(Path(__file__).parents[1] / "support" / "faulty_builder.py"))


def candidate(algorithm: str) -> Candidate:
    return Candidate(kernel(), Schedule(algorithm))


@pytest.fixture
def builder() -> Iterator[ProcessBuilder]:
    with ProcessBuilder(host_target(), timeout_s=1.0, command=FAULTY) as found:
        yield found


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
