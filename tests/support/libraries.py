"""Commands of `tune` where some libraries are not installed."""

import subprocess
import sys

from tests.support.tree import ROOT

_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing one of these fails now
from hlotune.cli.main import run_command
sys.exit(run_command(sys.argv[2:]))
"""


def tune_without(libraries: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """A command of `tune` in a process in which libraries, with commas between, are missing."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, libraries, *words],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
