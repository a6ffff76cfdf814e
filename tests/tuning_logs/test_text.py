"""Text of records is printed so that it does nothing to a terminal."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.cli.main import run_command
from hlotune.cli.printing import say
from hlotune.cli.progress import tell
from hlotune.search.progress import KernelSkipped
from hlotune.tuning_logs.text import escaped, is_plain
from tests.support.recorded import filled

NASTY = "\x1b[31mred\x07\u202egnp.exe\x9b2J"
SHOWN = r"\x1b[31mred\x07\u202egnp.exe\x9b2J"


def test_a_control_character_is_printed_as_its_escape() -> None:
    assert escaped(NASTY) == SHOWN
    assert escaped("a\udcff\0") == r"a\udcff\x00"


def test_what_is_printable_stays() -> None:
    for text in ("", "dot 64x784x512 +bias+relu", "Prozessor für Größen, 処理"):
        assert escaped(text) == text
        assert is_plain(text)


@given(st.text())
def test_what_is_escaped_is_printable_and_has_its_lines(text: str) -> None:
    found = escaped(text)
    assert found.replace("\n", "").isprintable()
    assert found.count("\n") == text.count("\n")
    assert escaped(found) == found


@pytest.mark.parametrize(
    "command",
    [("db", "ls"), ("db", "stats"), ("report", "mlp")],
    ids=" ".join,
)
def test_no_command_prints_control_characters_of_a_database(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(tmp_path / "tuning.db").close()
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as damaged:
        for table, column in (
            ("kernels", "label"), ("sites", "label"), ("trials", "failure_message"),
            ("targets", "name"), ("finals", "withdrawn"),
        ):  # fmt: skip
            damaged.execute(f"update {table} set {column} = 'add' || ?", (NASTY,))
        damaged.execute("update programs set source = ?", (NASTY,))
        damaged.commit()
    assert run_command([*command, "--database", str(tmp_path / "tuning.db")]) == 0
    captured = capsys.readouterr()
    printed = captured.out + captured.err
    assert printed.replace("\n", "").isprintable()
    assert r"\x1b[31mred" in printed


def test_progress_and_errors_print_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell(KernelSkipped(label=NASTY, reason="it is nasty"))
    run_command(["db", "ls", "--database", f"/none/{NASTY}"])
    run_command([NASTY])
    said = capsys.readouterr().err
    assert said.count(SHOWN) >= 2
    assert said.replace("\n", "").isprintable()


def test_what_is_said_keeps_its_lines_and_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"\tret\n{NASTY}")
    assert capsys.readouterr().out == f"\tret\n{SHOWN}\n"
