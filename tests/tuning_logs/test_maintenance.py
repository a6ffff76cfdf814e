"""Merging, pruning, checking and listing."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.schedules.errors import DatabaseError, NoRecord
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Summary
from hlotune.tuning_logs.listing import find_kernel, find_run, ls, stats
from hlotune.tuning_logs.maintenance import check, prune
from hlotune.tuning_logs.merge import merge
from hlotune.tuning_logs.migrations import TABLES
from hlotune.tuning_logs.revoke import SLOWER, take_back
from tests.support.recorded import (
    HERE,
    KERNEL,
    OTHER_TARGET,
    PROGRAM,
    PROPERTIES,
    TARGET,
    TOOLCHAIN,
    contents,
    default_trial,
    failed,
    fill,
    filled,
    final,
    kernel,
    measured,
    schedule,
    start,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with filled(tmp_path / "tuning.db") as database:
        yield database


def test_a_merge_adds_all_of_the_other_and_twice_is_once(
    database: Database, tmp_path: Path
) -> None:
    with filled(tmp_path / "other.db") as other:
        added = merge(database, other.path)
        assert added["runs"] == 1
        assert added["trials"] == 7
        assert added["kernels"] == added["targets"] == added["sites"] == 0
        assert set(merge(database, other.path).values()) == {0}
        merge(other, database.path)
        assert contents(other, *TABLES) == contents(database, *TABLES)
    assert check(database).problems == ()


def test_a_merge_of_more_rows_than_a_transaction_takes_is_complete(
    database: Database, tmp_path: Path
) -> None:
    with Database(tmp_path / "big.db") as big:
        run = start(big)
        for batch in range(2):
            big.add(run, KERNEL, [measured(1e-3, n) for n in range(600)], batch=batch)
    assert merge(database, big.path)["trials"] == 1200


def test_a_merge_completes_what_was_copied_halfway(database: Database, tmp_path: Path) -> None:
    with Database(tmp_path / "live.db") as live:
        run = live.start_run(None, TARGET, TOOLCHAIN)
        live.add(run, KERNEL, [measured(1e-3)], batch=0, state=b"0")
    early = shutil.copy(live.path, tmp_path / "early.db")
    with Database(live.path) as live:
        live.add(run, KERNEL, [measured(2e-3, 2)], batch=1, state=b"1")
        live.finish_run(run, Summary(wall_s=1.0))
    merge(database, early)
    merge(database, live.path)
    merge(database, early)
    assert database.checkpoint(run, KERNEL.key) == (1, b"1")
    finished = database.query("select finished from runs where id = :id", {"id": run})
    assert finished[0]["finished"] is not None


def test_a_merge_takes_the_later_of_two_versions_of_a_final_whole(
    database: Database, tmp_path: Path
) -> None:
    early = shutil.copy(database.path, tmp_path / "early.db")
    take_back(database, KERNEL.key, SLOWER, numerics="standard", **HERE)
    with Database(early) as other:
        merge(other, database.path)
        assert contents(other, *TABLES) == contents(database, *TABLES)
    won_again = replace(final(1.5, 2), code="abc")
    with Database(early) as other:
        run = other.query("select run from finals where withdrawn is not null")[0]["run"]
        other.record_final(run, KERNEL, won_again)
    merge(database, early)
    assert decision(database, KERNEL.key, **HERE).final == won_again


def test_a_merge_leaves_a_final_alone_that_is_later_than_the_other(
    database: Database, tmp_path: Path
) -> None:
    early = shutil.copy(database.path, tmp_path / "early.db")
    take_back(database, KERNEL.key, SLOWER, numerics="standard", **HERE)
    before = contents(database, *TABLES)
    merge(database, early)
    assert contents(database, *TABLES) == before


def test_a_merge_fills_the_gaps_of_a_final_of_the_same_moment(
    database: Database, tmp_path: Path
) -> None:
    early = shutil.copy(database.path, tmp_path / "early.db")
    with database.writing() as sql:
        sql.execute("update finals set code = 'abc'")
    with Database(early) as other:
        merge(other, database.path)
        assert contents(other, "finals") == contents(database, "finals")


def test_a_merge_with_a_missing_file_is_refused(database: Database, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError, match="expected a file, found none"):
        merge(database, tmp_path / "none.db")


def test_prune_keeps_the_best_of_each_kernel_under_each_conditions(database: Database) -> None:
    database.add(start(database, target=OTHER_TARGET), KERNEL, [measured(5.0, 5)], batch=0)
    before = decision(database, KERNEL.key, **HERE)
    assert prune(database, keep=1) == 5
    assert database.trials(KERNEL.key, **HERE) == [measured(1e-3, 1)]
    assert database.seeds(KERNEL, **HERE) == [schedule(5)]
    assert decision(database, KERNEL.key, **HERE) == before
    assert check(database).problems == ()


def test_prune_keeps_the_failure_of_what_had_a_time_before(database: Database) -> None:
    wrong = failed("wrong_result", number=1)
    database.add(start(database), KERNEL, [wrong], batch=0)
    prune(database, keep=1)
    assert database.trials(KERNEL.key, **HERE) == [measured(1e-3, 1), wrong]


def test_prune_drops_states_of_finished_runs_alone(database: Database) -> None:
    unfinished = start(database)
    database.add(unfinished, KERNEL, [], batch=0, state=b"needed")
    prune(database, keep=10)
    assert database.query("select run from states") == [{"run": unfinished}]


@pytest.mark.parametrize("keep", [2**63 - 1, 2**63, 10**20])
def test_prune_keeps_all_times_of_a_kernel_where_more_are_asked_for(
    keep: int, database: Database
) -> None:
    timed = "select count(*) as n from trials where time_s is not null"
    before = database.query(timed)
    prune(database, keep=keep)
    assert database.query(timed) == before


def test_prune_to_nothing_is_refused(database: Database) -> None:
    with pytest.raises(ValueError, match="expected to keep one trial or more, got 0"):
        prune(database, keep=0)


def test_a_sound_database_has_no_problems(database: Database) -> None:
    found = check(database)
    assert found.problems == ()
    assert found.rows == sum(stats(database).rows.values())


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("update kernels set text = 'x'", "key of the text is"),
        ("update kernels set family = 'x'", "family of the text is"),
        ("update targets set identity = replace(identity, 'znver4', 'z')", "fingerprint of the"),
        ("update targets set identity = '{}'", "targets "),
        ("update toolchains set versions = replace(versions, '20.1', '21')", "key of the versions"),
        ("update trials set schedule = 'x' where number = 1", "expected the JSON of a schedule"),
        ("update trials set samples_s = '[-1]' where number = 1", "expected samples in seconds"),
        ("update trials set samples_s = '[]' where number = 1", "expected samples in seconds"),
        ("update finals set default_s = '5'", "expected samples in seconds"),
        ("update runs set summary = '{}'", "missing 1 required keyword-only argument: 'wall_s'"),
        ("update runs set options = 'x'", "Expecting value"),
        ("delete from targets", "refers to a row of targets that is gone"),
    ],
)
def test_check_finds(database: Database, damage: str, problem: str) -> None:
    database.sql.execute("pragma foreign_keys = off")
    database.sql.execute(damage)
    assert any(problem in line for line in check(database).problems)


def test_a_row_that_refers_to_nothing_cannot_be_written(database: Database) -> None:
    with pytest.raises(DatabaseError, match="FOREIGN KEY"), database.writing() as sql:
        sql.execute("delete from kernels")


def test_ls_counts_trials_failures_and_gains(database: Database) -> None:
    lines = {line.key: line for line in ls(database)}
    won = lines[KERNEL.key]
    assert (won.label, won.trials, won.failures, won.targets) == ("add [8]", 3, 1, 1)
    assert won.speedup == 2.0
    assert lines[kernel(op="multiply").key].speedup is None
    assert ls(database)[0] == won


def test_ls_counts_no_gain_that_was_taken_back(database: Database) -> None:
    with database.writing() as sql:
        sql.execute("update finals set withdrawn = 'wrong in the program'")
    assert {line.speedup for line in ls(database)} == {None}


def test_stats_show_every_kind_of_failure_with_its_latest_example(database: Database) -> None:
    run = start(database)
    database.add(run, KERNEL, [failed(message="signal 4"), failed("timeout", "10 s")], batch=0)
    found = stats(database)
    assert [(f.kind, f.count) for f in found.failures] == [
        ("crash", 2),
        ("timeout", 1),
        ("wrong_result", 1),
    ]
    assert found.failures[0].message == "signal 4"
    assert found.rows["trials"] == 9
    assert [line.label for line in found.speedups] == ["add [8]"]
    assert [(r.id == run, r.program, r.trials) for r in found.runs] == [
        (True, "", 2),
        (False, "mlp", 5),
    ]


def test_a_kernel_is_found_by_label_and_by_prefix(database: Database) -> None:
    assert find_kernel(database, "add [8]") == KERNEL.key
    assert find_kernel(database, KERNEL.key[:6]) == KERNEL.key


def test_a_prefix_of_several_kernels_lists_them(database: Database) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as tables:
        tables.execute("update kernels set key = 'ab' || substr(key, 3)")
    with pytest.raises(NoRecord, match=r"which fits 3: .*divide \[8\].*give more digits"):
        find_kernel(database, "ab")
    with pytest.raises(NoRecord, match="expected a recorded kernel, got ''"):
        find_kernel(database, "")


def test_an_unknown_name_says_where_to_look(database: Database) -> None:
    with pytest.raises(NoRecord, match="expected a recorded kernel, got '%'; `tune db ls`"):
        find_kernel(database, "%")
    with pytest.raises(NoRecord, match="expected a recorded run, got 'zz'; `tune db stats`"):
        find_run(database, "zz")


def test_a_program_stands_for_its_newest_run(database: Database) -> None:
    newest = fill(database)
    assert find_run(database, "mlp") == newest
    assert find_run(database, newest[:20]) == newest


def test_a_name_of_programs_of_several_sources_is_refused_with_all_of_them(
    database: Database,
) -> None:
    first = find_run(database, "mlp")
    other = replace(PROGRAM, key="cd" * 16, source="other.py:model")
    edited = replace(PROGRAM, key="ef" * 16)
    second = database.start_run(other, TARGET, TOOLCHAIN)
    with pytest.raises(NoRecord, match=r"got 'mlp', which fits 2: other.py:model \(run ") as error:
        find_run(database, "mlp")
    assert f"{PROGRAM.source} (run {first[:12]})" in str(error.value)
    assert find_run(database, "other.py:model") == second
    newest = database.start_run(edited, TARGET, TOOLCHAIN)
    assert find_run(database, PROGRAM.source) == newest


def test_a_peak_that_was_measured_in_a_bad_minute_takes_the_place_of_none(
    database: Database,
) -> None:
    bad = replace(PROPERTIES, flops_per_s={"f32": 1e11, "f64": 1e11}, clock_hz=1e9)
    database.start_run(None, TARGET, TOOLCHAIN, properties=bad)
    assert database.properties(TARGET) == replace(
        PROPERTIES, flops_per_s={**PROPERTIES.flops_per_s, "f64": 1e11}
    )
    assert database.properties(OTHER_TARGET) is None


def test_a_peak_that_a_run_found_to_be_higher_is_kept(database: Database) -> None:
    higher = replace(PROPERTIES, flops_per_s={"f32": 9e15})
    database.keep_properties(TARGET, higher)
    database.keep_properties(TARGET, PROPERTIES)
    assert database.properties(TARGET) == PROPERTIES.best_of(higher)


def test_the_properties_of_a_target_outlive_a_run_that_does_not_know_them(
    database: Database,
) -> None:
    database.start_run(None, TARGET, TOOLCHAIN)
    properties = database.query("select properties from targets")[0]["properties"]
    assert properties is not None
    assert str(PROPERTIES.clock_hz) in properties


def test_the_default_is_a_trial_like_any_other(database: Database) -> None:
    assert default_trial(2e-3) in database.trials(KERNEL.key, **HERE)
