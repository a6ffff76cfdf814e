"""What threads waited for their processors, in accounts that we write and once in Linux's own."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hlotune.measure.machine.thread_waits import TASKS, ThreadWaits

Write = Callable[[int, int], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes what a thread has waited, in nanoseconds."""

    def written(thread: int, waited_ns: int) -> None:
        (tmp_path / str(thread)).mkdir(exist_ok=True)
        text = f"123456 {waited_ns} 7\n"
        (tmp_path / str(thread) / "schedstat").write_text(text, encoding="utf-8")

    return written


def test_the_longest_wait_of_a_thread_counts(tmp_path: Path, write: Write) -> None:
    write(1, 1_000)
    write(2, 5_000_000)
    waits = ThreadWaits([1, 2], tmp_path)
    before = waits.look()
    write(1, 2_001_000)
    write(2, 6_000_000)
    assert waits.longest_s(before) == pytest.approx(2e-3)
    waits.close()


def test_a_thread_without_an_account_never_waits(tmp_path: Path, write: Write) -> None:
    write(1, 10)
    waits = ThreadWaits([1, 2], tmp_path)
    assert waits.look() == (10,)
    waits.close()
    assert ThreadWaits([3], tmp_path).longest_s(()) == 0.0


def test_accounts_are_closed(tmp_path: Path, write: Write) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    write(1, 10)
    waits = ThreadWaits([1], tmp_path)
    waits.close()
    waits.close()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


def test_linux_keeps_an_account_of_this_thread() -> None:
    if not (TASKS / str(threading.get_native_id()) / "schedstat").exists():
        pytest.skip("this system keeps no account of threads")
    waits = ThreadWaits([threading.get_native_id()])
    before = waits.look()
    assert len(before) == 1
    assert waits.longest_s(before) >= 0
    waits.close()
