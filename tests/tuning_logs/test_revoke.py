"""Champions that are taken back, and what is decided after that."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.measure.trial import Failure
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.revoke import SLOWER, WRONG, take_back, take_back_wrong
from tests.support.recorded import HERE, KERNEL, final, kernel, measured, schedule, start


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as database:
        yield database


def won(database: Database) -> str:
    """A run in which schedule 1 won."""
    run = start(database)
    database.add(run, KERNEL, [measured(1e-3)], batch=0)
    database.record_final(run, KERNEL, final(2.0))
    return run


def test_what_is_taken_back_is_the_default_from_then_on(database: Database) -> None:
    run = won(database)
    taken = take_back(database, KERNEL.key, SLOWER, numerics="standard", **HERE)
    assert taken == final(2.0)
    decided = decision(database, KERNEL.key, **HERE)
    assert (decided.schedule, decided.run) == (DEFAULT, run)
    assert decided.reason == "kept default: slower in the program"


def test_a_run_that_finds_it_says_so_itself(database: Database) -> None:
    won(database)
    later = start(database)
    take_back(database, KERNEL.key, SLOWER, run=later, numerics="standard", **HERE)
    assert decision(database, KERNEL.key, **HERE).run == later


def test_nothing_is_taken_back_where_nothing_had_won(database: Database) -> None:
    assert take_back(database, KERNEL.key, SLOWER, numerics="standard", **HERE) is None
    database.record_final(start(database), KERNEL, final(0.9))
    assert take_back(database, KERNEL.key, SLOWER, numerics="standard", **HERE) is None
    assert decision(database, KERNEL.key, **HERE).final == final(0.9)


def test_a_wrong_champion_is_barred_for_good(database: Database) -> None:
    won(database)
    error = WrongResult("expected 1, got 2", kernels=(kernel(op="divide").key, KERNEL.key))
    assert take_back_wrong(database, error, numerics="standard", **HERE) == [KERNEL.key]
    assert decision(database, KERNEL.key, **HERE).reason == f"kept default: {WRONG}"
    failed = [t for t in database.trials(KERNEL.key, **HERE) if isinstance(t.outcome, Failure)]
    assert [(t.candidate.schedule, t.time_s) for t in failed] == [(schedule(1), None)]
    assert take_back_wrong(database, error, numerics="standard", **HERE) == []


def test_what_was_taken_back_has_not_won_whatever_else_is_said_of_it() -> None:
    assert final(2.0).won
    assert not replace(final(2.0), withdrawn=WRONG).won
