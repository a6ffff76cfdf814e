"""Commands of `benchmarks/` end with one line and an exit code, never with a traceback."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.command import LOST, RECORDED, command
from hlotune.schedules.errors import DatabaseError
from tests.support.tree import ROOT


def interrupted() -> None:
    raise KeyboardInterrupt


def refused() -> None:
    raise DatabaseError("expected a database,\n  got a folder")


@pytest.mark.parametrize(
    ("main", "code"), [(lambda: None, 0), (lambda: 1, 1), (interrupted, 130), (refused, 2)]
)
def test_a_command_ends_with_its_exit_code(main: Callable[[], int | None], code: int) -> None:
    with pytest.raises(SystemExit) as ended:
        command(main)
    assert ended.value.code == code


@pytest.mark.parametrize("kept", [RECORDED, LOST])
def test_ctrl_c_says_what_stays(kept: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command(interrupted, kept)
    assert capsys.readouterr().err.endswith(f": interrupted; {kept}\n")


def test_an_error_is_one_line_under_the_name_of_the_command(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("this is no database, but a letter\n" * 100)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.learning", "--database", str(broken)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    said = r"benchmarks\.learning: database .*: expected a tuning database.*\n"
    assert re.fullmatch(said, done.stderr)


def test_all_commands_end_this_way() -> None:
    for file in (ROOT / "benchmarks").rglob("*.py"):
        end = file.read_text(encoding="utf-8").partition('if __name__ == "__main__":\n')[2]
        assert not end or "command(main" in end or "serve(" in end, file
