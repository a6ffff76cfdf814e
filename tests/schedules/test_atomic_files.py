"""Files appear whole or not at all, and take nothing else away."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hlotune.schedules.atomic_files import whole


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with whole(path) as part:
        part.write_text("all of it")
        assert not path.exists()
    assert path.read_text() == "all of it"
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("before")
    with pytest.raises(ValueError, match="half"), whole(path) as part:
        part.write_text("half of")
        raise ValueError("half")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "a.txt", tmp_path / "link"
    link.symlink_to(target)
    with whole(link) as part:
        part.write_text("all of it")
    assert link.is_symlink()
    assert target.read_text() == "all of it"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole(pipe) as part:
        part.write_text("all of it")
    reader.join(timeout=10)
    assert read == ["all of it"]
    assert pipe.is_fifo()


def test_a_folder_that_is_none_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole(tmp_path / "none" / "a.txt") as part:
        part.write_text("all of it")


def test_a_process_writes_into_a_pipe_by_the_name_of_its_output() -> None:
    """That leads to `pipe:[1234]`, where there is nothing."""
    code = (
        "from pathlib import Path; from hlotune.schedules.atomic_files import whole\n"
        "with whole(Path('/dev/stdout')) as part: part.write_text('all of it')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "all of it"


def test_a_link_under_the_name_of_the_part_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can foresee the name; if somebody did, nothing would be written through the link."""
    monkeypatch.setattr("hlotune.schedules.atomic_files.secrets.token_hex", lambda _: "foreseen")
    other = tmp_path / "other.txt"
    other.write_text("another file")
    (tmp_path / ".foreseen.part.txt").symlink_to(other)
    with pytest.raises(FileExistsError), whole(tmp_path / "a.txt") as part:
        part.write_text("all of it")
    assert other.read_text() == "another file"


@pytest.mark.parametrize("name", ["a.npz", "a.jsonl.gz"])
def test_a_part_has_the_ending_of_its_file(name: str, tmp_path: Path) -> None:
    with whole(tmp_path / name) as part:
        assert part.suffix == (tmp_path / name).suffix


def test_two_parts_of_one_file_have_different_names(tmp_path: Path) -> None:
    with whole(tmp_path / "a.txt") as first, whole(tmp_path / "a.txt") as second:
        assert first != second


@pytest.mark.parametrize("name", ["n" * 255, "n." + 253 * "n"])
def test_a_long_name_is_written_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    with whole(path) as part:
        part.write_text("all of it")
    assert path.read_text() == "all of it"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    path.chmod(mode)
    with whole(path) as part:
        assert stat.S_IMODE(part.stat().st_mode) == mode
        part.write_text("all of it")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_new_file_has_the_mode_that_the_user_gives_new_files(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").touch()
    with whole(tmp_path / "a.txt") as part:
        part.write_text("all of it")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


@pytest.mark.parametrize("name", ["t.db", "t.db-wal", "t.db-shm", "t.db-journal", "link"])
def test_a_database_and_what_belongs_to_it_are_not_replaced(name: str, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "t.db")
    database.executescript("create table a (b); insert into a values (1)")
    database.close()
    before = (tmp_path / "t.db").read_bytes()
    (tmp_path / "link").symlink_to("t.db")
    with pytest.raises(FileExistsError, match="a database is there"), whole(tmp_path / name):
        raise AssertionError("nothing is to be written")
    assert (tmp_path / "t.db").read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"t.db", "link"}


@pytest.mark.parametrize("name", ["notes-wal", "-wal", "empty.db"])
def test_a_file_that_only_looks_like_a_database_by_its_name_is_replaced(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "notes").write_text("no database")
    (tmp_path / name).touch()
    with whole(tmp_path / name) as part:
        part.write_text("all of it")
    assert (tmp_path / name).read_text() == "all of it"
