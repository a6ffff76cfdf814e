"""Sets up the environments of the other libraries: `python -m benchmarks.peers.environments`.

Each gets the versions that `requirements/NAME.txt` pins, in `build/peers/NAME`, on the Python that
a line `# python 3.11` of that file names, else on this one.  Names that are given choose some.  One
that cannot be installed is named, and the rest go on: the table then says what is missing.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import RECORDED, command
from benchmarks.peers.contestants import FOLDER

REQUIREMENTS = Path(__file__).parent / "requirements"
INTERPRETER = Path(__file__).parents[2] / ".ci" / "interpreter"
STAMP = ".installed"


def main() -> None:
    found = {name: set_up(name) for name in sys.argv[1:] or names()}
    for name, reason in found.items():
        print(f"{name}: {reason or 'installed'}")


def names() -> list[str]:
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def set_up(name: str) -> str:
    """Why it could not be installed; empty where it is there."""
    folder, wanted = FOLDER / name, (REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    shutil.rmtree(folder, ignore_errors=True)
    python = python_for(wanted)
    if not python:
        return f"not installed: it needs Python {version_in(wanted)}, which is not here"
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
               "--requirement", str(REQUIREMENTS / f"{name}.txt")]  # fmt: skip
    failed = _run([python, "-m", "venv", str(folder)]) or _run(install)
    if not failed:
        stamp.write_text(wanted, encoding="utf-8")
    return failed


def version_in(requirements: str) -> str:
    """The version of Python that the requirements name; nothing where they name none."""
    found = re.search(r"^# python (\d+\.\d+)$", requirements, re.MULTILINE)
    return found[1] if found else ""


def python_for(requirements: str) -> str:
    """The interpreter that an environment is made with; nothing where this machine has none."""
    version = version_in(requirements)
    if not version:
        return sys.executable
    asked = [str(INTERPRETER), version]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True).stdout.strip()


def _run(command: Sequence[str]) -> str:
    """The last line of what a command that failed said; empty where it did not fail."""
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return f"not installed: {lines[-1] if lines else 'pip said nothing'}"


if __name__ == "__main__":
    command(main, RECORDED)
