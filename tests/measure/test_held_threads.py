"""Calls beside other processes, with threads, waits and a clock that we make."""

import gc
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.measure.machine.thread_waits import ThreadWaits
from hlotune.measure.timing.held_threads import LONGEST_S, TRIES, HeldThreads, held_threads
from tests.support.soon import soon


@dataclass
class Machine:
    """Two threads of ours; `comes` says at each meeting whether the second one is there."""

    comes: Iterator[bool]
    now_s: float = 0.0
    meeting_s: float = 1e-5
    meetings: int = 0
    waited_ns: list[int] = field(default_factory=lambda: [0, 0])

    def meet(self) -> bool:
        self.meetings += 1
        came = next(self.comes)
        self.now_s += self.meeting_s if came else 6e-4
        if not came:
            self.waited_ns[1] += 600_000
        return came

    def look(self) -> tuple[int, ...]:
        return tuple(self.waited_ns)

    def longest_s(self, before: Sequence[int]) -> float:
        return 1e-9 * max(b - a for a, b in zip(before, self.waited_ns, strict=True))

    @property
    def held(self) -> HeldThreads:
        return HeldThreads(self.meet, cast(ThreadWaits, self), lambda: self.now_s)


def machine(*comes: bool) -> Machine:
    """The last one for ever."""

    def answers() -> Iterator[bool]:
        yield from comes
        while True:
            yield comes[-1]

    return Machine(answers())


def calls(machine: Machine, *of: tuple[float, float]) -> tuple[HeldThreads, list[float]]:
    """What `clock` says of calls that take so many seconds, of which a thread waits so many."""
    held, waiting, made = machine.held, iter(of), list[float]()

    def once() -> float:
        held.begin()
        seconds, waited_s = next(waiting)
        machine.waited_ns[0] += round(waited_s * 1e9)
        made.append(seconds)
        return seconds

    made_by_clock = held.clock(once)()
    return held, [made_by_clock, *made]


def test_a_call_begins_once_all_threads_are_on_their_processors() -> None:
    beside = machine(False, False, True)
    assert beside.held.begin()
    assert beside.meetings == 3


def test_what_threads_waited_before_a_call_is_no_part_of_it() -> None:
    beside = machine(False, True)
    held = beside.held
    held.begin()
    assert held.waited_s() == 0.0


def test_a_meeting_in_which_a_thread_lost_its_processor_is_held_again() -> None:
    beside = machine(True)
    beside.meeting_s = 1e-3
    held = beside.held
    assert not held.begin()
    assert beside.meetings > 2


def test_threads_that_never_come_are_waited_for_a_little_while() -> None:
    beside = machine(False)
    assert not beside.held.begin()
    assert LONGEST_S < beside.now_s < 2 * LONGEST_S


def test_a_call_in_which_nobody_waited_takes_what_it_takes() -> None:
    _, (seconds, *made) = calls(machine(True), (3e-4, 0.0))
    assert seconds == 3e-4
    assert len(made) == 1


def test_a_short_call_in_which_a_thread_waited_is_made_again() -> None:
    _, (seconds, *made) = calls(machine(True), (3.4e-3, 3.1e-3), (3e-4, 1e-7))
    assert seconds == 3e-4
    assert len(made) == 2


def test_of_a_long_call_the_longest_wait_is_taken_off() -> None:
    _, (seconds, *made) = calls(machine(True), (17e-3, 8e-3))
    assert seconds == pytest.approx(9e-3)
    assert len(made) == 1


def test_short_calls_that_are_never_spared_count_without_their_waits() -> None:
    _, (seconds, *made) = calls(machine(True), *[(5e-4, 2e-4)] * TRIES)
    assert seconds == pytest.approx(3e-4)
    assert len(made) == TRIES


def test_a_wait_that_is_longer_than_the_call_was_behind_it() -> None:
    _, (seconds, *_) = calls(machine(True), *[(1e-4, 3e-3)] * TRIES)
    assert seconds == 1e-4


def test_one_thread_needs_no_other_to_come() -> None:
    held = held_threads(host_target(1))
    assert held.begin()
    assert held.waited_s() >= 0.0


def test_threads_of_this_machine_come() -> None:
    assert soon(lambda: held_threads(host_target()).begin())


def looked_at(held: HeldThreads) -> set[int]:
    """The numbers of the threads whose accounts are open."""
    accounts = [Path(os.readlink(f"/proc/self/fd/{a}")) for a in held._waits._accounts]
    return {int(account.parent.name) for account in accounts}


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no accounts of waits")
def test_of_threads_that_call_one_after_the_other_each_is_looked_at() -> None:
    """The second one often gets what memory the first one had."""
    found, seen = list[HeldThreads](), list[bool]()

    def call() -> None:
        found.append(held_threads(host_target()))
        seen.append(threading.get_native_id() in looked_at(found[-1]))
        assert held_threads(host_target()) is found[-1]

    for _ in range(2):
        calling = threading.Thread(target=call)
        calling.start()
        calling.join()
    assert found[0] is not found[1]
    assert seen == [True, True]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="no accounts of waits")
def test_the_accounts_of_a_thread_that_has_ended_are_closed() -> None:
    open_files = list[int]()

    def call() -> None:
        open_files.extend(held_threads(host_target(1))._waits._accounts)

    calling = threading.Thread(target=call)
    calling.start()
    calling.join()
    del calling
    gc.collect()
    (account,) = open_files
    with suppress(OSError):
        assert "schedstat" not in os.readlink(f"/proc/self/fd/{account}")
