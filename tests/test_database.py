"""What goes in comes out, under equal conditions only, and survives what happens to files."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.measure.trial import Candidate, Measurement, Trial
from hlotune.schedules.errors import DatabaseError, NoRecord
from hlotune.schedules.schedule import DEFAULT
from hlotune.tuning_logs.connection import connect
from hlotune.tuning_logs.database import Conditions, Database, conditions
from hlotune.tuning_logs.rows import trial_of, trial_row
from hlotune.tuning_logs.upkeep import check
from tests.recorded import (
    HERE,
    KERNEL,
    OTHER_TARGET,
    OTHER_TOOLCHAIN,
    PROGRAM,
    TARGET,
    TOOLCHAIN,
    default_trial,
    failed,
    filled,
    kernel,
    measured,
    schedule,
    start,
)
from tests.tree import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def test_trials_come_back_as_they_were_added(path: Path) -> None:
    trials = [default_trial(2e-3), measured(1e-3), failed()]
    with Database(path) as database:
        database.add(start(database), KERNEL, trials, batch=0)
    with Database(path) as database:
        assert database.trials(KERNEL.key, **HERE) == trials


positive = st.floats(min_value=1e-9, max_value=1e3)


@given(st.lists(positive, min_size=1, max_size=5), positive, st.integers(1, 64))
def test_any_trial_survives_its_row(samples: list[float], error: float, number: int) -> None:
    outcome = Measurement(samples_s=tuple(samples), error=error, build_s=error)
    trial = Trial(Candidate(KERNEL, schedule(number)), outcome)
    run = {"id": "r", "target": "t", "toolchain": "c", "threads": 2}
    run |= {"cache": "model", "numerics": "standard"}
    assert trial_of(trial_row(trial, run, 0, 0), KERNEL) == trial


def test_batches_come_back_in_the_order_of_recording(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        for batch in range(3):
            database.add(
                run, KERNEL, [measured(1e-3, 3 * batch + k) for k in range(3)], batch=batch
            )
        numbers = [t.candidate.schedule for t in database.trials(KERNEL.key, **HERE)]
        assert numbers == [schedule(n) for n in range(9)]


@pytest.mark.parametrize(
    "elsewhere",
    [
        conditions(OTHER_TARGET, TOOLCHAIN),
        conditions(TARGET, OTHER_TOOLCHAIN),
        conditions(TARGET, TOOLCHAIN, "warm"),
        Conditions(**{**HERE, "threads": 1}),
    ],
    ids=["target", "toolchain", "cache", "threads"],
)
def test_a_trial_under_other_conditions_is_not_measured_here(
    path: Path, elsewhere: Conditions
) -> None:
    with Database(path) as database:
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
        assert database.trials(KERNEL.key, **elsewhere) == []
        assert database.seeds(KERNEL, **elsewhere) == [schedule(1)]
        assert database.seeds(KERNEL, **HERE) == []


def test_a_failure_counts_as_tried_in_the_cache_mode_of_its_run(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database, cache="warm"), KERNEL, [failed()], batch=0)
        assert database.trials(KERNEL.key, **conditions(TARGET, TOOLCHAIN, "warm")) == [failed()]
        assert database.trials(KERNEL.key, **HERE) == []


def test_what_only_a_narrower_setting_found_wrong_may_be_tried_again(path: Path) -> None:
    wrong, crashed = failed("wrong_result", number=1), failed("crash", number=2)
    with Database(path) as database:
        database.add(start(database, numerics="strict"), KERNEL, [wrong, crashed], batch=0)
        assert database.trials(KERNEL.key, numerics="strict", **HERE) == [wrong, crashed]
        assert database.trials(KERNEL.key, numerics="standard", **HERE) == [crashed]
        database.add(start(database, numerics="standard"), KERNEL, [wrong], batch=0)
        assert database.trials(KERNEL.key, numerics="standard", **HERE) == [crashed, wrong]
        assert database.trials(KERNEL.key, numerics="fast", **HERE) == [crashed]


def test_seeds_are_the_best_of_each_conditions_the_kernel_before_its_family(path: Path) -> None:
    cousin = kernel(16)
    with Database(path) as database:
        database.add(
            start(database, target=OTHER_TARGET),
            KERNEL,
            [measured(2e-3, 2), measured(1e-3, 1), default_trial(5e-4), failed()],
            batch=0,
        )
        # Slower by the clock, but as a best one it goes before the second best of the other.
        database.add(
            start(database, toolchain=OTHER_TOOLCHAIN), KERNEL, [measured(9e-3, 9)], batch=0
        )
        database.add(start(database), cousin, [measured(1e-6, 16, of=cousin)], batch=0)
        unrelated = kernel(op="divide")
        database.add(start(database), unrelated, [measured(1e-6, 77, of=unrelated)], batch=0)
        expected = [schedule(n) for n in (9, 1, 2, 16)]
        assert database.seeds(KERNEL, **HERE) == expected
        assert database.seeds(KERNEL, limit=2, **HERE) == expected[:2]


def test_seeds_leave_out_what_was_tried_here(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database, target=OTHER_TARGET), KERNEL, [measured(1e-3, 1)], batch=0)
        database.add(start(database), KERNEL, [failed(number=1)], batch=0)
        assert database.seeds(KERNEL, **HERE) == []
        assert DEFAULT not in database.seeds(kernel(32), **HERE)


def test_seeds_leave_out_what_the_run_itself_found(path: Path) -> None:
    cousin = kernel(16)
    with Database(path) as database:
        own = start(database)
        database.add(own, cousin, [measured(1e-6, 16, of=cousin)], batch=0)
        assert database.seeds(KERNEL, **HERE) == [schedule(16)]
        assert database.seeds(KERNEL, apart=own, **HERE) == []


def test_the_checkpoint_is_the_last_batch_with_its_state(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        assert database.checkpoint(run, KERNEL.key) is None
        database.add(run, KERNEL, [measured(1e-3)], batch=0, state=b"zero")
        database.add(run, KERNEL, [], batch=1, state=b"one\0\xff")
        assert database.checkpoint(run, KERNEL.key) == (1, b"one\0\xff")
        assert database.checkpoint(start(database), KERNEL.key) is None


def test_a_run_goes_on_with_the_newest_unfinished_one_like_it(path: Path) -> None:
    def begin(seed: int = 0, options: dict[str, object] | None = None) -> str:
        return database.start_run(PROGRAM, TARGET, TOOLCHAIN, seed=seed, options=options)

    with Database(path) as database:
        for state in (b"older", b"newer"):
            database.add(begin(), KERNEL, [], batch=3, state=state)
        finished = begin()
        database.add(finished, KERNEL, [], batch=9, state=b"finished")
        database.finish_run(finished)
        assert database.checkpoint(begin(), KERNEL.key) == (3, b"newer")
        assert database.checkpoint(begin(seed=1), KERNEL.key) is None
        assert database.checkpoint(begin(options={"trials": 8}), KERNEL.key) is None
        assert database.checkpoint(begin(), kernel(16).key) is None


def test_a_batch_that_cannot_be_written_leaves_neither_trials_nor_state(path: Path) -> None:
    not_a_number = Trial(Candidate(KERNEL, schedule(2)), Measurement(samples_s=(float("nan"),)))
    with Database(path) as database:
        run = start(database)
        with pytest.raises(ValueError, match="JSON compliant"):
            database.add(run, KERNEL, [measured(1e-3), not_a_number], batch=0, state=b"state")
        assert database.trials(KERNEL.key, **HERE) == []
        assert database.checkpoint(run, KERNEL.key) is None


def test_a_schedule_that_does_not_parse_is_skipped_and_counted(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database), KERNEL, [measured(1e-3, 1), measured(2e-3, 2)], batch=0)
        with database.writing() as sql:
            old = '{"algorithm":"direct","steps":[["Twist","i0"]]}'
            sql.execute("update trials set schedule = ? where time_s < 1.5e-3", [old])
        assert database.trials(KERNEL.key, **HERE) == [measured(2e-3, 2)]
        assert database.unreadable == 1
        assert database.seeds(kernel(16), **HERE) == [schedule(2)]
        assert database.unreadable == 2


def test_adding_to_an_unknown_run_is_refused(path: Path) -> None:
    with Database(path) as database, pytest.raises(NoRecord, match="id of a recorded run, got 'x'"):
        database.add("x", KERNEL, [], batch=0)


def test_adding_a_trial_of_another_kernel_is_refused(path: Path) -> None:
    with Database(path) as database, pytest.raises(ValueError, match="got some of others"):
        database.add(start(database), KERNEL, [measured(1e-3, of=kernel(16))], batch=0)


def test_an_unknown_kernel_is_no_record(path: Path) -> None:
    with Database(path) as database, pytest.raises(NoRecord, match="key of a recorded kernel"):
        database.kernel("abc")


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    Database(tmp_path / "a" / "b" / "tuning.db").close()
    assert (tmp_path / "a" / "b" / "tuning.db").exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match=r"expected a file, got a folder; name a file in it"):
        Database(tmp_path)


def test_a_missing_file_is_refused_where_none_is_to_be_made(path: Path) -> None:
    with pytest.raises(DatabaseError, match="expected a file, found none"):
        Database(path, create=False)
    assert not path.exists()


def test_a_place_where_no_folder_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match="its folder cannot be made"):
        Database(tmp_path / "file" / "deeper" / "tuning.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(DatabaseError, match="cannot be opened; check the path and the rights"):
        Database(tmp_path / "locked" / "tuning.db")


def test_a_write_to_a_read_only_database_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        database.sql.execute("pragma query_only = on")
        with pytest.raises(DatabaseError, match="file or folder is read-only; copy it elsewhere"):
            database.add(run, KERNEL, [measured(1e-3)], batch=0)


def test_a_file_of_another_kind_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("not a database\n" * 100)
    with pytest.raises(DatabaseError, match="expected a tuning database, got a file of another"):
        Database(path)
    assert path.read_text() == "not a database\n" * 100


def test_the_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("create table bookmarks (url text)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="got another program's SQLite file"):
        Database(path)
    assert path.read_bytes() == before


def test_a_newer_version_is_refused_with_both_numbers(path: Path) -> None:
    filled(path).close()
    newer = sqlite3.connect(path)
    newer.execute("pragma user_version = 7")
    newer.close()
    with pytest.raises(
        DatabaseError, match=r"expected version 4 or older, got version 7, .*upgrade"
    ):
        Database(path)


def test_a_damaged_file_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        for batch in range(20):
            database.add(run, KERNEL, [measured(1e-3, n) for n in range(20)], batch=batch)
    content = bytearray(path.read_bytes())
    half = len(content) // 2  # behind the schema
    content[half:] = b"\xaa" * (len(content) - half)
    path.write_bytes(content)
    with Database(path) as database:
        with pytest.raises(DatabaseError, match="the file is damaged; restore a copy"):
            database.trials(KERNEL.key, **HERE)
        assert any("the file is damaged" in problem for problem in check(database).problems)


def test_a_lock_held_too_long_says_so(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        other = connect(path, create=False)
        other.execute("BEGIN IMMEDIATE")
        database.sql.execute("PRAGMA busy_timeout = 50")
        with pytest.raises(DatabaseError, match="another process has kept it locked"):
            database.add(run, KERNEL, [measured(1e-3)], batch=0)
        other.rollback()
        database.add(run, KERNEL, [measured(1e-3)], batch=0)
        other.close()


WRITER = """
import sys
from hlotune.tuning_logs.database import Database
from tests.recorded import KERNEL, measured, start
path, batches = sys.argv[1], int(sys.argv[2])
with Database(path) as database:
    run = start(database)
    print("started", flush=True)
    for batch in range(batches):
        trials = [measured(1e-3, n) for n in range(8)]
        database.add(run, KERNEL, trials, batch=batch, state=b"%d" % batch)
"""


def writer(path: Path, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(batches)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_many_processes_open_and_write_a_new_file_at_once(path: Path) -> None:
    writers = [writer(path, 10) for _ in range(4)]
    for process in writers:
        process.communicate()
    assert [process.returncode for process in writers] == [0] * 4
    with Database(path) as database:
        assert len(database.trials(KERNEL.key, **HERE)) == 4 * 10 * 8
        assert check(database).problems == ()


def test_a_writer_killed_at_any_instant_loses_at_most_the_batch_in_flight(path: Path) -> None:
    seen = 0
    for attempt in range(4):
        process = writer(path, 1_000_000)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 + 0.037 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        with Database(path) as database:
            assert check(database).problems == ()
            rows = database.query(
                """select count(*) as n, max(trials.batch) as last, states.batch as state
                from trials join states on states.run = trials.run group by trials.run"""
            )
            assert all(r["n"] == 8 * (r["last"] + 1) and r["state"] == r["last"] for r in rows)
            seen = sum(r["n"] for r in rows)
    assert seen > 0


def test_a_full_disk_is_told_in_words(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        pages = database.query("pragma page_count")[0]["page_count"]
        database.query(f"pragma max_page_count = {pages}")
        with pytest.raises(DatabaseError, match="the disk is full; free some space"):
            database.add(run, KERNEL, [measured(1e-3)] * 999, batch=0)
        assert database.trials(KERNEL.key, **HERE) == []


def test_a_limit_of_the_system_is_told_in_words(path: Path) -> None:
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9999, 9999)); "
        "from hlotune.tuning_logs.database import Database; Database(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert "DatabaseError" in done.stderr
    assert "check disk, quota and limits" in done.stderr
