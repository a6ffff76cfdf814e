"""Workers that are begun before somebody asks for them."""

import os
import sys
from collections.abc import Iterator

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.workers import early_start
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.early_start import (
    BUILD_ENVIRONMENT,
    BUILDERS,
    MOST_BUILDERS,
    builders_for,
    taken,
    workers_ahead,
)
from hlotune.schedules.targets.gpu import gpu_target

TELLS = (
    sys.executable,
    "-c",
    "import os\n"
    "from hlotune.measure.workers.channel import Message\n"
    "from hlotune.measure.workers.worker import serve\n"
    "serve({'tell': lambda _: Message({'pid': os.getpid(), 'is': os.environ.get('XLA_FLAGS')})})",
)


@pytest.fixture
def channel() -> Iterator[Channel]:
    found = Channel(TELLS)
    yield found
    found.close()


def told(channel: Channel) -> Message:
    reply = channel.request(Message({"do": "tell"}), 30.0)
    assert isinstance(reply, Message), reply
    return reply


def test_a_process_that_was_begun_answers(channel: Channel) -> None:
    channel.begin()
    channel.settle()
    first = told(channel).header["pid"]
    channel.begin()
    assert told(channel).header["pid"] == first != os.getpid()


def test_a_process_begun_under_other_variables_begins_anew(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.begin()
    first = told(channel).header["pid"]
    monkeypatch.setenv("TPU_SKIP_MDS_QUERY", "1")  # as jax does
    channel.begin()
    assert told(channel).header["pid"] == first
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    channel.begin()
    assert told(channel).header["is"] == "--xla_cpu_enable_fast_math=false"


def test_what_cannot_begin_is_told_to_the_next_request() -> None:
    absent = Channel(("/no/such/program",))
    absent.begin()
    absent.settle()
    reply = absent.request(Message({}), 5.0)
    assert isinstance(reply, Failure)
    assert "No such file" in reply.message


def test_workers_begun_ahead_are_taken_once_and_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_start, "BUILD_WORKER", TELLS)
    monkeypatch.setattr(early_start, "DEVICE_WORKER", TELLS)
    with workers_ahead():
        first, second = (taken(TELLS, BUILD_ENVIRONMENT) for _ in range(BUILDERS))
        other = taken(TELLS, BUILD_ENVIRONMENT)
    assert [c.is_begun for c in (first, second, other)] == [True, True, False]
    assert not taken(TELLS, early_start.device_environment()).is_begun
    for channel in first, second:
        channel.close()


def test_more_processes_build_for_a_gpu_where_there_are_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert builders_for(host_target()) == BUILDERS
    assert builders_for(gpu_target("cuda:h100")) == MOST_BUILDERS
