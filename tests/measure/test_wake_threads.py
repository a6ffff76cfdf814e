"""Threads that a kernel will need are awake when its time is taken."""

from threading import Thread
from time import sleep

import pytest

from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.dispatcher import crew_host, crew_rests
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import SMALL, compute_text, multiply_add_loop
from hlotune.measure.timing.wake_threads import meeting
from hlotune.measure.verification.buffers import guarded
from tests.support.soon import soon


@pytest.mark.parametrize("pause_s", [0.0, 0.02])
def test_all_threads_come_to_a_meeting(pause_s: float) -> None:
    assert soon(meeting(host_target()), pause_s)


def test_threads_that_are_at_work_elsewhere_do_not_come() -> None:
    target = host_target()
    if target.threads == 1:
        pytest.skip("one thread needs no other")
    text = compute_text(multiply_add_loop("f32", target), 10_000_000, target.threads)
    built = Built(compile_object(text, target, "work"), 0, (), 0, target.threads)
    source, sink = guarded(4096, "before"), guarded(1 << 16, "before")
    source.data[...] = SMALL
    loaded, meet = load(built), meeting(target)
    arguments = KERNEL, [source.address], [sink.address], 0, crew_host()
    work = Thread(target=loaded.call, args=arguments)
    work.start()
    sleep(0.005)
    came = meet()
    assert work.is_alive()
    work.join()
    assert not came


def test_threads_that_slept_look_for_work_behind_a_meeting() -> None:
    target = host_target()
    meet = meeting(target)
    if target.threads == 1:
        pytest.skip("one thread needs no other")

    def awakes() -> bool:
        while not crew_rests():
            sleep(0.001)
        meet()
        return not crew_rests()

    assert soon(awakes)
