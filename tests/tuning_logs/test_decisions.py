"""What `apply` is told for a kernel, and the reason for every miss."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.schedules.numerics import NUMERICS, Numerics
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import Database, conditions
from hlotune.tuning_logs.decisions import Decision, decision
from hlotune.tuning_logs.finals import Final, Outcome, Paired
from tests.support.recorded import (
    HERE,
    KERNEL,
    OTHER_TARGET,
    TARGET,
    TOOLCHAIN,
    default_trial,
    failed,
    final,
    measured,
    schedule,
    start,
)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as database:
        yield database


def test_a_kernel_that_won_gets_its_champion(database: Database) -> None:
    database.record_final(start(database), KERNEL, final(2.0, 3))
    decided = decision(database, KERNEL.key, **HERE)
    assert decided.schedule == schedule(3)
    assert decided.final == final(2.0, 3)
    assert decided.reason == "tuned: 2.00x (1.96 to 2.04)"


def test_a_kernel_that_kept_the_default_says_by_how_much(database: Database) -> None:
    database.record_final(start(database), KERNEL, final(0.5))
    decided = decision(database, KERNEL.key, **HERE)
    assert decided.schedule == DEFAULT
    assert decided.reason == (
        "kept default: the best candidate reached 0.50x (0.49 to 0.51), margin -0.510"
    )


def test_the_newest_comparison_decides(database: Database) -> None:
    database.record_final(start(database), KERNEL, final(2.0, 1))
    database.record_final(start(database), KERNEL, final(0.9, 2))
    assert decision(database, KERNEL.key, **HERE).schedule == DEFAULT


def test_a_second_final_of_a_run_replaces_the_first(database: Database) -> None:
    run = start(database)
    database.record_final(run, KERNEL, final(0.9, 1))
    database.record_final(run, KERNEL, final(1.5, 2))
    assert decision(database, KERNEL.key, **HERE).schedule == schedule(2)


def test_a_schedule_that_needs_laxer_numerics_is_not_used(database: Database) -> None:
    run = start(database, numerics="fast")
    database.record_final(run, KERNEL, final(2.0, numerics="fast"))
    assert decision(database, KERNEL.key, numerics="fast", **HERE).schedule == schedule(1)
    refused = decision(database, KERNEL.key, numerics="standard", **HERE)
    assert refused.schedule == DEFAULT
    assert refused.reason == "its tuned schedule needs numerics fast, and standard is allowed"


def test_a_later_strict_run_says_nothing_about_what_standard_may_use(database: Database) -> None:
    database.record_final(start(database, numerics="standard"), KERNEL, final(2.0))
    kept = final(0.9, 2, numerics="strict")
    database.record_final(start(database, numerics="strict"), KERNEL, kept)
    assert decision(database, KERNEL.key, numerics="standard", **HERE).schedule == schedule(1)
    assert decision(database, KERNEL.key, numerics="strict", **HERE).final == kept


def test_a_champion_of_a_lax_run_that_needs_less_serves_a_stricter_one(database: Database) -> None:
    run = start(database, numerics="fast")
    database.record_final(run, KERNEL, final(2.0, 4, numerics="strict"))
    assert decision(database, KERNEL.key, numerics="strict", **HERE).schedule == schedule(4)


def test_a_lax_champion_that_lost_keeps_the_default_for_all(database: Database) -> None:
    run = start(database, numerics="fast")
    database.record_final(run, KERNEL, final(0.9, numerics="fast"))
    assert decision(database, KERNEL.key, numerics="strict", **HERE).reason.startswith("kept")


def test_a_champion_that_does_not_parse_falls_back_to_the_one_before(database: Database) -> None:
    database.record_final(start(database), KERNEL, final(2.0, 1))
    broken = start(database)
    database.record_final(broken, KERNEL, final(3.0, 2))
    with database.writing() as sql:
        sql.execute("update finals set schedule = '?' where run = ?", [broken])
    assert decision(database, KERNEL.key, **HERE).schedule == schedule(1)
    with database.writing() as sql:
        sql.execute("update finals set schedule = '?'")
    assert "does not parse in this version" in decision(database, KERNEL.key, **HERE).reason


def test_a_kernel_never_seen_is_never_tuned(database: Database) -> None:
    decided = decision(database, KERNEL.key, **HERE)
    assert (decided.schedule, decided.reason) == (DEFAULT, "never tuned")


def test_trials_that_were_never_compared_are_what_the_next_run_starts_from(
    database: Database,
) -> None:
    trials = [default_trial(2e-3), measured(1e-3), failed()]
    database.add(start(database), KERNEL, trials, batch=0)
    assert decision(database, KERNEL.key, **HERE).reason == (
        "2 trials, but none was compared with the default: `tune run` again starts from them"
    )


def test_flags_of_xla_are_named_where_they_alone_keep_trials_from_counting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--other")
    database.add(start(database), KERNEL, [measured(1e-3), failed()], batch=0)
    today = conditions(TARGET, replace(TOOLCHAIN, xla_flags="--other"))
    assert decision(database, KERNEL.key, **today).reason == (
        "2 trials with XLA_FLAGS='', none with '--other' as here: all flags are part of the key; "
        "set the same ones, or tune it again"
    )
    newer = conditions(TARGET, replace(TOOLCHAIN, xla_flags="--other", jaxlib="9"))
    assert decision(database, KERNEL.key, **newer).reason == (
        "2 trials under other conditions, none with this toolchain"
    )


def test_toolchains_that_do_not_parse_are_no_reason(database: Database) -> None:
    database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
    with database.writing() as sql:
        sql.execute("update toolchains set versions = '{}'")
    flags = conditions(TARGET, replace(TOOLCHAIN, xla_flags="--other"))
    assert "none with this toolchain" in decision(database, KERNEL.key, **flags).reason


def test_the_default_alone_is_no_tuning(database: Database) -> None:
    database.add(start(database), KERNEL, [default_trial(2e-3)], batch=0)
    assert decision(database, KERNEL.key, **HERE).reason == "never tuned"


def test_a_champion_that_was_taken_back_is_not_used_and_says_why(database: Database) -> None:
    database.record_final(start(database), KERNEL, final(2.0))
    wrong = replace(final(2.0), outcome="kept default", withdrawn="wrong in the program")
    run = start(database)
    database.record_final(run, KERNEL, wrong)
    decided = decision(database, KERNEL.key, **HERE)
    assert decided == Decision(
        schedule=DEFAULT, reason="kept default: wrong in the program", final=wrong, run=run
    )


def of_pairs(pairs: int, low: float, high: float, number: int = 1) -> Final:
    paired = Paired(
        default_s=(1e-3,) * pairs,
        tuned_s=(1e-3,) * pairs,
        speedup=(low + high) / 2,
        low=low,
        high=high,
    )
    outcome: Outcome = "tuned" if low > 1 else "kept default"
    return replace(final(number=number), paired=paired, outcome=outcome)


@pytest.mark.parametrize(
    ("older", "newer", "standing_number"),
    [
        (of_pairs(31, 1.1, 1.3), of_pairs(9, 0.9, 1.4, 2), 1),
        (of_pairs(31, 1.1, 1.3), of_pairs(9, 0.8, 0.9, 2), 2),
        (of_pairs(31, 1.1, 1.3), of_pairs(9, 1.5, 1.9, 2), 2),
        (of_pairs(31, 0.9, 1.1), of_pairs(9, 1.05, 1.4, 2), 1),
        (of_pairs(31, 1.1, 1.3), of_pairs(31, 0.9, 0.99, 2), 2),
        (of_pairs(9, 1.2, 1.4), of_pairs(9, 1.1, 1.3, 2), 2),
        (of_pairs(31, 1.1, 1.3), of_pairs(31, 0.9, 1.2, 2), 1),
        (of_pairs(31, 1.1, 1.3), of_pairs(31, 0.9, 1.05, 2), 2),
        (of_pairs(31, 0.9, 1.3), of_pairs(31, 0.8, 1.2, 2), 2),
        (of_pairs(9, 1.02, 1.5), of_pairs(31, 0.98, 1.03, 2), 2),
        (replace(of_pairs(31, 1.1, 1.3), withdrawn="wrong"), of_pairs(9, 1.05, 1.2, 2), 2),
    ],
    ids=[
        "unclear",
        "slower",
        "faster",
        "luck",
        "thorough",
        "both hurried",
        "proves nothing",
        "disproves",
        "both prove nothing",
        "luck in a hurry",
        "taken back",
    ],
)
def test_a_weaker_comparison_overrules_a_stronger_one_only_where_it_contradicts(
    database: Database, older: Final, newer: Final, standing_number: int
) -> None:
    for found in (older, newer):
        database.record_final(start(database), KERNEL, found)
    decided = decision(database, KERNEL.key, **HERE).final
    assert decided is not None
    assert decided.schedule == schedule(standing_number)


@pytest.mark.parametrize("strict_goes_first", [False, True])
def test_a_thorough_strict_run_does_not_overrule_a_hurried_one_of_standard(
    database: Database, strict_goes_first: bool
) -> None:
    won, kept = of_pairs(9, 1.05, 1.6, 1), replace(of_pairs(31, 0.97, 1.1, 2), numerics="strict")
    runs: list[tuple[Numerics, Final]] = [("standard", won), ("strict", kept)]
    for numerics, found in reversed(runs) if strict_goes_first else runs:
        database.record_final(start(database, numerics=numerics), KERNEL, found)
    assert decision(database, KERNEL.key, numerics="standard", **HERE).final == won
    assert decision(database, KERNEL.key, numerics="strict", **HERE).final == kept


def taken_back(numerics: Numerics, number: int = 1) -> Final:
    lost = final(2.0, number, numerics=numerics)
    return replace(lost, outcome="kept default", withdrawn="slower in the program")


def test_a_champion_that_was_taken_back_makes_way_for_a_newer_one_of_a_stricter_run(
    database: Database,
) -> None:
    database.record_final(start(database, numerics="fast"), KERNEL, taken_back("fast"))
    strict = final(1.8, 2, numerics="strict")
    database.record_final(start(database, numerics="strict"), KERNEL, strict)
    for numerics in NUMERICS:
        assert decision(database, KERNEL.key, numerics=numerics, **HERE).final == strict


def test_a_champion_that_was_taken_back_does_not_make_way_for_an_older_one(
    database: Database,
) -> None:
    strict = final(1.8, 2, numerics="strict")
    database.record_final(start(database, numerics="strict"), KERNEL, strict)
    lax = taken_back("standard")
    database.record_final(start(database, numerics="standard"), KERNEL, lax)
    assert decision(database, KERNEL.key, numerics="standard", **HERE).final == lax


def test_of_two_that_were_taken_back_the_newer_one_counts(database: Database) -> None:
    database.record_final(start(database, numerics="fast"), KERNEL, taken_back("fast"))
    strict = final(1.8, 2, numerics="strict")
    database.record_final(start(database, numerics="strict"), KERNEL, strict)
    newest = taken_back("standard", 3)
    database.record_final(start(database, numerics="standard"), KERNEL, newest)
    decided = decision(database, KERNEL.key, numerics="fast", **HERE)
    assert (decided.schedule, decided.final) == (DEFAULT, newest)


def test_a_miss_names_the_conditions_that_differ(database: Database) -> None:
    database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
    elsewhere = conditions(OTHER_TARGET, TOOLCHAIN, "warm")
    assert decision(database, KERNEL.key, **elsewhere).reason == (
        "1 trials under other conditions, none on this machine, none in cache mode warm"
    )


def test_a_miss_tells_when_only_the_combination_is_new(database: Database) -> None:
    database.add(start(database, target=OTHER_TARGET), KERNEL, [measured(1e-3)], batch=0)
    database.add(start(database, cache="warm"), KERNEL, [failed()], batch=0)
    assert decision(database, KERNEL.key, **conditions(TARGET, TOOLCHAIN)).reason == (
        "2 trials under other conditions, none under all of these together"
    )
