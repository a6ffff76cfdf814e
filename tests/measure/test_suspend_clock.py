"""A clock that stands still while the process is suspended, and only then."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from hlotune.measure.machine.suspend_clock import BEAT_S, LATE_S, Pulse, absence_s, beating


@dataclass
class World:
    """The time, and what the process has worked."""

    time_s: float = 100.0
    worked_s: float = 7.0

    def now(self) -> float:
        return self.time_s

    def worked(self) -> float:
        return self.worked_s

    def beat(self, pulse: Pulse, beats: int, late_s: float = 0.0, worked_s: float = 0.0) -> None:
        for _ in range(beats):
            self.time_s += BEAT_S
            pulse.look()
        self.time_s += late_s
        self.worked_s += worked_s


def test_between_two_beats_nobody_is_away() -> None:
    world = World()
    pulse = Pulse(world.now, world.worked)
    world.beat(pulse, beats=20)
    assert (pulse.start_s, pulse.clock_s()) == (100.0, 110.0)


def test_who_comes_back_late_was_away() -> None:
    world = World()
    pulse = Pulse(world.now, world.worked)
    world.beat(pulse, beats=4, late_s=300.0)
    assert pulse.clock_s() == pytest.approx(102.0 + BEAT_S)
    world.beat(pulse, beats=4)
    assert pulse.clock_s() == pytest.approx(104.0 + BEAT_S)
    assert pulse.away_s == pytest.approx(300.0 - BEAT_S)


def test_who_worked_all_the_while_was_not_away() -> None:
    world = World()
    pulse = Pulse(world.now, world.worked)
    world.beat(pulse, beats=4, late_s=30.0, worked_s=29.5)
    assert pulse.clock_s() == pytest.approx(132.0)


def test_a_busy_machine_s_delays_count() -> None:
    assert absence_s(BEAT_S + LATE_S, 0.0) == 0.0
    assert absence_s(BEAT_S + LATE_S + 0.1, 0.0) == pytest.approx(LATE_S + 0.1)
    assert absence_s(20.0, 12.0) == pytest.approx(8.0)


def test_a_pulse_that_beats_already_beats_on() -> None:
    with beating() as pulse, beating(pulse) as same:
        assert same is pulse
        assert pulse.clock_s() >= pulse.start_s


SUSPENDED = """
import os, signal, sys
from hlotune.measure.machine import suspend_clock as rules
rules.BEAT_S, rules.LATE_S = 0.02, 0.1
with rules.beating() as pulse:
    print("ready", flush=True)
    sys.stdin.readline()
    print(pulse.clock_s() - pulse.start_s, pulse.away_s, flush=True)
"""


def test_a_stopped_process_finds_that_it_was_away() -> None:
    program = [sys.executable, "-c", SUSPENDED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    begun_s = time.monotonic()
    with subprocess.Popen(program, **pipes) as stopped:  # type: ignore[call-overload]
        assert stopped.stdout.readline() == "ready\n"
        os.kill(stopped.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(stopped.pid, signal.SIGCONT)
        said, _ = stopped.communicate("go on\n")
    clock_s, away_s = map(float, said.split())
    assert away_s > 0.1
    assert clock_s + away_s <= time.monotonic() - begun_s
