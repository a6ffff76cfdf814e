"""`tune db`, on a database with a won kernel, a kept default and a failure."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.database import Database
from tests.support.mlp_records import parsed, recorded, said


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("records"))


def test_db_ls_lists_kernels_with_trials_and_speedup(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    first = parsed(capsys, "db", "ls", "--db", path)[0]
    assert (first["trials"], first["failures"], first["speedup"]) == (2, 1, 2.0)
    assert "2.00x" in said(capsys, "db", "ls", "--db", path)


def test_db_ls_of_an_empty_database_finds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    assert run_command(["db", "ls", "--db", str(tmp_path / "empty.db")]) == 1
    assert capsys.readouterr().err.startswith("tune: ")


def test_db_stats_counts_rows_and_failures(capsys: pytest.CaptureFixture[str], path: str) -> None:
    data = parsed(capsys, "db", "stats", "--db", path)
    assert (data["rows"]["trials"], data["candidates"], data["runs"][0]["trials"]) == (3, 2, 2)
    assert data["failures"][0]["message"] == "no such stage"
    text = said(capsys, "db", "stats", "--db", path)
    assert "no such stage" in text
    assert "2 of candidates, 1 of defaults" in text


def test_exported_records_come_back_once(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    lines, copy = str(tmp_path / "records.jsonl"), str(tmp_path / "copy.db")
    written = parsed(capsys, "db", "export", lines, "--db", path)["records"]
    first = parsed(capsys, "db", "import", lines, "--db", copy)
    again = parsed(capsys, "db", "import", lines, "--db", copy)
    assert first["records"] == first["added"] == written
    assert again["added"] == first["broken"] == 0


def test_import_counts_broken_lines_and_says_where(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    said(capsys, "db", "export", str(file), "--db", path)
    good = file.read_text(encoding="utf-8")
    file.write_text("{}\nnot json\n" + good, encoding="utf-8")
    text = said(capsys, "db", "import", str(file), "--db", str(tmp_path / "a.db"))
    assert "2 broken lines" in text and "line 2" in text


def test_a_merged_database_brings_its_rows_once(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    first = parsed(capsys, "db", "merge", path, "--db", copy)["added"]
    assert first["trials"] == 3 and first["finals"] == 2
    again = parsed(capsys, "db", "merge", path, "--db", copy)["added"]
    assert set(again.values()) == {0}
    assert "trials" in said(capsys, "db", "merge", path, "--db", copy)


def test_a_missing_database_is_not_merged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = str(tmp_path / "none.db"), str(tmp_path / "a.db")
    assert run_command(["db", "merge", files[0], "--db", files[1]]) == 2
    assert "expected a file, found none" in capsys.readouterr().err


def test_prune_drops_failures_and_all_but_the_fastest(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    assert said(capsys, "db", "prune", "--keep", "1", "--db", copy) == "2 trials dropped\n"
    assert parsed(capsys, "db", "prune", "--keep", "1", "--db", copy) == {"dropped_trials": 0}


def test_check_finds_a_sound_database_sound_and_a_damaged_one_not(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    assert ", 0 problems" in said(capsys, "db", "check", "--db", copy)
    with Database(copy) as database, database.writing() as sql:
        sql.execute("update kernels set text = 'x'")
    assert run_command(["db", "check", "--json", "--db", copy]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("key of the text" in line for line in problems)


def test_importing_a_file_without_one_record_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "junk.jsonl"
    file.write_text("junk\n")
    arguments = ["db", "import", str(file), "--database", str(tmp_path / "new.db")]
    assert run_command(arguments) == 2
    assert "got none (broken lines: 1, line 1: " in capsys.readouterr().err


def test_records_go_into_a_pipe_line_by_line_and_nothing_else(path: str) -> None:
    command = [sys.executable, "-m", "hlotune", "db", "export", "/dev/stdout", "--db", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and done.stderr == f"{len(lines)} records in /dev/stdout\n"


def test_a_reader_of_records_that_leaves_early_is_no_fault_of_the_file(path: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hlotune", "db", "export", "/dev/stdout", "--db", path]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
