"""Threads that a kernel will need are awake when its time is taken."""

from time import sleep

import pytest

from hlotune.codegen.runtime.dispatcher import crew_rests
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.wake_threads import meeting


@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_all_threads_have_come_when_a_meeting_ends(pause_s: float) -> None:
    target = host_target()
    meet = meeting(target)
    for _ in range(5):
        sleep(pause_s)
        assert meet() == target.threads


def test_threads_that_slept_look_for_work_behind_a_meeting() -> None:
    target = host_target()
    meet = meeting(target)
    if target.threads == 1:
        pytest.skip("one thread needs no other")
    awake = 0
    for _ in range(20):
        while not crew_rests():
            sleep(0.001)
        meet()
        awake += not crew_rests()
    assert awake > 0
