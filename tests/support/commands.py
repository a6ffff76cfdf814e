"""Commands of `tune` as processes of their own, which begin with what takes long imported already.

A server imports the rooms once, starts no backend, and is forked for each command.  What a fresh
process does is not tested so: that a command itself imports what it needs, how it begins by
`python -m hlotune`, and how an interpreter ends, as a forked process leaves without that.
`tests/cli/test_fresh_commands.py` begins `run`, `bench`, and `apply` from nothing,
`tests/cli/test_streams.py` commands that read records, and `tests/project/test_face.py` `targets`.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

from tests.support.tree import ROOT

IMPORTED = (
    "hlotune.cli.main",
    "hlotune.search.tune",
    "hlotune.deploy.bench",
    "tests.support.commands",
    "tests.support.first_command",
)
"""What the server imports: the command line, and what nearly all of its commands need."""


def tune(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """What a command says and how it ends, begun in the root of the tree.

    Variables may change what is imported and how: a command that gets some begins from nothing.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HLOTUNE_")}
    environment = inherited | {"JAX_PLATFORMS": "cpu"} | variables
    if variables or sys.platform != "linux":
        return subprocess.run(
            [sys.executable, "-m", "hlotune", *arguments],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    return forked(arguments, environment)


def forked(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> "subprocess.CompletedProcess[str]":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = server().Process(target=_command, args=(arguments, dict(environment), folder))
        process.start()
        process.join()
        assert process.exitcode is not None
        out, err = ((folder / x).read_text(encoding="utf-8") for x in ("stdout", "stderr"))
    return subprocess.CompletedProcess(["tune", *arguments], process.exitcode, out, err)


@cache
def server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*IMPORTED])
    return context


def _command(arguments: Sequence[str], environment: dict[str, str], folder: Path) -> None:
    """In the forked process: the command, with files for its streams."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        with (folder / name).open("wb") as file:
            os.dup2(file.fileno(), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.argv = ["tune", *arguments]
    from hlotune.cli.main import main

    main()
