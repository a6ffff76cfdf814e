"""What one expects of a command: completion, NO_COLOR, `python -m`, version, changes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hlotune
from hlotune.cli.printing import print_table
from hlotune.tuning_logs.render import is_colored
from tests.support.tree import ROOT


def tune(*arguments: str, **variables: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "hlotune", *arguments], env={**os.environ, **variables}, cwd=ROOT,
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


def test_commands_and_options_are_completed() -> None:
    words = {"_TUNE_COMPLETE": "complete_bash"}
    assert tune(COMP_WORDS="tune rep", COMP_CWORD="1", **words).split() == ["report"]
    assert "--output" in tune(COMP_WORDS="tune report --out", COMP_CWORD="2", **words)


def test_help_says_how_completion_is_installed() -> None:
    assert "--install-completion" in tune("--help")


@pytest.mark.parametrize(
    ("terminal", "variable", "colored"),
    [(True, None, True), (True, "1", False), (True, "", True), (False, None, False)],
)
def test_no_color_is_respected(
    terminal: bool, variable: str | None, colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if variable is not None:
        monkeypatch.setenv("NO_COLOR", variable)
    assert is_colored() is colored


def test_a_table_leaves_columns_out_where_a_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("dot 64x784x512", "abcdefgh", "12.3 GFLOP", "1.00 ms")]
    columns = ("label", "key", ">work", ">time")
    print_table(columns, rows, spare=("work", "key"))
    assert "12.3 GFLOP" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(columns, rows, spare=("work", "key"))
    text = capsys.readouterr().out
    assert "no room for: work (a wider terminal" in " ".join(text.split())
    assert "1.00 ms" in text and "abcdefgh" in text and "GFLOP" not in text
    assert max(map(len, text.splitlines()[1:3])) <= 40


def test_the_version_is_semantic_and_the_newest_of_the_changes() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", hlotune.__version__)
    changes = (Path(ROOT) / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", changes, re.MULTILINE)
    assert versions[0] == hlotune.__version__
    numbers = [tuple(map(int, v.split("."))) for v in versions]
    assert numbers == sorted(numbers, reverse=True)
