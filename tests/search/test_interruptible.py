"""Ctrl-C ends the wait for work that answers no signal, and the work is not gone on with."""

import os
import signal
import threading
import time

import pytest

from hlotune.search.finals.interruptible import interruptible, is_anything_left

CALL_S = 1.0


def test_work_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
    assert not is_anything_left()


def test_ctrl_c_ends_the_wait_in_the_middle_of_a_call_and_no_further_call_is_made() -> None:
    calls = list[float]()

    def work() -> None:
        for _ in range(3):
            time.sleep(CALL_S)  # of a thread that is not the main one no signal ends it
            calls.append(time.perf_counter())

    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    start_s = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        interruptible(work)
    assert time.perf_counter() - start_s < 0.2 + CALL_S / 2
    assert is_anything_left()
    end_s = start_s + 10 * CALL_S
    while is_anything_left() and time.perf_counter() < end_s:
        time.sleep(CALL_S / 20)
    assert not is_anything_left()
    assert len(calls) <= 1


def test_in_another_thread_work_is_done_in_place() -> None:
    found = list[threading.Thread]()
    thread = threading.Thread(target=lambda: found.append(interruptible(threading.current_thread)))
    thread.start()
    thread.join()
    assert found == [thread]
    assert interruptible(threading.current_thread) is not threading.main_thread()
