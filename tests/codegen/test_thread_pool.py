"""Loops of kernels that XLA calls, with a crew whose workers read mail when the test says so."""

import ctypes
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread, current_thread
from time import monotonic_ns, sleep

import pytest

from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.thread_pool import Crew, start
from tests.support.soon import soon

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)
API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
FIRST_FUNCTION = 6  # words of XLA_FFI_Api before its functions
ERROR = 4096  # the address of an error, which nobody reads
ALLOWED = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
ELSEWHERE = 10_000  # a processor that no machine has

Task = Callable[[], None]
Run = tuple[int, int, int]
"""Begin, end and slot of one call of a body."""


def crew_of(n: int, processor: int = ELSEWHERE) -> Crew:
    """Workers without threads, none on the caller's processor."""
    return Crew([processor + i for i in range(n)])


def serve(crew: Crew, i: int) -> None:
    """What worker i's thread does with its mail."""
    function = dispatcher._library().address("hlotune_serve")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(crew.address(i))


def loop(crew: Crew, n: int, threads: int = 4, each: Task = lambda: None) -> list[Run]:
    """Runs a loop of n; `each` is called in every body."""
    runs: list[Run] = []

    def body(data: int, begin: int, end: int, slot: int) -> None:
        runs.append((begin, end, slot))
        each()

    function = dispatcher._library().address("hlotune_parallel_for")
    host = (ctypes.c_void_p * 3)(function, threads, ctypes.addressof(crew))
    callback = BODY(body)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, BODY, ctypes.c_void_p)
    kind(function)(ctypes.addressof(host), n, callback, None)
    return runs


def mailed(crew: Crew) -> list[int]:
    """Workers that have mail they did not look at."""
    return [i for i in range(crew.count) if crew.worker(i).mail]


@pytest.fixture
def here() -> object:
    """The processor that the test keeps to."""
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not bind threads to processors")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield min(before)
    os.sched_setaffinity(0, before)


def test_the_caller_takes_ranges_that_nobody_begins() -> None:
    crew = crew_of(4)
    assert loop(crew, 10) == [(0, 3, 0), (8, 10, 3), (5, 8, 2), (3, 5, 1)]
    assert mailed(crew) == [1, 2, 3]


def test_mail_read_after_the_loop_does_nothing() -> None:
    crew = crew_of(4)
    runs = loop(crew, 10)
    for i in range(4):
        serve(crew, i)
    assert len(runs) == 4
    assert mailed(crew) == []


def test_a_worker_with_unread_mail_gets_no_more() -> None:
    crew = crew_of(2)
    loop(crew, 10, threads=2)
    unread = crew.worker(1).mail
    assert loop(crew, 10, threads=2) == [(0, 5, 0), (5, 10, 1)]
    assert crew.worker(1).mail == unread


def test_a_worker_takes_its_range_while_the_caller_works() -> None:
    crew = crew_of(4)
    order: list[int] = []

    def each() -> None:
        if not order:
            order.append(2)
            serve(crew, 2)

    assert loop(crew, 10, each=each) == [(0, 3, 0), (5, 8, 2), (8, 10, 3), (3, 5, 1)]


def test_the_loop_returns_only_after_ranges_that_other_threads_run() -> None:
    crew, begun, done = crew_of(2), Event(), []
    worker = Thread(target=lambda: serve(crew, 1))

    def each() -> None:
        if current_thread() is worker:
            begun.set()
            sleep(0.05)
            done.append(True)
        else:
            worker.start()
            begun.wait()

    loop(crew, 2, threads=2, each=each)
    assert done == [True]
    worker.join()


def test_the_caller_runs_the_range_of_its_own_processor(here: int) -> None:
    crew = Crew([ELSEWHERE, here])
    assert loop(crew, 10, threads=2) == [(5, 10, 1), (0, 5, 0)]
    assert mailed(crew) == [0]


def test_a_caller_without_a_range_of_its_own_runs_the_first(here: int) -> None:
    crew = Crew([ELSEWHERE, ELSEWHERE + 1, here])
    assert loop(crew, 10, threads=2) == [(0, 5, 0), (5, 10, 1)]
    assert mailed(crew) == [1]


def test_a_processor_on_which_another_loop_is_called_gets_no_mail() -> None:
    crew = crew_of(2)
    crew.worker(1).callers = 1
    assert loop(crew, 10, threads=2) == [(0, 5, 0), (5, 10, 1)]
    assert mailed(crew) == []


def test_a_caller_counts_on_its_processor_while_its_loop_runs(here: int) -> None:
    crew = Crew([here, ELSEWHERE])
    seen: list[int] = []
    loop(crew, 10, threads=2, each=lambda: seen.append(crew.worker(0).callers))
    assert seen == [1, 1]
    assert crew.worker(0).callers == 0


@pytest.mark.parametrize(("n", "threads", "runs"), [(0, 4, 0), (-1, 4, 0), (1, 4, 1), (10, 1, 1)])
def test_a_loop_for_one_thread_is_nobody_elses_business(n: int, threads: int, runs: int) -> None:
    crew = crew_of(4)
    assert loop(crew, n, threads) == [(0, n, 0)] * runs
    assert mailed(crew) == []


def test_a_loop_has_no_more_ranges_than_indices() -> None:
    assert sorted(loop(crew_of(4), 2)) == [(0, 1, 0), (1, 2, 1)]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads are not bound here")
def test_workers_wake_on_their_own_processors() -> None:
    processors = sorted(os.sched_getaffinity(0))
    crew = Crew(processors)
    start(crew, dispatcher._library().address("hlotune_work"))
    caller, bound = current_thread(), list[set[int]]()

    def each() -> None:
        if current_thread() is caller:  # until each range is begun by its own worker
            assert soon(lambda: len(bound) == len(processors) - 1, 0.01)
        else:
            bound.append(os.sched_getaffinity(0))

    for pause_s in (0.0, 0.1):  # after the long one the workers sleep
        sleep(pause_s)
        bound.clear()
        loop(crew, len(processors), len(processors), each)
        assert len(bound) == len(processors) - 1
        assert all(len(processor) == 1 for processor in bound)
        assert len(set.union(set(), *bound)) == len(bound)


def test_a_crew_lives_as_long_as_its_threads_which_read_its_memory() -> None:
    crew = Crew(sorted(ALLOWED))
    start(crew, dispatcher._library().address("hlotune_work"))
    kept = weakref.ref(crew)
    del crew
    gc.collect()
    assert kept() is not None


@pytest.fixture
def occupied(here: int) -> Iterator[int]:
    """Another processor than the test's, which a process keeps busy."""
    processor = max(ALLOWED)
    if processor == here or sys.platform != "linux":
        pytest.skip("needs two processors, and Linux's accounts of threads")
    stay = f"import os; os.sched_setaffinity(0, {{{processor}}}); print(flush=True)"
    code = f"{stay}\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout
        busy.stdout.readline()
        yield processor
        busy.kill()


def gave_way(crew: Crew, i: int, until_ns: int) -> tuple[int, set[int]]:
    """How often a worker lost its processor to the process there, over fifty loops ahead of each of
    which it is told until when it keeps it; and until when it said then that it does.
    """
    status = Path(f"/proc/self/task/{crew.threads[i]}/status")

    def switches() -> int:
        name, times = status.read_text(encoding="utf-8").split()[-2:]
        assert name == "nonvoluntary_ctxt_switches:"
        return int(times)

    before, said = switches(), set[int]()
    for _ in range(50):
        crew.worker(i).keeps_until = until_ns
        loop(crew, 2, 2)
        assert soon(lambda: crew.worker(i).asleep == 1, 0.005)  # it has looked in vain
        said.add(crew.worker(i).keeps_until)
    return switches() - before, said - {until_ns}


def test_a_worker_that_looks_for_work_gives_way_unless_that_took_long(
    here: int, occupied: int
) -> None:
    crew = Crew([here, occupied])
    start(crew, dispatcher._library().address("hlotune_work"))
    before = monotonic_ns()
    often, said = gave_way(crew, 1, 0)
    assert said
    assert all(before < ns - 100_000_000 < monotonic_ns() for ns in said)
    seldom, said = gave_way(crew, 1, monotonic_ns() + 60_000_000_000)
    assert not said
    assert often > 3 + 2 * seldom


def test_all_loops_end_whoever_is_awake() -> None:
    crew = Crew(sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0, 1])
    start(crew, dispatcher._library().address("hlotune_work"))
    for k in range(300):
        if k % 10 == 0:
            sleep(0.0003)  # about as long as a worker looks for mail before it sleeps
        runs = loop(crew, 7, crew.count)
        assert sorted(i for begin, end, _ in runs for i in range(begin, end)) == list(range(7))


class Pool:
    """XLA's answer to how many threads its pool has."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.destroyed = 0
        self.asked = 0
        self.functions = {2: API(self._destroy), 12: API(self._num_threads)}
        self.api = (ctypes.c_void_p * 24)()
        for i, function in self.functions.items():
            self.api[FIRST_FUNCTION + i] = ctypes.cast(function, ctypes.c_void_p).value

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

    def threads_for(self, limit: int) -> int:
        """Threads that a kernel built for `limit` threads gets."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        threads = kind(dispatcher._library().address("hlotune_threads"))
        return int(threads(ctypes.addressof(self.api), None, limit))


@pytest.mark.parametrize(("of_pool", "limit", "threads"), [(8, 4, 4), (2, 4, 2), (4, 4, 4)])
def test_a_kernel_gets_as_many_threads_as_it_was_built_for_and_the_pool_has(
    of_pool: int, limit: int, threads: int
) -> None:
    assert Pool(of_pool).threads_for(limit) == threads


def test_a_serial_kernel_asks_nothing_of_the_pool() -> None:
    pool = Pool(4)
    assert pool.threads_for(1) == 1
    assert pool.asked == 0


def test_without_a_pool_there_is_one_thread() -> None:
    pool = Pool(0)
    assert pool.threads_for(4) == 1
    assert pool.destroyed == 1
