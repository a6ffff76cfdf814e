"""A command of a test that hangs is ended with all that it began: nothing waits for it at exit."""

import multiprocessing
import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from tests.support import commands


def test_a_command_that_takes_too_long_is_an_error_and_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "LONGEST_S", 0.1)
    with pytest.raises(AssertionError, match=r"targets took more than 0\.1 s"):
        commands.forked(["targets"], os.environ, partial(time.sleep, 600))
    assert not multiprocessing.active_children()


def hanging(fifo: Path) -> None:
    """Two processes of a group of their own, which hold a file as long as they live."""
    os.setsid()
    os.fork()
    with fifo.open("w"):
        time.sleep(600)


def test_the_processes_of_its_group_are_gone_too(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = commands.server().Process(target=hanging, args=(fifo,))
    process.start()
    with fifo.open() as held:
        commands.end(process)
        assert held.read() == ""
    assert process.exitcode == -signal.SIGKILL
