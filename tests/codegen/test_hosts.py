"""Hosts of direct calls: every index exactly once, slots in range, order as promised."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.codegen.runtime import hosts
from hlotune.codegen.runtime.loader import Host, load
from tests.support.ir_kernels import order, reversal, visits

SIZES = [0, 1, 2, 3, 17, 1000]


def run(host: Host, n: int, threads: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How often each index ran, and its slot."""
    counts, slots = np.full(n, 99, np.int64), np.full(n, -1, np.int64)
    loaded = load(visits(n, threads))
    assert loaded.call("kernel", [], [counts.ctypes.data, slots.ctypes.data], 0, host) == 0
    return counts, slots


def every_host(threads: int) -> list[Host]:
    return [hosts.serial(), hosts.shuffled(1, threads), hosts.threaded(threads)]


@pytest.mark.parametrize("n", SIZES)
def test_every_host_runs_every_index_once_with_a_slot_in_range(n: int) -> None:
    for host in every_host(4):
        counts, slots = run(host, n, 4)
        assert (counts == 1).all()
        assert ((slots >= 0) & (slots < host.threads)).all()


@pytest.mark.parametrize("n", SIZES)
def test_every_host_runs_loops_one_after_another(n: int) -> None:
    x, scratch = np.arange(n), np.full(n, -1)
    for host in every_host(3):
        y = np.zeros(n, np.int64)
        loaded = load(reversal(n, 3))
        loaded.call("kernel", [x.ctypes.data], [y.ctypes.data], scratch.ctypes.data, host)
        np.testing.assert_array_equal(y, 2 * x[::-1])


def test_the_serial_host_uses_slot_0() -> None:
    assert set(run(hosts.serial(), 50, 4)[1]) == {0}


def test_the_threaded_host_gives_each_thread_one_contiguous_range() -> None:
    _, slots = run(hosts.threaded(3), 10, 3)
    np.testing.assert_array_equal(slots, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2])


def test_the_shuffled_host_uses_all_slots_in_no_order() -> None:
    _, slots = run(hosts.shuffled(3, 4), 1000, 4)
    assert set(slots) == {0, 1, 2, 3}
    assert (np.diff(slots) != 0).mean() > 0.2


def test_the_shuffled_host_runs_small_ranges_in_random_order() -> None:
    places = np.zeros(1000, np.int64)
    load(order(1000)).call("kernel", [], [places.ctypes.data], 0, hosts.shuffled(3, 1))
    np.testing.assert_array_equal(np.sort(places), np.arange(1000))
    within = np.diff(places) == 1
    assert 0.4 < within.mean() < 0.6  # ranges of 1 to 3: on average every second index begins one
    jumps = np.diff(places)[~within]
    assert 0.4 < (jumps > 0).mean() < 0.6


def test_the_shuffled_host_repeats_itself_for_the_same_seed_only() -> None:
    one, same, other = (run(hosts.shuffled(seed, 4), 200, 4)[1] for seed in (5, 5, 6))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_shuffled_host_changes_from_loop_to_loop() -> None:
    host = hosts.shuffled(5, 4)
    assert (run(host, 200, 4)[1] != run(host, 200, 4)[1]).any()


def test_a_host_runs_no_more_bodies_at_once_than_the_kernel_was_built_for() -> None:
    for host in every_host(8):
        assert run(host, 100, 2)[1].max() <= 1


@pytest.mark.parametrize("threads", [0, -1])
def test_a_host_without_threads_is_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=r"expected at least one thread or slot, got"):
        hosts.threaded(threads)
