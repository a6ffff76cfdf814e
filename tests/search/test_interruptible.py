"""Ctrl-C ends the wait for work that answers no signal, and the work is not gone on with."""

import gc
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from hlotune.search.finals import interruptible as module
from hlotune.search.finals.interruptible import interruptible, is_anything_left, over_within
from tests.support.given_up import LONGEST_S, met_by_ctrl_c
from tests.support.tree import ROOT


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Ctrl-C is heard though who began the tests has it ignored, as shells do in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_work_gives_what_it_gives_and_raises_what_it_raises() -> None:
    assert interruptible(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0)
    assert not is_anything_left()


def test_ctrl_c_ends_the_wait_in_the_middle_of_a_call_and_no_further_call_is_made() -> None:
    gate, calls = threading.Event(), list[int]()

    def work() -> None:
        met_by_ctrl_c(gate)
        calls.append(1)

    with given_up(gate):
        with pytest.raises(KeyboardInterrupt):
            interruptible(work)
        assert is_anything_left()
        assert not over_within(0.0)
    assert not is_anything_left()
    assert not calls


@contextmanager
def given_up(gate: threading.Event) -> Iterator[None]:
    """Opens a gate in any case, and waits for the thread behind it, which ends."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        gate.set()
    assert over_within(LONGEST_S)
    assert set(threading.enumerate()) <= before


def test_work_that_makes_an_error_of_the_interrupt_is_over_as_well() -> None:
    """As a library does that catches everything; its thread does not wait for more."""
    gate = threading.Event()

    def work() -> None:
        try:
            met_by_ctrl_c(gate)
        except BaseException as error:
            raise ValueError from error

    with given_up(gate), pytest.raises(KeyboardInterrupt):
        interruptible(work)
    assert interruptible(lambda: 3) == 3


def test_in_another_thread_work_is_done_in_place() -> None:
    found = list[threading.Thread]()
    thread = threading.Thread(target=lambda: found.append(interruptible(threading.current_thread)))
    thread.start()
    thread.join()
    assert found == [thread]
    assert interruptible(threading.current_thread) is not threading.main_thread()


def test_a_thread_that_has_ended_gets_no_work() -> None:
    """As in a process that was forked, which has none of the threads of its parent."""
    (ended := module._Helper()).give_up()
    ended.join(LONGEST_S)
    module._helpers.append(ended)
    assert interruptible(threading.current_thread) is not ended


class Held:
    """Stands for a program."""


def test_an_error_that_nobody_keeps_keeps_nothing() -> None:
    held = Held()
    alive = weakref.ref(held)

    def work(held: Held = held) -> None:
        raise ZeroDivisionError

    gc.disable()
    try:
        with suppress(ZeroDivisionError):
            interruptible(work)
        interruptible(lambda: None)  # the thread is back from the work before
        del held, work
        assert alive() is None
    finally:
        gc.enable()


LEAVING = """
import os, signal, time
from hlotune.cli import main
from hlotune.search.finals.interruptible import interruptible

signal.signal(signal.SIGINT, signal.default_int_handler)

def work():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(SECONDS)
    finally:  # it is raised ahead of the call or behind it
        time.sleep(SECONDS)
        os.write(1, b"over")

def command(*_):
    try:
        interruptible(work)
    except KeyboardInterrupt:
        return 2

main.run_command = command
"""


def printed(end: str, seconds: float) -> tuple[int, str]:
    """The exit code and the output of a process that gives up work, and then ends so."""
    code = LEAVING.replace("SECONDS", str(seconds)) + end
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=2 * LONGEST_S,
    )  # fmt: skip
    return run.returncode, run.stdout


def test_an_interpreter_that_ends_waits_for_work_that_was_given_up() -> None:
    """Else it ends in the middle of a call of XLA, which aborts then."""
    assert printed("command()", 1.0) == (0, "over")


def test_a_command_ends_at_once_whatever_it_came_to() -> None:
    """It fails for another reason than Ctrl-C, as where the program is wrong too."""
    assert printed("main.main()", LONGEST_S) == (2, "")
