"""Sets up the environments of the other libraries: `python -m benchmarks.peers.environments`.

Each gets the versions that `requirements/NAME.txt` pins, in `build/peers/NAME`.  One that cannot be
installed is named, and the rest go on: the table then says what is missing.
"""

import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command import RECORDED, command
from benchmarks.peers.contestants import FOLDER

REQUIREMENTS = Path(__file__).parent / "requirements"
STAMP = ".installed"


def main() -> None:
    found = {name: set_up(name) for name in names()}
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
    venv.create(folder, with_pip=True)
    failed = _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
                   "--requirement", str(REQUIREMENTS / f"{name}.txt")])  # fmt: skip
    if not failed:
        stamp.write_text(wanted, encoding="utf-8")
    return failed


def _run(command: Sequence[str]) -> str:
    """The last line of what a command that failed said; empty where it did not fail."""
    done = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return f"not installed: {lines[-1] if lines else 'pip said nothing'}"


if __name__ == "__main__":
    command(main, RECORDED)
