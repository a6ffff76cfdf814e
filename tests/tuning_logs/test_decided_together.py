"""What is decided of schedules that were tuned together in a program, and what of others."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.measure.trial import Failure
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import TOGETHER, decision, tuned_together
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.revoke import SLOWER, WRONG, take_back, take_back_wrong
from tests.support.recorded import HERE, KERNEL, PROGRAM, failed, final, kernel, schedule, start

OTHER = replace(PROGRAM, key="cd" * 16, name="other")
TUNED_TOGETHER = replace(final(0.99, 1), outcome=TOGETHER)
WRONG_HERE = WrongResult("expected 1, got 2", kernels=(KERNEL.key,))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as database:
        run = start(database, program=PROGRAM)
        database.record_final(run, KERNEL, TUNED_TOGETHER)
        yield database


def elsewhere(database: Database, found: Final, *, numerics: Numerics = "standard") -> str:
    """A run of another program that finds so."""
    run = start(database, program=OTHER, numerics=numerics)
    database.record_final(run, KERNEL, found)
    return run


def used(
    database: Database, program: str | None = PROGRAM.key, numerics: Numerics = "standard"
) -> Schedule:
    return decision(database, KERNEL.key, program=program, numerics=numerics, **HERE).schedule


@pytest.mark.parametrize("found", [final(0.5, 2), final(2.0, 2)], ids=["kept default", "tuned"])
def test_one_that_is_wrong_in_its_program_goes_back_whatever_other_programs_found(
    database: Database, found: Final
) -> None:
    elsewhere(database, found)
    before = used(database, OTHER.key)
    assert used(database) == schedule(1)
    taken = take_back_wrong(database, WRONG_HERE, program=PROGRAM.key, numerics="standard", **HERE)
    assert taken == [KERNEL.key]
    assert used(database) == DEFAULT
    assert used(database, OTHER.key) == before
    failures = [t for t in database.trials(KERNEL.key, **HERE) if isinstance(t.outcome, Failure)]
    assert [t.candidate.schedule for t in failures] == [schedule(1)]


def test_one_that_is_slower_in_its_program_goes_back_there_and_others_keep_theirs(
    database: Database,
) -> None:
    elsewhere(database, final(2.0, 2))
    later = start(database, program=PROGRAM)
    taken = take_back(
        database,
        KERNEL.key,
        SLOWER,
        program=PROGRAM.key,
        run=later,
        numerics="standard",
        **HERE,
    )
    assert taken == TUNED_TOGETHER
    decided = decision(database, KERNEL.key, program=PROGRAM.key, **HERE)
    assert (decided.schedule, decided.run) == (DEFAULT, later)
    assert decided.reason == f"kept default: {SLOWER}"
    assert used(database, OTHER.key) == used(database, None) == schedule(2)


def test_a_program_takes_back_nothing_that_it_does_not_use(database: Database) -> None:
    taken = take_back_wrong(database, WRONG_HERE, program=OTHER.key, numerics="standard", **HERE)
    assert taken == []
    assert used(database) == schedule(1)


def test_one_that_is_wrong_elsewhere_is_used_nowhere(database: Database) -> None:
    elsewhere(database, final(2.0, 1))
    take_back_wrong(database, WRONG_HERE, program=OTHER.key, numerics="standard", **HERE)
    assert used(database) == used(database, OTHER.key) == DEFAULT


@pytest.mark.parametrize("reason", [WRONG, SLOWER])
def test_of_another_program_only_a_wrong_result_counts(database: Database, reason: str) -> None:
    elsewhere(database, replace(final(2.0, 1), outcome="kept default", withdrawn=reason))
    assert used(database) == (DEFAULT if reason == WRONG else schedule(1))


def test_what_is_wrong_where_it_was_tuned_together_is_not_used_where_it_won_alone(
    database: Database,
) -> None:
    elsewhere(database, final(2.0, 1))
    take_back_wrong(database, WRONG_HERE, program=PROGRAM.key, numerics="standard", **HERE)
    decided = decision(database, KERNEL.key, program=OTHER.key, **HERE)
    assert (decided.schedule, decided.reason) == (DEFAULT, f"kept default: {WRONG}")


@pytest.mark.parametrize(
    ("judged", "allowed", "is_used"),
    [("standard", "standard", False), ("fast", "standard", False), ("strict", "standard", True)],
)
def test_one_that_a_trial_found_wrong_is_not_used(
    database: Database, judged: Numerics, allowed: Numerics, is_used: bool
) -> None:
    """A trial under a narrower setting than is allowed says nothing."""
    run = start(database, program=OTHER, numerics=judged)
    database.add(run, KERNEL, [failed("wrong_result", "got 2", 1)], batch=0)
    database.record_final(run, KERNEL, final(0.5, 2))
    assert (used(database, numerics=allowed) == schedule(1)) == is_used


def test_a_trial_that_failed_otherwise_bars_nothing(database: Database) -> None:
    database.add(start(database), KERNEL, [failed("timeout", "60 s", 1)], batch=0)
    assert used(database) == schedule(1)


@pytest.mark.parametrize("reason", [WRONG, SLOWER])
def test_one_that_went_back_makes_way_for_what_another_program_proves_faster_since(
    database: Database, reason: str
) -> None:
    taken = take_back(
        database, KERNEL.key, reason, program=PROGRAM.key, numerics="standard", **HERE
    )
    assert taken == TUNED_TOGETHER and used(database) == DEFAULT
    elsewhere(database, final(2.0, 2))
    assert used(database) == used(database, OTHER.key) == schedule(2)


def test_all_kernels_that_were_tuned_together_are_found_at_once(database: Database) -> None:
    other = kernel(op="divide")
    database.record_final(start(database, program=PROGRAM), other, final(2.0, 2))
    keys = [KERNEL.key, other.key]
    assert tuned_together(database, keys, HERE) == {KERNEL.key}
    assert tuned_together(database, keys[1:], HERE) == frozenset()
    assert tuned_together(database, keys, {**HERE, "cache": "warm"}) == frozenset()
    take_back(database, KERNEL.key, SLOWER, program=PROGRAM.key, numerics="standard", **HERE)
    assert tuned_together(database, keys, HERE) == {KERNEL.key}
