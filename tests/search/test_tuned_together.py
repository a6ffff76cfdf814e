"""How a run ends where a program gains too little with the kernels that won alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.measure.trial import Failure
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.closing import Closing
from hlotune.search.finals.forms import Compared
from hlotune.search.finals.judged import judged
from hlotune.search.progress import Event, FormTried, KernelSkipped
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision, own_final, tuned_together
from hlotune.tuning_logs.finals import Final, Paired, Whole
from tests.support.ended_runs import (
    SHORT,
    SLOWER,
    algorithms,
    always,
    ended,
    kept_later,
    never,
    with_all,
)
from tests.support.sessions import PROGRAM, UNDER, WHOLE, started, two


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.mark.parametrize("alone", [SLOWER, SHORT], ids=["slower", "gains too little"])
def test_all_kernels_are_ours_where_the_program_is_proven_faster_with_all(
    database: Database, alone: Whole
) -> None:
    events = list[Event]()
    result = ended(database, alone, always, events=events)
    assert [k.won for k in result.kernels] == [True, True]
    assert result.speedup == 2.0
    assert XLA not in algorithms(database, result, PROGRAM.key)
    assert "tuned together" in result.report()
    assert FormTried(labels=("dense",), is_faster=True) in events


def test_what_was_tuned_together_is_for_that_program_alone(database: Database) -> None:
    result = ended(database, SLOWER, always)
    conv, dense = algorithms(database, result, "another program")
    assert conv != XLA and dense == XLA
    reason = decision(database, result.kernels[1].key, **UNDER).reason
    assert reason.startswith("kept default: tuned together with the other kernels of one program")


@pytest.mark.parametrize("key", [PROGRAM.key, "another program"])
def test_what_was_tuned_together_stays_in_its_program_until_a_run_of_that_says_otherwise(
    database: Database, key: str
) -> None:
    result = ended(database, SLOWER, always)
    keys = [k.key for k in result.kernels]
    assert tuned_together(database, keys, UNDER) == {keys[1]}
    kept_later(database, result, key)
    is_kept = algorithms(database, result, PROGRAM.key)[1] != XLA
    assert is_kept == (key != PROGRAM.key)


def test_everything_is_left_to_the_default_where_the_program_is_slower_with_all_too(
    database: Database,
) -> None:
    events = list[Event]()
    result = ended(database, SLOWER, never, events=events)
    assert not result.won and result.speedup == 0.8
    assert algorithms(database, result, PROGRAM.key) == [XLA, XLA]
    assert FormTried(labels=("dense",), is_faster=False) in events


def test_what_was_added_goes_back_too_where_the_program_proves_slower_than_the_default(
    database: Database,
) -> None:
    result = ended(database, SLOWER, always, together=SLOWER)
    assert not result.won
    assert algorithms(database, result, PROGRAM.key) == [XLA, XLA]


def test_a_default_that_is_slow_in_most_calls_takes_nothing_back(database: Database) -> None:
    """In its fast mode, of a fifth of the calls, it is faster; a user has all of them."""
    times = Paired(
        default_s=(0.8,) * 2 + (1.6,) * 8, tuned_s=(1.0,) * 10, speedup=0.8, low=0.7, high=0.9
    )
    slow = replace(SLOWER, paired=times)
    result = ended(database, slow, never)
    assert [k.won for k in result.kernels] == [True, False] and result.speedup == 0.8


@pytest.mark.parametrize("is_faster_without", [True, False])
def test_what_won_alone_by_little_is_left_out_where_the_program_is_faster_without(
    database: Database, is_faster_without: bool
) -> None:
    events = list[Event]()
    result = ended(
        database, WHOLE, lambda base, more: is_faster_without, behind=1 / 1.1, events=events
    )
    assert [k.won for k in result.kernels] == [True, not is_faster_without]
    assert FormTried(labels=("dense",), is_faster=is_faster_without, without=True) in events
    dense = algorithms(database, result, PROGRAM.key)[1]
    assert (dense == XLA) == is_faster_without


def test_what_won_alone_by_far_is_not_left_out(database: Database) -> None:
    events = list[Event]()
    result = ended(database, WHOLE, always, behind=0.5, events=events)
    assert [k.won for k in result.kernels] == [True, True]
    assert not any(isinstance(e, FormTried) for e in events)


def test_a_program_that_is_no_faster_with_all_keeps_those_that_won_alone(
    database: Database,
) -> None:
    result = ended(database, SHORT, never)
    assert [k.won for k in result.kernels] == [True, False]
    assert result.speedup == 1.1


@pytest.mark.parametrize("is_blamed", [True, False], ids=["blamed", "none alone to blame"])
def test_undecided_champions_that_are_wrong_in_the_program_stay_out_which_is_said_and_recorded(
    database: Database, is_blamed: bool
) -> None:
    def wrong(base: Sequence[str], more: Sequence[str]) -> bool:
        raise WrongResult("expected 1, got 2", tuple(more) if is_blamed else (), ("dense0",))

    events = list[Event]()
    result = ended(database, SHORT, wrong, events=events)
    assert [k.won for k in result.kernels] == [True, False]
    assert not result.wrong
    reason = "tried with the other kernels, its champion makes the program wrong: expected 1, got 2"
    assert KernelSkipped(label="dense", reason=reason) in events
    assert result.skipped == (("dense", reason),)
    assert f"dense: {reason}" in result.report()
    dense = result.kernels[1]
    assert dense.schedule is not None
    barred = [t for t in database.trials(dense.key, **UNDER) if isinstance(t.outcome, Failure)]
    assert [t.candidate.schedule for t in barred] == [dense.schedule] * is_blamed


def test_a_kernel_in_use_since_an_earlier_run_is_said_to_win_and_not_to_be_no_faster(
    database: Database,
) -> None:
    before = ended(database, SLOWER, always)
    conv, dense = before.kernels
    stands = own_final(database, before.run, dense.key)
    assert stands is not None
    later = started(database, two(), Limits(trials=1), seed=1)
    unclear = replace(stands.paired, speedup=0.95, low=0.8, high=1.05)
    unproven = replace(stands, outcome="kept default", paired=unclear)
    database.record_final(later, database.kernel(dense.key), unproven)
    result = replace(before, run=later, kernels=(conv, replace(dense, won=False)))
    events = list[Event]()

    def as_it_is(base: object, more: Mapping[str, Final], confidence: float) -> Compared:
        return Compared(is_faster=False, standing=frozenset(more), is_same=True)

    closing = Closing(
        database=database, run=later, numerics="standard", under=UNDER, tell=events.append
    )
    verdict = closing.verdict(result, lambda also: SHORT, as_it_is)
    assert not events
    assert XLA not in algorithms(database, result, PROGRAM.key)
    assert [k.won for k in judged(result, verdict).kernels] == [True, True]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), WrongResult("off", (), ())])
def test_what_was_tuned_together_is_in_the_result_however_the_run_ends(
    database: Database, error: BaseException
) -> None:
    def compare(also: Mapping[str, Final]) -> Whole | None:
        if also:
            raise error
        return SHORT

    first = ended(database, SHORT, never)
    closing = Closing(database=database, run=first.run, numerics="standard", under=UNDER)
    verdict = closing.verdict(first, compare, with_all)
    dense = first.kernels[1].key
    assert algorithms(database, first, PROGRAM.key)[1] != XLA
    assert verdict.together == (dense,)
    assert judged(first, verdict).kernels[1].won
