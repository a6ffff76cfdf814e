"""Seconds that are put by for comparing a form of the program, and what becomes of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Measurement
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.reserve import Reserve
from hlotune.search.finals.comparing import AS_DEFAULT, Expected
from hlotune.search.finals.form_costs import FormCosts
from hlotune.search.progress import Event, FormTried
from hlotune.search.tuner import Took
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from tests.support.costly_device import SLOW, Device, contest, products, several
from tests.support.sessions import WHOLE, FakeProgram, run, task

FORM_S = 2.0
"""One form of a program beside another one: compiled and checked in one, timed in one."""


SHORT = FakeProgram(comparing_s=1.0, timing_s=1.0)


def reserve_of(
    budget_s: float | None, whole: FakeProgram = SHORT, *, is_unrolled: bool = False
) -> Reserve:
    contests = [contest(n, Took()) for n in range(2)]
    places = products(*(c.task for c in contests))
    return Reserve(contests, budget_s, whole, places=places, is_unrolled=is_unrolled)


def final(speedup: float) -> Final:
    paired = Paired(default_s=(2.0,), tuned_s=(1.0,), speedup=speedup, low=speedup, high=3.0)
    return Final(
        schedule=Schedule("direct"), numerics="strict", paired=paired, margin=0.1,
        outcome="tuned" if speedup > 1 else "kept default",
    )  # fmt: skip


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def test_the_seconds_of_one_form_of_the_program_are_put_by() -> None:
    with_form, without = reserve_of(60.0), reserve_of(10.0)
    assert with_form.put_by_s == pytest.approx(FORM_S)
    assert without.put_by_s == 0.0, "it takes more than an eighth of the budget"
    assert with_form.all_s - with_form.whole_s(0.03 * 60.0, 0.0) == pytest.approx(
        without.all_s - without.whole_s(0.03 * 10.0, 0.0) + FORM_S
    )


def test_no_form_is_put_by_where_calls_are_long_or_no_seconds_are_limited() -> None:
    assert reserve_of(60.0, replace(SHORT, is_long=True)).put_by_s == 0.0
    assert reserve_of(None).put_by_s == 0.0


def test_no_form_is_put_by_for_kernels_that_won_or_are_far_behind() -> None:
    reserve = reserve_of(60.0)
    first, second = reserve.contests
    reserve.note(first, final(1.9))
    assert reserve.put_by_s > 0, "the second has no final"
    reserve.note(second, final(0.9))
    assert reserve.put_by_s > 0, "the second may be faster in the program"
    for is_settled in final(1.1), final(0.5), None:
        reserve.note(second, is_settled)
        assert reserve.put_by_s == 0.0


def test_no_form_is_put_by_where_no_kernel_of_the_main_kind_can_win() -> None:
    reserve = reserve_of(60.0)
    first, second = reserve.contests
    reserve.note(first, final(0.9))
    assert reserve.put_by_s > 0, "the second may win"
    reserve.note(second, final(0.9))
    assert reserve.put_by_s == 0.0, "none is ours beside which XLA's would be in the way"


def test_what_wins_or_loses_alone_leaves_nothing_to_mix() -> None:
    reserve = reserve_of(60.0)
    first, _ = reserve.contests
    reserve.note(first, final(0.5))
    assert reserve.put_by_s == 0.0, "the first stays with XLA, whatever becomes of the second"


def test_kernels_of_unrolled_loops_are_far_behind_later() -> None:
    for is_unrolled in (False, True):
        reserve = reserve_of(60.0, is_unrolled=is_unrolled)
        first, second = reserve.contests
        reserve.note(first, final(1.9))
        reserve.note(second, final(0.6))
        assert (reserve.put_by_s > 0) is is_unrolled


def test_no_form_is_put_by_for_kernels_that_take_little_time_or_are_of_another_kind() -> None:
    reserve = reserve_of(60.0)
    places = reserve.places
    assert replace(reserve, places=()).put_by_s == 0.0
    assert replace(reserve, places=places[:1]).put_by_s == 0.0
    often, seldom = reserve.contests
    often = replace(often, task=replace(often.task, weight=20.0))
    reserve = replace(reserve, contests=[often, seldom])
    assert reserve.put_by_s > 0
    reserve.note(often, None)
    assert reserve.put_by_s == 0.0


def test_a_form_that_leaves_a_kernel_to_xla_is_expected_to_compile_its_operations() -> None:
    class Compiled(FakeProgram):
        """XLA takes three seconds for each operation that is left to it."""

        def form_costs(self, confidence: float, expected: Expected = AS_DEFAULT) -> FormCosts:
            return FormCosts(3.0 * (2 - len(expected.replaced)), 1.0, 1.0)

    reserve = reserve_of(60.0, Compiled())
    first, second = reserve.contests
    fast: Any = SimpleNamespace(**{**vars(first.tuner), "best_s": 0.5e-3})
    reserve.contests = [replace(c, tuner=fast) for c in (first, second)]
    reserve.compared_s = 1.0
    key, more = second.task.kernel.key, final(0.9)
    assert reserve.form_costs(0.95).checking_s == 0.0
    left = replace(more, schedule=DEFAULT)
    assert reserve.form_costs(0.95, {key: left}).checking_s == 3.0
    assert reserve.form_timing_s(0.95, 56.0, {key: more}) == 1.0
    assert reserve.form_timing_s(0.95, 56.0, {key: left}) is None, "four seconds are due"
    reserve.note(second, more)
    assert reserve.form_costs(0.95).checking_s == 1.0, "no more than all of it took"
    assert reserve.form_costs(0.95, {key: more}).checking_s == 0.0


MIXED = (task("conv0", 0), task("conv1", 1), task("conv2", 2, weight=5.0))


class Level(Device):
    """Champions of the last kernel are level with its default."""

    def compare(self, kernel: Kernel, *arguments: Any, **named: Any) -> Comparison:
        found = super().compare(kernel, *arguments, **named)
        if kernel != MIXED[-1].kernel:
            return found
        best = min((c for c in found.candidates if isinstance(c, Measurement)), key=time_of)
        return replace(found, default=replace(found.default, samples_s=best.samples_s))


def time_of(measured: Measurement) -> float:
    return measured.time_s


def test_a_run_of_seconds_has_time_to_compare_a_form_of_its_program(database: Database) -> None:
    events, device = list[Event](), Level(MIXED, SLOW)
    whole = FakeProgram(
        device=device, comparing_s=1.0, timing_s=1.0, with_undecided=lambda also: WHOLE,
        faster_with=lambda base, more: True,
    )  # fmt: skip
    result = run(
        database, MIXED, device, model=Trees(), limits=Limits(seconds=60.0), whole=whole,
        events=events, places=products(*MIXED),
    )  # fmt: skip
    assert FormTried(labels=("conv2",), is_faster=True) in events
    assert [k.won for k in result.kernels] == [True, True, True]
    assert device.now() <= 60.0


def test_a_form_is_given_as_long_as_it_takes_to_prove_something(database: Database) -> None:
    """Calls of a third of a second: seven pairs and the calls ahead of them take six seconds."""
    events, device = list[Event](), Level(MIXED, SLOW)
    whole = FakeProgram(device=device, comparing_s=1.0, timing_s=4.0, proving_s=6.0)
    run(
        database, MIXED, device, model=Trees(), limits=Limits(seconds=60.0), whole=whole,
        events=events, places=products(*MIXED),
    )  # fmt: skip
    assert FormTried(labels=("conv2",), is_faster=False) in events
    assert 0.8 * 60.0 < device.now() <= 60.0


@pytest.mark.parametrize("seconds", [40.0, 60.0, 80.0])
def test_no_form_is_compared_in_seconds_that_the_budget_does_not_have(
    seconds: float, database: Database
) -> None:
    class Slow(FakeProgram):
        """Takes longer than it is known to."""

        def due_s(self, *arguments: Any, **named: Any) -> float:
            return 0.9 * super().due_s(*arguments, **named)

    tasks = several(3)
    device = Device(tasks, SLOW, slower=1.2)
    whole = Slow(
        device=device, comparing_s=3.0, timing_s=1.0, with_undecided=lambda also: WHOLE,
        faster_with=lambda base, more: True,
    )  # fmt: skip
    run(
        database, tasks, device, model=Trees(), limits=Limits(seconds=seconds), whole=whole,
        places=products(*tasks),
    )  # fmt: skip
    assert device.now() <= seconds
