"""Loops in XLA's thread pool, against a pool of our own that starts tasks when the test says so."""

import ctypes
from collections.abc import Callable
from threading import Event, Thread, current_thread
from time import sleep

import pytest

from hlotune.codegen import dispatcher

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
FIRST_FUNCTION = 6  # words of XLA_FFI_Api before its functions
ERROR = 4096  # the address of an error, which nobody reads

Task = Callable[[], None]
Run = tuple[int, int, int]
"""Begin, end and slot of one call of a body."""


class Pool:
    """The functions of XLA that a loop calls; `schedule` decides what becomes of a task."""

    def __init__(self, schedule: Callable[[Task], int], threads: int = 4) -> None:
        self.decide = schedule
        self.threads = threads
        self.destroyed = 0
        self.asked = 0
        self.functions = {
            2: API(self._destroy), 11: API(self._schedule), 12: API(self._num_threads)
        }  # fmt: skip
        self.api = (ctypes.c_void_p * 24)()
        for i, function in self.functions.items():
            self.api[FIRST_FUNCTION + i] = ctypes.cast(function, ctypes.c_void_p).value

    def _schedule(self, arguments: int) -> int:
        _, _, _, task, data = (ctypes.c_void_p * 5).from_address(arguments)
        assert task is not None and data is not None
        return self.decide(lambda: TASK(task)(data))

    def _num_threads(self, arguments: int) -> int:
        self.asked += 1
        where = (ctypes.c_void_p * 4).from_address(arguments)[3]
        assert where is not None
        ctypes.c_int64.from_address(where).value = self.threads
        return 0 if self.threads else ERROR

    def _destroy(self, arguments: int) -> int:
        assert (ctypes.c_void_p * 3).from_address(arguments)[2] == ERROR
        self.destroyed += 1
        return 0

    def run(self, n: int, threads: int = 4, each: Task = lambda: None) -> list[Run]:
        """Runs a loop of n; `each` is called in every body."""
        runs: list[Run] = []

        def body(data: int, begin: int, end: int, slot: int) -> None:
            runs.append((begin, end, slot))
            each()

        function = dispatcher._library().address("hlotune_parallel_for")
        host = (ctypes.c_void_p * 4)(function, threads, ctypes.addressof(self.api), None)
        callback = BODY(body)
        loop = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, BODY, ctypes.c_void_p)
        loop(function)(ctypes.addressof(host), n, callback, None)
        return runs

    def threads_for(self, limit: int) -> int:
        """Threads that a kernel built for `limit` threads gets."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        threads = kind(dispatcher._library().address("hlotune_threads"))
        return int(threads(ctypes.addressof(self.api), None, limit))


def at_once(task: Task) -> int:
    task()
    return 0


def later(tasks: list[Task]) -> Callable[[Task], int]:
    """Keeps tasks in a list, for the test to start."""

    def keep(task: Task) -> int:
        tasks.append(task)
        return 0

    return keep


def refuse(task: Task) -> int:
    return ERROR


def never(task: Task) -> int:
    raise AssertionError("scheduled a task of a loop that needs none")


def test_each_task_runs_its_own_range_with_a_slot_of_its_own() -> None:
    assert Pool(at_once).run(10) == [(3, 5, 1), (5, 8, 2), (8, 10, 3), (0, 3, 0)]


def test_the_caller_takes_ranges_whose_tasks_do_not_start() -> None:
    tasks: list[Task] = []
    runs = Pool(later(tasks)).run(10)
    assert runs == [(0, 3, 0), (8, 10, 0), (5, 8, 0), (3, 5, 0)]
    assert len(tasks) == 3


def test_a_task_that_starts_after_the_loop_does_nothing() -> None:
    tasks: list[Task] = []
    runs = Pool(later(tasks)).run(10)
    for task in tasks:
        task()
    assert len(runs) == 4


def test_a_task_that_starts_while_the_caller_works_takes_its_range_from_it() -> None:
    tasks: list[Task] = []

    def start_one() -> None:
        if tasks:
            tasks.pop(0)()

    runs = Pool(later(tasks)).run(10, each=start_one)
    assert sorted(runs) == [(0, 3, 0), (3, 5, 1), (5, 8, 2), (8, 10, 3)]


def test_the_loop_returns_only_after_ranges_that_other_threads_run() -> None:
    threads: list[Thread] = []
    begun, done = Event(), []

    def start(task: Task) -> int:
        threads.append(Thread(target=task))
        threads[-1].start()
        begun.wait()
        return 0

    def slow() -> None:
        if current_thread() in threads:
            begun.set()
            sleep(0.05)
            done.append(True)

    Pool(start).run(2, threads=2, each=slow)
    assert done == [True]
    threads[0].join()


def test_a_pool_that_refuses_tasks_leaves_all_to_the_caller() -> None:
    pool = Pool(refuse)
    assert pool.run(10) == [(0, 3, 0), (8, 10, 0), (5, 8, 0), (3, 5, 0)]
    assert pool.destroyed == 3


@pytest.mark.parametrize(("n", "threads", "runs"), [(0, 4, 0), (-1, 4, 0), (1, 4, 1), (10, 1, 1)])
def test_a_loop_for_one_thread_is_not_scheduled(n: int, threads: int, runs: int) -> None:
    assert Pool(never).run(n, threads) == [(0, n, 0)] * runs


def test_a_loop_has_no_more_ranges_than_indices() -> None:
    assert sorted(Pool(at_once).run(2)) == [(0, 1, 0), (1, 2, 1)]


@pytest.mark.parametrize(("of_pool", "limit", "threads"), [(8, 4, 4), (2, 4, 2), (4, 4, 4)])
def test_a_kernel_gets_as_many_threads_as_it_was_built_for_and_the_pool_has(
    of_pool: int, limit: int, threads: int
) -> None:
    assert Pool(never, of_pool).threads_for(limit) == threads


def test_a_serial_kernel_asks_nothing_of_the_pool() -> None:
    pool = Pool(never)
    assert pool.threads_for(1) == 1
    assert pool.asked == 0


def test_without_a_pool_there_is_one_thread() -> None:
    pool = Pool(never, threads=0)
    assert pool.threads_for(4) == 1
    assert pool.destroyed == 1
