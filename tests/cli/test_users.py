"""Users without a home folder, and homes of users that are not known."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.database import Database
from tests.support.recorded import filled
from tests.support.tree import ROOT

NOBODY_KNOWS = """
import pwd, sys
def unknown(number):
    raise KeyError(number)  # as for a number that the list of users has not
pwd.getpwuid = unknown
from hlotune.cli.main import main
main()
"""


def without_home(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a user without HOME and without an entry in the list of users."""
    unset = ("HOME", "HLOTUNE_DB", "XDG_CACHE_HOME", "USER", "LOGNAME")
    return subprocess.run(
        [sys.executable, "-c", NOBODY_KNOWS, *arguments],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k not in unset},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_user_without_a_home_is_asked_for_a_database() -> None:
    done = without_home("db", "ls")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "tune: expected a home folder, where hlotune keeps what nobody named a place for, found "
        "none for this user; name a database (--database, HLOTUNE_DB), or set HOME\n"
    )


def test_a_user_without_a_home_reads_a_database_by_its_name(tmp_path: Path) -> None:
    filled(tmp_path / "tuning.db").close()
    done = without_home("db", "ls", "--database", str(tmp_path / "tuning.db"))
    assert done.returncode == 0, done.stderr
    assert "add [8]" in done.stdout


def test_training_needs_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is learned from is computed anew each time where there is no place to keep it."""

    def homeless(_: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(homeless))
    Database(tmp_path / "tuning.db").close()
    command = ["model", "train", "-o", str(tmp_path / "m.npz")]
    assert run_command([*command, "--database", str(tmp_path / "tuning.db")]) == 1
    assert "expected recorded trials of kernels" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("db", "ls"), ("report", "model")])
def test_the_home_of_a_user_that_nobody_knows_is_refused(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HLOTUNE_DB", "~no-such-user/tuning.db")
    assert run_command(command) == 2
    assert capsys.readouterr().err == (
        "tune: expected HLOTUNE_DB to name a file, got '~no-such-user/tuning.db', and nobody knows "
        "the home folder that it begins with; give the path in full\n"
    )
