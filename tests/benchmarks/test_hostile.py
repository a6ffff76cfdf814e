"""Mutations, forged files and kills, as far as seconds go; `make hostile` does all of it."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.hostile import __main__ as hostile
from benchmarks.hostile import tables
from benchmarks.hostile.files import LIMIT_S, FileReading, Reader, Reading, counted, mutation
from benchmarks.hostile.forged import FORGED
from benchmarks.hostile.kills import Killing, Run, recorded, workers
from benchmarks.hostile.mutations import BYTES, JSON_LINES, TEXT, Edit, mutated, other_cell
from benchmarks.hostile.originals import FORMATS, write_originals
from benchmarks.hostile.reader import READERS
from hlotune.measure.workers.channel import Channel
from tests.support.recorded import filled
from tests.support.tree import ROOT

LINES = b'{"a": [1, 2], "b": {"c": "word"}}\n{"d": 3.5}\n'
SOUND = Reading(0, "refused", "expected a database, got none")
HUNG = Reading(1, "hang", "no answer within 60 s")


@pytest.mark.parametrize("edits", [BYTES, TEXT, JSON_LINES], ids=["bytes", "text", "lines"])
def test_a_number_always_makes_the_same_mutation_and_never_the_original(
    edits: "tuple[Edit, ...]",
) -> None:
    made = [mutated(LINES, edits, (0, n)) for n in range(50)]
    assert made == [mutated(LINES, edits, (0, n)) for n in range(50)]
    assert LINES not in made
    assert len(set(made)) > 40


def test_sixty_damaged_files_of_all_formats_are_read_or_refused_in_one_line(
    tmp_path: Path,
) -> None:
    (tmp_path / "originals").mkdir()
    write_originals(tmp_path / "originals")
    asked = [(kind, number) for number in range(4) for kind in FORMATS.values()]
    assert len(asked) == 60

    def read_part(part: int) -> list[tuple[str, int, Reading]]:
        with closing(Reader(tmp_path / f"reader{part}")) as reader:
            return [
                (kind.name, number, reader.read(kind, path, data, number))
                for kind, number in asked[part::2]
                for path in [tmp_path / "originals" / kind.file]
                for data in [mutation(kind, path.read_bytes(), 0, number)]
            ]

    with ThreadPoolExecutor(2) as pool:
        readings = [r for part in pool.map(read_part, range(2)) for r in part]
    assert [r for r in readings if not r[2].is_sound] == []
    assert counted([r[2] for r in readings])["refused"] > 30


def test_seeds_make_other_mutations() -> None:
    kind = FORMATS["records.jsonl"]
    assert mutation(kind, LINES, 0, 1) != mutation(kind, LINES, 1, 1)


def test_a_database_is_edited_whatever_an_edit_before_has_made_of_it(tmp_path: Path) -> None:
    """SQLite quotes what it cannot read in a schema, and that may be no text."""
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table kernels (text)")
        connection.commit()
    data = path.read_bytes().replace(b"TABLE kernels", b"T\xa5BLE kernels")
    assert other_cell(data, np.random.default_rng(0)) != data


def test_every_format_has_a_reader_and_every_forged_file_a_format() -> None:
    assert {kind.reader for kind in FORMATS.values()} == READERS.keys()
    assert {file.file for file in FORGED} <= FORMATS.keys()
    assert len({(file.file, file.name) for file in FORGED}) == len(FORGED)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Reads for all tests, as one reads all files: a process begins where the last one ended."""
    folder = tmp_path_factory.mktemp("reader")
    made = Reader(folder, Channel((sys.executable, "-m", "tests.support.hostile")))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("data", "outcome", "words"),
    [
        (b"sound", "read", ""),
        (b"refuse", "refused", "expected a sound file"),
        (b"raise", "fault", "KeyError"),
        (b"crash", "crash", "SIGSEGV"),
        (b"escape", "fault", "no terminal can show"),
    ],
)
def test_the_outcome_of_a_file_is_what_a_user_would_see(
    reader: Reader, data: bytes, outcome: str, words: str, tmp_path: Path
) -> None:
    kind = replace(FORMATS["records.jsonl"], reader="made")
    found = reader.read(kind, tmp_path, data, 7)
    assert (found.number, found.outcome) == (7, outcome)
    assert words in found.words
    assert reader.read(kind, tmp_path, b"sound", 8).outcome == "read", "the next file is read"


def test_a_reader_that_does_not_answer_hangs(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LIMIT_S > 16, "a program file may take 8 s of a processor"
    monkeypatch.setattr("benchmarks.hostile.files.LIMIT_S", 0.5)
    kind = replace(FORMATS["records.jsonl"], reader="made")
    assert reader.read(kind, tmp_path, b"sleep", 0).outcome == "hang"


def test_the_table_counts_outcomes_and_names_what_is_not_sound() -> None:
    table = tables.mutations({"records": [SOUND, HUNG], "model": [SOUND]}, 3)
    assert table.columns[2:] == [">read", ">refused", ">fault", ">crash", ">hang"]
    assert table.rows[0] == ["records", "2", "0", "1", "0", "0", "1"]
    assert table.rows[-1] == ["all formats", "3", "0", "2", "0", "0", "1"]
    assert table.notes == ["seed 3", "hang: no answer within 60 s"]
    assert counted([SOUND, HUNG])["hang"] == 1


def test_a_forged_file_has_a_row_whose_words_fit_into_markdown() -> None:
    reading = FileReading("database", "a view", replace(SOUND, words="a | b\nc" * 50), 1.25)
    (row,) = tables.forged([reading]).rows
    assert row[:4] == ["database", "a view", "refused", "1.2"]
    assert "\n" not in row[-1] and " | " not in row[-1] and len(row[-1]) == 110


def test_kills_are_counted_by_victim_and_problems_are_told() -> None:
    killings = [
        Killing("tuner", 1.0, 0),
        Killing("tuner", 2.0, 16, lost=2, problem="1 workers outlived the tuner"),
        Killing("worker build", 2.0, 8),
        Killing("nobody", 9.0, 40),
    ]
    rows = {row[0]: row[1:] for row in tables.kills(killings).rows}
    assert rows["tuner"] == ["2", "1", "16", "2", "1 workers outlived the tuner"]
    assert rows["worker build"] == ["1", "1", "8", "0", "none"]
    assert rows["all kills"][:4] == ["3", "2", "16", "2"]
    assert [k.is_sound for k in killings] == [True, False, True, True]


@pytest.mark.parametrize(("reading", "status"), [(SOUND, 0), (HUNG, 1)])
def test_the_exit_status_is_1_where_a_file_hangs(
    reading: Reading, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hostile, "write_originals", lambda folder: None)
    monkeypatch.setattr(hostile, "read_mutations", lambda kind, *_: [reading])
    assert hostile.main(["--mutations", str(len(FORMATS)), "--kills", "0", "--no-forged"]) == status
    kept = json.loads((tmp_path / "build/hostile_mutations.json").read_text())
    assert len(kept["data"]) == len(FORMATS)


@pytest.mark.parametrize(("lost", "status"), [(0, 0), (1, 1)])
def test_the_exit_status_is_1_where_a_record_is_lost(
    lost: int, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hostile, "killed", lambda *_: [Killing("tuner", 1.0, 3, lost)])
    assert hostile.main(["--mutations", "0", "--kills", "1", "--no-forged"]) == status


@pytest.mark.parametrize("text", ["-1", "many"])
def test_a_count_that_is_none_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        hostile.main(["--kills", text])
    assert f"expected a count, 0 or more, got '{text}'" in capsys.readouterr().err


def run_of(folder: Path, said: str) -> Run:
    """A run that has ended, with what it said, and a database that has its records."""
    (folder / "said").write_text(said)
    process = subprocess.Popen([sys.executable, "-c", ""], text=True)
    process.wait()
    database = folder / "tuning.db"
    return Run(folder, database, process, time.monotonic(), 0, recorded(database))


def test_a_trial_that_was_told_and_is_not_in_the_database_is_lost(tmp_path: Path) -> None:
    filled(tmp_path / "tuning.db").close()
    count = len(recorded(tmp_path / "tuning.db"))
    assert count > 2
    for told, lost in ((count, 0), (count + 3, 3)):
        run = run_of(tmp_path, f"1 kernel, 0 trials known\n{told} trials, dot: best 1 us\n")
        assert run.told == told
        assert run.judged(run.killing("tuner")).lost == lost


def test_a_trial_that_has_changed_is_lost(tmp_path: Path) -> None:
    filled(tmp_path / "tuning.db").close()
    run = run_of(tmp_path, "")
    with closing(sqlite3.connect(tmp_path / "tuning.db")) as changed:
        changed.execute("update trials set schedule = 'x' where rowid = 1")
        changed.commit()
    found = run.judged(run.killing("tuner"))
    assert found.lost == 1 and found.problem


def test_a_database_that_does_not_open_has_lost_everything(tmp_path: Path) -> None:
    filled(tmp_path / "tuning.db").close()
    run = run_of(tmp_path, "")
    (tmp_path / "tuning.db").write_bytes(b"no database" * 100)
    found = run.judged(run.killing("tuner"))
    assert found.lost == found.records > 0
    assert "expected a tuning database" in found.problem


def test_workers_are_named_by_module_and_role() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.hostile", "role"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        assert (child.pid, "hostile role") in workers(os.getpid())
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
