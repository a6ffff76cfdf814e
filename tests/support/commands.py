"""Commands of `tune` as processes of their own, which begin with what takes long imported already.

A server imports the rooms once, starts no backend, and is forked for each command.  What a fresh
process does is not tested so: that a command itself imports what it needs, how it begins by
`python -m hlotune`, and how an interpreter ends, as a forked process leaves without that.
`tests/cli/test_fresh_commands.py` begins `run`, `bench`, and `apply` from nothing,
`tests/cli/test_streams.py` commands that read records, and `tests/project/test_face.py` `targets`.
"""

import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.support.tree import ROOT

IMPORTED = (
    "hlotune.cli.main",
    "hlotune.search.tune",
    "hlotune.deploy.bench",
    "tests.support.commands",
    "tests.support.first_command",
)
"""What the server imports: the command line, and what nearly all of its commands need."""
READ_LATE = {"HLOTUNE_DEBUG"}
"""Variables that are read when a command has failed: they change nothing that is imported."""
LONGEST_S = 300.0
"""No command of a test takes so long."""


def tune(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What a command says and how it ends, begun in the root of the tree.

    Variables may change what is imported and how: a command that gets some begins from nothing,
    unless they are read late.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HLOTUNE_")}
    environment = inherited | {"JAX_PLATFORMS": "cpu"} | variables
    if variables.keys() - READ_LATE or sys.platform != "linux":
        return subprocess.run(
            [sys.executable, "-m", "hlotune", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    return forked(arguments, environment)


def tune_lacking(library: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command where a library is not installed that no command imports as it begins."""
    return forked(arguments, os.environ | {"JAX_PLATFORMS": "cpu"}, partial(_lack, library))


def _lack(library: str) -> None:
    assert library not in sys.modules
    sys.modules[library] = None  # type: ignore[assignment]  # importing it fails now


def tune_interrupted(at: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command that Ctrl-C meets when it has said something on stderr.

    All its processes get the signal, as those that belong to a terminal do.  It sends it itself,
    so that the run is no further than what it said, however fast the machine is.
    """
    return forked(arguments, os.environ | {"JAX_PLATFORMS": "cpu"}, partial(_interrupt, at))


def _interrupt(at: str) -> None:
    os.setsid()
    sys.stderr = Interrupting(sys.stderr, at)


class Interrupting:
    """A stream that sends its process group the signal of Ctrl-C when some text was written."""

    def __init__(self, stream: Any, at: str) -> None:
        self.stream, self.at = stream, at

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        count: int = self.stream.write(text)
        if self.at and self.at in text:
            self.at = ""
            self.stream.flush()
            os.killpg(0, signal.SIGINT)
        return count


def forked(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    ahead: Callable[[], None] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """What a forked process says that does something ahead of the command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = arguments, dict(environment), folder, ahead
        process = server().Process(target=_command, args=given)
        process.start()
        process.join(LONGEST_S)
        if process.exitcode is None:
            end(process)
            raise AssertionError(f"{shlex.join(arguments)} took more than {LONGEST_S:g} s")
        out, err = ((folder / x).read_text(encoding="utf-8") for x in ("stdout", "stderr"))
    return subprocess.CompletedProcess(["tune", *arguments], process.exitcode, out, err)


def end(process: BaseProcess) -> None:
    """Kills a process, and those of its group where it has one: at exit all are waited for."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()


@cache
def server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    return context


def _command(
    arguments: Sequence[str],
    environment: dict[str, str],
    folder: Path,
    ahead: Callable[[], None] | None,
) -> None:
    """In the forked process: the command, with files for its streams."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = ["tune", *arguments]
    if ahead:
        ahead()
    from hlotune.cli.main import main

    main()
