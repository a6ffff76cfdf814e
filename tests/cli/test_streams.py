"""Standard streams that are closed, full or of few characters cost no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mlp_records import recorded
from tests.support.tree import ROOT

COMMANDS = (
    ("report", "model", "--database", "{db}"),
    ("report", "model", "--json", "--database", "{db}"),
    ("db", "stats", "--database", "{db}"),
    ("--help",),
)
EITHER_WAY = [
    pytest.param(command, buffered, id=f"{' '.join(command)}-{buffered}")
    for command in COMMANDS
    for buffered in (True, False)
    if buffered or command in (COMMANDS[0], COMMANDS[-1])
]
"""A table and a page of help are printed without a buffer too."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("records"))


def shell(command: tuple[str, ...], path: str, redirection: str, **variables: str) -> str:
    """The exit code of the command and what it says on stderr, in a shell."""
    words = " ".join(word.format(db=path) for word in command)
    script = f"{sys.executable} -m hlotune {words} {redirection}; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"} | variables,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stderr


@pytest.mark.parametrize(("command", "buffered"), EITHER_WAY)
def test_a_full_output_is_one_line(command: tuple[str, ...], buffered: bool, path: str) -> None:
    variables = {} if buffered else {"PYTHONUNBUFFERED": "1"}
    assert shell(command, path, "> /dev/full", **variables) == (
        "tune: expected to write to standard output, got No space left on device; free some space, "
        "or send it elsewhere\n2\n"
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_an_output_that_was_closed_before_is_one_line(command: tuple[str, ...], path: str) -> None:
    assert shell(command, path, ">&-") == (
        "tune: expected to write to standard output, got Bad file descriptor; free some space, "
        "or send it elsewhere\n2\n"
    )


@pytest.mark.parametrize(("command", "buffered"), EITHER_WAY)
def test_a_reader_that_has_left_is_no_fault(
    command: tuple[str, ...], buffered: bool, path: str
) -> None:
    variables = {} if buffered else {"PYTHONUNBUFFERED": "1"}
    assert shell(command, path, "| (exec <&-; sleep 0)", **variables) in ("1\n", "0\n")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_reader_that_had_left_before_is_no_fault(command: tuple[str, ...], path: str) -> None:
    read, write = os.pipe()
    os.close(read)
    words = [word.format(db=path) for word in command]
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", *words], cwd=ROOT, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_reader_of_one_line_gets_it(path: str) -> None:
    assert shell(("report", "model", "--database", "{db}"), path, "| head -1") in ("0\n", "1\n")


def test_what_was_printed_before_an_error_is_not_lost(path: str, tmp_path: Path) -> None:
    script = (
        "import sys; from hlotune.cli import db, main\n"
        "from hlotune.schedules.errors import DatabaseError\n"
        "def ls(): print('printed'); raise DatabaseError('stopped')\n"
        "main.app.command('fails')(ls)\n"
        "sys.argv = ['tune', 'fails']; main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "printed\n", "tune: stopped\n")


def test_characters_that_the_output_lacks_are_escaped(path: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hlotune", "report", "model", "--database", path],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"\\u2500" in done.stdout and done.stderr == b""


def test_errors_without_a_stream_for_them_do_not_get_into_the_output(path: str) -> None:
    script = f"{sys.executable} -m hlotune db ls --database none.db 2>&-"
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_database_never_gets_the_number_of_a_closed_stream(path: str) -> None:
    """What libraries print would be written into it."""
    before = Path(path).read_bytes()
    script = (
        "import os; from hlotune.cli.streams import prepare_streams; prepare_streams()\n"
        f"numbers = [os.open({path!r}, os.O_RDWR) for _ in range(1)]\n"
        "os._exit(0 if min(numbers) > 2 else 1)"
    )
    closed = f'{sys.executable} -c "{script}" <&- >&- 2>&-'
    assert subprocess.run(["bash", "-c", closed], cwd=ROOT, check=False).returncode == 0
    assert Path(path).read_bytes() == before
