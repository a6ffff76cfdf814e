"""Processes that answer lines of JSON, and those that print other lines or end too soon."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hlotune.deploy.rivals.line_process import LineProcess, NoAnswer


@contextmanager
def running(directory: Path, code: str) -> Iterator[LineProcess]:
    with (directory / "errors").open("w+b") as errors:
        process = LineProcess([sys.executable, "-c", code], os.environ, errors)
        try:
            yield process
        finally:
            process.close()


def test_lines_that_are_no_objects_are_passed_over(tmp_path: Path) -> None:
    lines = ["warming up", "{'a': 0}", "[1]", "", '{"a": 1}']
    code = f"for line in {lines}: print(line, flush=True)"
    with running(tmp_path, code) as process:
        assert process.read(60) == {"a": 1}


def test_a_request_that_is_not_read_gives_no_answer_and_the_process_can_be_closed(
    tmp_path: Path,
) -> None:
    with running(tmp_path, "print('{}', flush=True)") as process:
        assert process.read(60) == {}
        process.wait()
        with pytest.raises(NoAnswer, match="has ended"):
            process.ask({"a": 1}, 60)


def test_a_process_that_is_silent_gives_no_answer_in_time(tmp_path: Path) -> None:
    with running(tmp_path, "input()") as process, pytest.raises(NoAnswer, match="in time"):
        process.read(0.01)
