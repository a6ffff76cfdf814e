"""Limits of time: what counts of a wait, and what does not."""

import os
import signal
import subprocess
import sys
import time

import pytest

from hlotune.measure.machine.suspend_timeout import Late, Patience


class World:
    """Something that is there at `at_s`; the process is suspended for `lost_s` at second 2."""

    def __init__(self, at_s: float, lost_s: float = 0.0) -> None:
        self.at_s, self.lost_s = at_s, lost_s
        self.time_s = 0.0

    def now(self) -> float:
        return self.time_s

    def is_there(self, seconds: float) -> bool:
        """After a wait of as many seconds, or as long as it takes."""
        before_s = self.time_s
        self.time_s = min(before_s + seconds, max(before_s, self.at_s))
        if before_s < 2.0 <= self.time_s:
            self.time_s += self.lost_s
            self.at_s += self.lost_s
        return self.time_s >= self.at_s

    def wait(self, limit_s: float) -> Patience:
        patience = Patience(limit_s, self.now)
        patience.wait(self.is_there)
        return patience


def test_what_comes_in_time_is_taken_and_what_is_left_of_the_time_is_kept() -> None:
    assert World(at_s=3.5).wait(10.0).left_s == pytest.approx(6.5)


@pytest.mark.parametrize("limit_s", [0.0, 0.3, 3.0, 3.4])
def test_what_comes_later_is_late(limit_s: float) -> None:
    world = World(at_s=3.5)
    with pytest.raises(Late):
        world.wait(limit_s)
    assert world.time_s == pytest.approx(limit_s)


def test_waits_of_one_limit_share_it() -> None:
    patience = World(at_s=3.5).wait(5.0)
    with pytest.raises(Late):
        patience.wait(World(at_s=2.0).is_there)


def test_time_in_which_this_process_was_suspended_does_not_count() -> None:
    world = World(at_s=3.5, lost_s=60.0)
    assert 5.0 <= world.wait(10.0).left_s <= 6.5
    assert world.time_s == pytest.approx(63.5)


SLOW_ANSWER = """
import sys, time
from hlotune.measure.workers.channel import Channel, Message
worker = '''
import sys, time
from hlotune.measure.workers.channel import Message, pack
def say(data): sys.stdout.buffer.write(data); sys.stdout.flush()
say(pack(Message({"ready": True}))); sys.stdin.buffer.read(12)
for _ in range(20): time.sleep(0.1)
say(pack(Message({"is": "there"})))
'''
channel = Channel((sys.executable, "-c", worker))
channel._started()
print("begun", flush=True)
print(channel.request(Message({}), 3.0))
"""


@pytest.mark.slow
def test_a_candidate_does_not_run_out_of_time_while_all_processes_are_suspended() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_ANSWER],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(4)
    os.killpg(process.pid, signal.SIGCONT)
    assert "there" in process.communicate(timeout=30)[0]
