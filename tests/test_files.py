"""Files appear whole or not at all, and take nothing else away."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hlotune.schedules.files import whole


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
        "from pathlib import Path; from hlotune.schedules.files import whole\n"
        "with whole(Path('/dev/stdout')) as part: part.write_text('all of it')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "all of it"
