"""Samples of the default are taken again while its threads share a processor."""

import os
import threading
from time import sleep
from types import SimpleNamespace

import pytest

from hlotune.measure.machine.affinity import parted, threads_named
from hlotune.measure.machine.run_queue import RunQueue
from hlotune.measure.timing import retaken
from hlotune.measure.timing.retaken import (
    ALONE_S,
    MOST_RUN_UP,
    RUN_UP_S,
    TRIES,
    Retaken,
    RunUp,
    run_up,
)

CALL_S = 1e-3


class Losing(RunQueue):
    """Loses what it is told, call after call."""

    def __init__(self, losses_s: list[float]) -> None:
        super().__init__(2)
        self.losses_s, self.begun = losses_s, 0

    def follow(self) -> None:
        pass

    def begin(self) -> None:
        self.begun += 1

    def lost_s(self) -> float:
        return self.losses_s.pop(0)


def timed(losses_s: list[float]) -> tuple[float, int, int]:
    """Seconds of the sample that counts, calls that were timed, and calls that were not."""
    untimed, times_s = list[None](), list[float]()
    queue = Losing(losses_s)
    retaken = Retaken(queue, part=lambda: untimed.append(None))

    def once() -> float:
        retaken.ready()
        times_s.append(CALL_S * (1 + queue.begun))
        return times_s[-1]

    return retaken.clock(once)(), len(times_s), len(untimed)


def test_a_call_that_lost_nothing_is_the_sample() -> None:
    assert timed([0.0]) == (2 * CALL_S, 1, 0)


def test_a_call_that_lost_time_is_made_again_behind_one_that_parts_the_threads() -> None:
    assert timed([CALL_S, CALL_S, 0.0]) == (4 * CALL_S, 3, 2)


def test_a_call_of_a_second_is_made_once_whatever_it_lost() -> None:
    queue = Losing([1.0, 0.0])
    assert Retaken(queue).clock(lambda: 2.0)() == 2.0
    assert len(queue.losses_s) == 1


def test_the_loss_of_several_calls_is_held_against_the_time_of_all() -> None:
    queue = Losing([0.2 * CALL_S * 5, 0.3 * CALL_S * 5, 0.0])
    retaken = Retaken(queue)
    clock = retaken.clock(lambda: CALL_S, calls=5)
    assert clock() == CALL_S
    assert len(queue.losses_s) == 2
    clock()
    assert queue.losses_s == []


@pytest.mark.parametrize("short", [True, False])
def test_a_short_call_is_made_once_more_when_its_threads_have_been_asked_and_met(
    short: bool,
) -> None:
    done = list[str]()

    class Asked(Losing):
        def begin(self) -> None:
            done.append("asked")

    def before() -> bool:
        done.append("run up")
        return short

    retaken = Retaken(Asked([]), before, settle=lambda: done.append("settled"))
    retaken.ready(lambda: done.append("met"))
    assert done == ["run up", "asked", "met"] + ["settled"] * short


def test_a_run_up_is_one_long_call_or_a_few_short_ones() -> None:
    calls = list[float]()
    assert run_up(lambda: calls.append(1.0))
    assert len(calls) == MOST_RUN_UP

    def long() -> None:
        calls.append(1.0)
        sleep(2 * RUN_UP_S)

    calls.clear()
    assert not run_up(long)
    assert len(calls) == 1


def test_calls_that_take_long_have_two_run_ups_and_known_ones_have_none() -> None:
    calls = list[float]()

    def long() -> None:
        calls.append(1.0)
        sleep(ALONE_S)

    running, known = RunUp(long), RunUp(long, is_long=True)
    assert not any([running(), running(), running(), known()])
    assert len(calls) == 2
    short = RunUp(lambda: calls.append(1.0))
    assert all([short(), short()])
    assert len(calls) == 2 + 2 * MOST_RUN_UP


def test_one_long_call_among_shorter_ones_ends_no_run_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, seconds = 0.0, [ALONE_S, 2 * RUN_UP_S, ALONE_S, 2 * RUN_UP_S]

    def call() -> None:
        nonlocal now_s
        now_s += seconds.pop(0)

    monkeypatch.setattr(retaken, "time", SimpleNamespace(perf_counter=lambda: now_s))
    running = RunUp(call)
    assert not any(running() for _ in range(4))
    assert not seconds


def test_what_threads_need_to_wake_is_no_loss() -> None:
    assert timed([4e-5])[1] == 1


def test_threads_that_never_come_apart_are_not_waited_for() -> None:
    assert timed([CALL_S * 100] * TRIES)[1] == TRIES


def test_long_calls_that_no_try_makes_better_are_made_once_from_the_third_on() -> None:
    queue = Losing([ALONE_S] * (2 * TRIES + 1) + [0.0, ALONE_S, 0.0])
    clock = Retaken(queue).clock(lambda: ALONE_S)
    tries = list[int]()
    for _ in range(5):
        before = len(queue.losses_s)
        clock()
        tries.append(before - len(queue.losses_s))
    assert tries == [TRIES, TRIES, 1, 1, 2], "one that lost nothing begins anew"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_helpers_are_parted_from_their_caller_for_a_while() -> None:
    end = threading.Event()
    helper = threading.Thread(target=end.wait)
    helper.start()
    assert helper.native_id is not None
    before = os.sched_getaffinity(0)
    with parted([helper.native_id]):
        assert os.sched_getaffinity(0) == {min(before)}
        assert os.sched_getaffinity(helper.native_id) == before - {min(before)}
    assert os.sched_getaffinity(0) == os.sched_getaffinity(helper.native_id) == before
    end.set()
    helper.join()
    with parted([helper.native_id]):  # one that has ended is no error
        pass
    assert threads_named("no thread's name") == []
