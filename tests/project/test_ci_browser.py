"""`.ci/browser` finds a browser or installs one, and says in one line why it cannot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.tree import ROOT

TOOLS = ("bash", "cat", "grep", "head", "id", "mktemp", "rm")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with what the script calls, and neither a browser nor apt-get."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


def ran(tools: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tools / "bash", ROOT / ".ci" / "browser", *words], env={**os.environ, "PATH": str(tools)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_browser_that_is_there_is_enough(tools: Path) -> None:
    program(tools, "chromium", "exit 1")
    assert (ran(tools).returncode, ran(tools).stderr) == (0, "")


def test_without_a_browser_and_without_apt_get_one_line_says_what_to_do(tools: Path) -> None:
    done = ran(tools)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "expected a browser, found none" in done.stderr
    assert "apt-get install chromium" in done.stderr


@pytest.mark.parametrize("works", [True, False])
def test_apt_get_installs_one_as_root_and_its_error_is_one_line(tools: Path, works: bool) -> None:
    (tools / "id").unlink()
    program(tools, "id", "echo 0")
    said = "E: Temporary failure resolving its mirror"
    program(tools, "apt-get", "exit 0" if works else f"echo {said!r}; exit 100")
    done = ran(tools)
    assert done.returncode == (0 if works else 1)
    failure = f"expected apt-get to install chromium, and it failed: {said}\n"
    assert done.stderr == ("" if works else failure)


@pytest.mark.parametrize("ends", ["exit 0", "exit 100", "kill $PPID"])
def test_the_file_that_it_is_given_is_there_once_it_has_ended(
    ends: str, tools: Path, tmp_path: Path
) -> None:
    (tools / "id").unlink()
    program(tools, "id", "echo 0")
    ended = tmp_path / "ended"
    program(tools, "apt-get", f"[ ! -e {ended} ] || exit 3; {ends}")
    done = ran(tools, ended)
    assert (done.returncode == 0) == (ends == "exit 0")
    assert ended.exists()
