"""What threads lose that wait for a processor while another one is idle."""

import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from hlotune.measure.machine.run_queue import TASKS, Look, RunQueue, lost_s


@pytest.mark.parametrize(
    ("ran_s", "waited_s", "expected_s"),
    [
        (2.0, 1.0, 0.0),  # both processors were busy: to wait is no loss
        (1.0, 0.0, 0.0),  # one thread alone waits for nobody
        (1.0, 1.0, 1.0),  # two threads on one processor of two
        (1.6, 1.0, 0.4),  # apart for the most part
        (2.1, 1.0, 0.0),  # clocks are not read at the same moment
    ],
)
def test_what_is_lost_is_waited_for_and_free(
    ran_s: float, waited_s: float, expected_s: float
) -> None:
    found = lost_s(Look(5.0, 3.0, 2.0), Look(6.0, 3.0 + ran_s, 2.0 + waited_s), 2)
    assert found == pytest.approx(expected_s)


def test_a_system_without_accounts_tells_of_no_loss(tmp_path: Path) -> None:
    for tasks in (tmp_path, tmp_path / "none"):
        queue = RunQueue(2, tasks)
        queue.follow()
        queue.begin()
        assert queue.lost_s() == 0.0


def test_threads_that_come_and_go_are_followed(tmp_path: Path) -> None:
    queue = RunQueue(1000, tmp_path)
    account(tmp_path, "1", 5_000_000)
    queue.follow()
    queue.begin()
    account(tmp_path, "1", 7_000_000)
    assert queue.lost_s() == pytest.approx(2e-3)
    account(tmp_path, "2", 1_000_000_000)
    queue.follow()
    queue.begin()
    account(tmp_path, "2", 1_004_000_000)
    assert queue.lost_s() == pytest.approx(4e-3)
    (tmp_path / "1" / "schedstat").unlink()
    (tmp_path / "1").rmdir()
    queue.follow()
    queue.begin()
    assert queue.lost_s() == 0.0


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 or not (TASKS / str(os.getpid()) / "schedstat").exists(),
    reason="needs two processors and accounts of threads",
)
def test_two_threads_bound_to_one_processor_lose_what_they_wait() -> None:
    processor, *_ = os.sched_getaffinity(0)
    begun, end = threading.Barrier(3), threading.Event()
    threads = [threading.Thread(target=spin, args=(processor, begun, end)) for _ in range(2)]
    for thread in threads:
        thread.start()
    queue = RunQueue(2)
    queue.follow()
    queue.begin()
    begun.wait()
    time.sleep(0.3)
    found_s = queue.lost_s()  # an ended thread has no account
    end.set()
    for thread in threads:
        thread.join()
    assert found_s > 0.02


def spin(processor: int, begun: threading.Barrier, end: threading.Event) -> None:
    os.sched_setaffinity(0, {processor})
    begun.wait()
    data = b"x" * (1 << 20)
    while not end.is_set():
        hashlib.sha256(data).digest()  # without Python's lock, which one thread has at a time


def account(tasks: Path, thread: str, waited_ns: int) -> None:
    (tasks / thread).mkdir(exist_ok=True)
    (tasks / thread / "schedstat").write_text(f"123456789 {waited_ns} 17\n")
