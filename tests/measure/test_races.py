"""Halves of loops: what the tasks of two threads would both write."""

import ctypes

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.codegen.runtime.loader import load
from hlotune.measure.verification import races
from hlotune.measure.verification.races import Body, Halves
from hlotune.schedules.errors import WrongResult
from tests.support.ir_kernels import reversal, visits

Integers = NDArray[np.int64]


def empty(n: int) -> Integers:
    return np.full(n, -1, np.int64)


def halves_of(*watched: Integers, most_bytes: int = 1 << 20) -> Halves:
    return Halves([w.view(np.uint8) for w in watched], most_bytes)


def test_the_second_half_of_a_loop_has_another_slot() -> None:
    counts, slots = empty(5), empty(5)
    halves = halves_of(counts, slots)
    load(visits(5, 2)).call("kernel", [], [counts.ctypes.data, slots.ctypes.data], 0, halves.host)
    np.testing.assert_array_equal(counts, 1)
    np.testing.assert_array_equal(slots, [0, 0, 0, 1, 1])


@pytest.mark.parametrize("n", [0, 1])
def test_a_loop_of_fewer_tasks_has_one_half(n: int) -> None:
    counts, slots = empty(n), empty(n)
    halves = halves_of(counts, slots)
    load(visits(n, 2)).call("kernel", [], [counts.ctypes.data, slots.ctypes.data], 0, halves.host)
    assert slots.tolist() == [0] * n
    halves.check()


def test_what_one_loop_writes_another_may_write_again() -> None:
    """Two loops, the second of which reads what all tasks of the first wrote."""
    x, scratch, y = np.arange(100), empty(100), empty(100)
    halves = halves_of(scratch, y)
    load(reversal(100, 2)).call(
        "kernel", [x.ctypes.data], [y.ctypes.data], scratch.ctypes.data, halves.host
    )
    np.testing.assert_array_equal(y, 2 * x[::-1])
    halves.check()


def loop(halves: Halves, n: int, body: Body) -> None:
    function, address = races._BODY(body), halves.host.parallel_for
    races._LOOP(address)(None, n, ctypes.cast(function, ctypes.c_void_p), None)


def in_one_place(place: Integers) -> Body:
    def body(_: int, begin: int, end: int, slot: int) -> None:
        place[-1] = end

    return body


def test_what_the_tasks_of_both_halves_change_is_refused() -> None:
    place = empty(9)
    halves = halves_of(place)
    loop(halves, 4, in_one_place(place))
    assert place[-1] == 4
    with pytest.raises(WrongResult, match="the tasks of two threads, got 1;"):  # of 2 and 4
        halves.check()


def test_halves_may_meet_inside_of_a_word() -> None:
    place = empty(1)
    parts = place.view(np.uint8)

    def body(_: int, begin: int, end: int, slot: int) -> None:
        parts[begin:end] = slot

    halves = halves_of(place)
    loop(halves, 6, body)
    assert parts.tolist() == [0, 0, 0, 1, 1, 1, 255, 255]
    halves.check()


def test_what_is_large_is_left_to_threads() -> None:
    small, large = empty(1), empty(2)
    halves = halves_of(large, small, most_bytes=16)
    loop(halves, 4, in_one_place(large))
    halves.check()
    loop(halves, 4, in_one_place(small))
    with pytest.raises(WrongResult, match="got 1"):
        halves.check()


def test_an_error_in_a_loop_is_raised_when_the_call_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> slice:
        raise KeyboardInterrupt

    monkeypatch.setattr(races, "_changed", interrupted)
    place = empty(1)
    halves = halves_of(place)
    loop(halves, 4, in_one_place(place))
    with pytest.raises(KeyboardInterrupt):
        halves.check()
