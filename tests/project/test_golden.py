"""The `golden` fixture: texts compared with files, and rewritten on demand."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tree import ROOT

TEST = "def test_text(golden):\n    assert 'what it is' == golden\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with this suite's conftest and one test that compares with a golden file."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return tmp_path


def outcome(suite: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=suite,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_missing_golden_file_fails_and_says_how_to_make_it(suite: Path) -> None:
    code, text = outcome(suite)
    assert code == 1 and "make it with `pytest --update-golden`" in text


def test_updating_writes_the_file_that_the_next_run_compares_with(suite: Path) -> None:
    assert outcome(suite, "--update-golden")[0] == 0
    file = suite / "golden" / "test_it" / "test_text.txt"
    assert file.read_text(encoding="utf-8") == "what it is"
    assert outcome(suite)[0] == 0
    file.write_text("something else", encoding="utf-8")
    code, text = outcome(suite)
    assert code == 1 and "something else" in text
