"""Programs whose calls take seconds are closed in a part of a budget, which is kept."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hlotune.deploy.bench import Prepared
from hlotune.deploy.long_calls import rounds_in
from hlotune.measure.timing.comparison import ratio
from hlotune.search.budget.budget import CLOSING_SHARE, PROVING_SHARE
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.comparing import ANY, AS_DEFAULT, Expected, Within
from hlotune.search.finals.whole_program import WholeProgram, unproven
from hlotune.search.progress import Event, Finished, KernelSkipped
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired, Whole
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.costly_device import Device, several
from tests.support.sessions import FakeProgram, run

COMPILE_S = 4.0


@dataclass
class LongProgram(FakeProgram):
    """A program of long calls on the device's clock, closed by the rules of real ones."""

    default_call_s: float = 10.0
    tuned_call_s: float = 7.0
    sets: int = 1
    checking_s: float = 0.0
    is_long: bool = True
    closed_from_s: float = 0.0
    made: list[int] = field(default_factory=list)
    """The calls behind the checks: 0 of the default, 1 of the tuned program."""

    def prepare(self, oracle_limit_s: float) -> None:
        super().prepare(oracle_limit_s)
        self._take(COMPILE_S + self.default_call_s)

    def due_s(
        self, timing_s: float, expected: Expected = AS_DEFAULT, within: Within = ANY
    ) -> float:
        nothing: Any = None
        whole = WholeProgram(nothing, nothing, "standard", nothing, "model")
        whole._work = frozenset([((), 0)])
        if self.oracle_limits_s:
            whole._ready = Prepared(
                program=nothing, default=nothing, inputs=nothing, judges=(nothing,) * self.sets,
                compile_s=COMPILE_S + self.default_call_s, call_s=self.default_call_s,
                is_sample=True, checking_s=self.checking_s,
            )  # fmt: skip
        return whole.due_s(timing_s, expected, within)

    def compare(
        self,
        limit_s: float,
        oracle_limit_s: float | None = None,
        also: Mapping[str, Final] = MappingProxyType({}),
        left_s: Callable[[], float] | None = None,
    ) -> Whole | None:
        self._take(COMPILE_S + self.sets * self.tuned_call_s + self.checking_s)
        both_s = self.default_call_s, self.tuned_call_s

        def sample(side: int) -> float:
            self.made.append(side)
            self._take(both_s[side])
            return both_s[side]

        assert left_s is not None
        sides = rounds_in(left_s, sample, both_s, both_s)
        found = ratio(*sides)
        paired = Paired.of(*sides, found) if isfinite(found.high) else None
        why = unproven(*sides, checked_s=COMPILE_S + self.tuned_call_s + self.checking_s)
        return Whole(paired=paired, error=None, default_error=None, unproven=why)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def tuned(
    database: Database, whole: LongProgram, budget_s: float, events: list[Event], kernels: int = 4
) -> tuple[TuneResult, Device]:
    tasks = several(kernels)
    each_s = (whole.default_call_s - whole.tuned_call_s) / kernels
    device = Device(tasks, {t.label: each_s for t in tasks})
    whole.device = device
    limits = Limits(seconds=budget_s)
    return run(database, tasks, device, limits=limits, whole=whole, events=events), device


@pytest.mark.parametrize("budget_s", [90.0, 180.0])
@pytest.mark.parametrize(("default_s", "tuned_s"), [(2.0, 1.2), (10.0, 7.0), (10.0, 2.0)])
def test_a_run_over_long_calls_keeps_its_budget(
    default_s: float, tuned_s: float, budget_s: float, database: Database
) -> None:
    whole = LongProgram(default_call_s=default_s, tuned_call_s=tuned_s)
    result, device = tuned(database, whole, budget_s, [])
    assert device.now() <= budget_s + tuned_s
    assert not result.overrun
    assert len(result.won) >= 1


def test_where_three_rounds_do_not_fit_the_result_says_so_and_claims_no_gain(
    database: Database,
) -> None:
    events = list[Event]()
    whole = LongProgram(default_call_s=10.0, tuned_call_s=7.0)
    result, _ = tuned(database, whole, 90.0, events)
    assert result.speedup is None and result.won
    assert "in one round behind 11 s of compiling and checking, too few to" in result.unproven
    assert [e.unproven for e in events if isinstance(e, Finished)] == [result.unproven]
    text = render(report(database, result.run), color=False).replace("\n", " ")
    assert "whole program: default 10.00 s, tuned 7.00 s" in text


def test_where_they_fit_a_gain_is_proven_as_ever(database: Database) -> None:
    whole = LongProgram(default_call_s=2.0, tuned_call_s=1.2)
    result, _ = tuned(database, whole, 150.0, [])
    assert result.speedup == pytest.approx(2.0 / 1.2)
    assert (result.speedup_low or 0.0) > 1 and not result.unproven


@pytest.mark.parametrize("checking_s", [10.0, 25.0])
def test_checks_that_take_longer_than_calls_leave_time_for_three_rounds(
    checking_s: float, database: Database
) -> None:
    whole = LongProgram(default_call_s=1.3, tuned_call_s=0.6, checking_s=checking_s)
    result, device = tuned(database, whole, 100.0, [], kernels=40)
    assert (result.speedup_low or 0.0) > 1 and not result.unproven
    assert len(result.won) >= 1
    assert device.now() <= 1.05 * 100.0


@pytest.mark.parametrize(
    ("default_s", "tuned_s", "budget_s"), [(3.8, 1.9, 120.0), (10.0, 6.5, 240.0)]
)
def test_three_rounds_prove_a_gain_of_a_program_whose_four_do_not_fit(
    default_s: float, tuned_s: float, budget_s: float, database: Database
) -> None:
    whole = LongProgram(default_call_s=default_s, tuned_call_s=tuned_s)
    result, device = tuned(database, whole, budget_s, [])
    assert (result.speedup_low or 0.0) > 1 and not result.unproven
    assert device.now() <= 1.05 * budget_s


def test_closing_takes_a_quarter_of_the_seconds_and_more_only_to_prove_something() -> None:
    whole = LongProgram(default_call_s=10.0, tuned_call_s=7.0, oracle_limits_s=[1.0])
    expected, least_s = Expected(saved_s=3.0 / 0.9), COMPILE_S + 7.0

    def due_s(budget_s: float) -> float:
        within = Within(CLOSING_SHARE * budget_s, PROVING_SHARE * budget_s)
        return whole.due_s(5.0, expected, within)

    assert whole.due_s(5.0, expected) == pytest.approx(least_s + 3 * 17.0)
    assert due_s(180.0) == pytest.approx(least_s + 51.0)
    assert due_s(120.0) == pytest.approx(least_s + 17.0)
    assert due_s(60.0) == pytest.approx(least_s)


def test_finals_that_have_no_time_before_the_program_is_checked_are_left_out_and_said(
    database: Database,
) -> None:
    events = list[Event]()
    tasks = several(8)
    whole = LongProgram(default_call_s=10.0, tuned_call_s=7.0)
    device = Device(tasks, {t.label: 0.1 for t in tasks}, slower=6.0)
    whole.device = device
    result = run(database, tasks, device, limits=Limits(seconds=120.0), whole=whole, events=events)
    assert device.now() <= 120.0 + 10.0
    late = [e.label for e in events if isinstance(e, KernelSkipped) and "no time" in e.reason]
    assert late and set(late).isdisjoint(k.label for k in result.won)
