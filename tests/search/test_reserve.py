"""Seconds that are put by for closing a run: measured, kept, and said where they were too few."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.codegen.built import Built
from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import CacheMode, Candidate, Failure, Measurement, Trial
from hlotune.measure.workers.runner import COMPARING_S
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.budget.budget import Limits
from hlotune.search.budget.closing_costs import (
    UNKNOWN_FINAL_S,
    Costs,
    final_s,
    finals_s,
)
from hlotune.search.budget.contest import Contest
from hlotune.search.budget.reserve import OUTSIDE_S, Reserve, costs
from hlotune.search.finals.finals import FEWEST_PAIRS, PAIRS
from hlotune.search.progress import Batch, Event, Finalising, Finished, FormTried
from hlotune.search.tasks import Task
from hlotune.search.tuner import Took
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.sessions import WHOLE, FakeDevice, FakeProgram, run, task

SLOW = {f"conv{n}": 10e-3 for n in range(18)}
"""Seconds of the defaults: every champion has hope."""
COSTS = Costs(default_s=0.4, build_s=0.1, first_s=0.6, slowest_s=0.5)


@dataclass
class Device(FakeDevice):
    """Takes the time of a real one: XLA compiles, the oracle answers, and all of it once more in
    the final of a kernel."""

    oracle_s: float = 1.0
    compile_s: float = 0.4
    slower: float = 1.0
    """How much longer finals take than what came before lets expect."""
    agree: int = 16
    """After so many rounds a comparison ends, as each has the same order."""
    pairs: list[int] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def build(self, candidates: Sequence[Candidate]) -> list[Built | Failure]:
        self.elapsed_s += 0.4 * len(candidates)
        return super().build(candidates)

    def measure(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        if kernel.key not in self._seen:
            self._seen.add(kernel.key)
            self.elapsed_s += self.oracle_s
        return super().measure(kernel, objects, cache=cache, limit_s=limit_s)

    def default(self, kernel: Kernel) -> Measurement:
        self.elapsed_s += self.compile_s
        return super().default(kernel)

    def compare(
        self, kernel: Kernel, objects: Sequence[tuple[Candidate, Built | Failure]], *, pairs: int
    ) -> Comparison:
        self.pairs.append(pairs)
        rounds = min(pairs, self.agree)
        self.elapsed_s += self.slower * (1.4 * self.oracle_s + 0.025 * rounds)
        return super().compare(kernel, objects, pairs=pairs)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def several(count: int) -> tuple[Task, ...]:
    return tuple(task(f"conv{n}", n) for n in range(count))


@pytest.mark.parametrize("slower", [0.6, 1.0, 1.3])
@pytest.mark.parametrize(("kernels", "budget_s"), [(3, 60.0), (5, 60.0), (8, 90.0), (18, 240.0)])
def test_a_budget_is_kept_and_used_with_all_that_closes_a_run(
    kernels: int, budget_s: float, slower: float, database: Database
) -> None:
    tasks, events = several(kernels), list[Event]()
    device = Device(tasks, SLOW, slower=slower)
    whole = FakeProgram(device=device, preparing_s=6.0, comparing_s=3.0, timing_s=2.0)
    limits = Limits(seconds=budget_s)
    result = run(database, tasks, device, model=Trees(), limits=limits, whole=whole, events=events)
    tried = any(isinstance(event, FormTried) for event in events)
    with_faster_s = whole.due_s(0.0) if tried else 0.0  # no form was faster
    assert 0.93 * budget_s < device.now() + with_faster_s
    assert device.now() <= budget_s
    assert not result.overrun
    assert len(device.pairs) == kernels
    assert max(device.pairs) <= PAIRS
    assert slower > 1 or min(device.pairs) > FEWEST_PAIRS
    assert whole.oracle_limits_s == [0.2 * budget_s]


def test_what_finals_turn_out_not_to_need_is_searched_by_those_that_wait(
    database: Database,
) -> None:
    class Telling(Device):
        """Says in which order trials and finals came, a word each."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            told.append(("trial", kernel))
            return super().measure(kernel, *arguments, **named)

        def compare(self, kernel: Kernel, *arguments: Any, **named: Any) -> Comparison:
            told.append(("final", kernel))
            return super().compare(kernel, *arguments, **named)

    told = list[tuple[str, Kernel]]()
    tasks, events = (*several(7), task("conv7", 7, weight=20.0)), list[Event]()
    device = Telling(tasks, SLOW, slower=0.6)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=90.0), events=events)
    begun = next(n for n, event in enumerate(events) if isinstance(event, Finalising))
    batches = [e for e in events[begun:] if isinstance(e, Batch)]
    assert batches
    assert batches[-1].trials == result.trials
    finals = [kernel for word, kernel in told if word == "final"]
    assert finals[0] == tasks[-1].kernel
    for kernel in finals:
        assert ("trial", kernel) not in told[told.index(("final", kernel)) :]


def test_ctrl_c_while_what_was_left_is_searched_ends_the_run_with_short_finals(
    database: Database,
) -> None:
    class Stopped(Device):
        begun = 0
        """Finals that had begun when Ctrl-C came."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            if self.pairs and not self.begun:
                self.begun = len(self.pairs)
                raise KeyboardInterrupt
            return super().measure(kernel, *arguments, **named)

    tasks = several(8)
    device = Stopped(tasks, SLOW, slower=0.6)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=90.0))
    assert result.interrupted
    assert result.speedup is None
    assert len(result.won) == len(device.pairs) == 8
    assert 0 < device.begun < 8
    assert set(device.pairs[device.begun :]) == {FEWEST_PAIRS}


def test_finals_that_take_longer_than_expected_have_fewer_pairs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hlotune.search.budget.reserve.CLEARLY", inf)  # none ends early
    tasks = several(8)
    device = Device(tasks, SLOW, slower=1.4, agree=PAIRS)
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=120.0))
    assert device.now() <= 1.05 * 120.0
    assert not result.overrun
    assert device.pairs[0] > device.pairs[-1] >= FEWEST_PAIRS


def test_a_kernel_without_a_batch_is_expected_to_take_the_same_before_and_after_its_final() -> None:
    had = Took(build_s=0.05, trials_s=[0.1, 0.1 / 3, 0.1 / 3])
    contests = [contest(n, Took() if n < 3 else had) for n in range(10)]
    final_s = 0.55  # of each, with 20 pairs
    reserve = Reserve(contests, 10 * final_s + OUTSIDE_S + 0.01, FakeProgram())
    assert reserve.pairs(contests, 0.0, hurried=False) == 20
    reserve.learn(contests[0], 20, final_s)
    assert reserve.pairs(contests[1:], final_s, hurried=False) == 20
    reserve.learn(contests[1], 20, 1.5 * final_s)
    assert reserve.pairs(contests[2:], 2.5 * final_s, hurried=False) < 20


def contest(n: int, took: Took, usable: int = 3) -> Contest:
    """The contest of a kernel whose search came to something."""
    tuner: Any = SimpleNamespace(
        took=took, best_s=1e-3, usable=usable, near=lambda times: usable,
        first_candidate=lambda: None,
    )  # fmt: skip
    return Contest(task(f"conv{n}", n), tuner, default_s=1e-3, known_trials=0, timing_s=0.1)


FORM_S = 2.0
"""One form of a program beside another one: compiled and checked in one, timed in one."""
SHORT = FakeProgram(comparing_s=1.0, timing_s=1.0)


def products(*tasks: Task) -> list[Any]:
    """The sites of kernels that are all products."""
    return [
        SimpleNamespace(
            kernel=t.kernel, path=(), ops=frozenset([n]), weight=1.0, pattern="contraction"
        )
        for n, t in enumerate(tasks)
    ]  # fmt: skip


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


def test_a_first_batch_of_slow_trials_leaves_the_others_theirs(database: Database) -> None:
    class Lagging(Device):
        """Trials of one kernel take three seconds."""

        def measure(self, kernel: Kernel, *arguments: Any, **named: Any) -> list[Trial]:
            self.elapsed_s += 3.0 if kernel == tasks[0].kernel else 0.0
            return super().measure(kernel, *arguments, **named)

    tasks = several(3)
    device = Lagging(tasks, {"conv0": 2.0, "conv1": 1.0, "conv2": 1.0})
    result = run(database, tasks, device, model=Trees(), limits=Limits(seconds=60.0))
    assert min(k.trials for k in result.kernels) >= 1
    assert len(device.pairs) >= 3


def test_a_run_that_misses_its_budget_says_by_how_much_and_where(database: Database) -> None:
    tasks, events = several(8), list[Event]()
    device = Device(tasks, SLOW, slower=4.0)
    result = run(
        database, tasks, device, model=Trees(), limits=Limits(seconds=120.0), events=events
    )
    assert len(device.pairs) == 8  # nothing is left out
    over_s = device.now() - 120.0
    assert over_s > 6.0
    assert result.overrun.startswith(
        f"{over_s:.1f} s over the budget of 120 s: comparing champions"
    )
    assert [e.overrun for e in events if isinstance(e, Finished)] == [result.overrun]
    assert result.overrun in render(report(database, result.run), color=False).replace("\n", " ")


def test_where_trials_are_limited_nothing_is_prepared_and_nothing_is_over(
    database: Database,
) -> None:
    tasks = several(2)
    whole = FakeProgram()
    result = run(
        database, tasks, Device(tasks, SLOW), model=Trees(), limits=Limits(trials=16), whole=whole
    )
    assert (whole.oracle_limits_s, result.overrun) == ([], "")


def test_a_batch_ends_where_only_the_time_for_closing_is_left(database: Database) -> None:
    """Trials become twenty times as long at second 40."""

    class Slowing(Device):
        def measure(
            self,
            kernel: Kernel,
            objects: Sequence[tuple[Candidate, Built | Failure]],
            *,
            cache: CacheMode = "model",
            limit_s: float | None = None,
        ) -> list[Trial]:
            self.elapsed_s += 1.0 if self.elapsed_s > 40.0 else 0.0
            return super().measure(kernel, objects, cache=cache, limit_s=limit_s)

    tasks = several(3)
    device = Slowing(tasks, SLOW)
    run(database, tasks, device, model=Trees(), limits=Limits(seconds=60.0))
    assert device.now() <= 1.05 * 60.0


def test_a_final_is_expected_to_take_what_its_parts_took() -> None:
    assert final_s(COSTS, 0) == pytest.approx(3 * 0.1 + 1.5 * (0.6 + 0.5) + 0.4)
    assert final_s(COSTS, 30) == pytest.approx(2.35 + 1.5 * 0.4)
    assert final_s(replace(COSTS, entrants=1), 0) == pytest.approx(2.15)
    assert final_s(Costs(default_s=0.4), 30) is None


def test_calls_longer_than_what_a_sample_takes_anyway_are_expected_to_take_their_time() -> None:
    short, long = replace(COSTS, call_s=1e-3), replace(COSTS, call_s=25e-3)
    assert final_s(short, 30) == final_s(COSTS, 30)
    assert (final_s(long, 30) or 0.0) - (final_s(COSTS, 30) or 0.0) == pytest.approx(
        30 * 4 * (25e-3 - 0.4 / 80)
    )


def test_a_comparison_is_expected_to_end_where_the_runner_ends_it() -> None:
    minutes = replace(COSTS, call_s=0.9, is_seldom=False)
    assert final_s(minutes, 30) == pytest.approx((final_s(COSTS, 0) or 0.0) + COMPARING_S)


def test_a_default_of_seconds_is_expected_to_be_called_twice() -> None:
    """Its better form is known, and candidates many times as fast need no further call of it."""
    slow = final_s(replace(COSTS, call_s=3.0), 30)
    slower = final_s(replace(COSTS, call_s=5.0), 30)
    assert slow is not None and slower is not None
    assert slower - slow == pytest.approx(2 * (5.0 - 3.0))


def test_a_heat_is_expected_to_build_its_crowd_once_and_measure_it_twice() -> None:
    some = replace(COSTS, usual_s=0.2)
    assert final_s(some, 0) == pytest.approx(2.35)
    assert final_s(replace(some, crowd=8), 0) == pytest.approx(2.35 + 8 * (0.1 + 2 * 0.2))


def test_another_final_is_expected_to_take_by_half_longer_than_the_first_candidate_s() -> None:
    alone = Took(build_s=0.1, alone_s=0.8)
    searched = Took(build_s=0.1, trials_s=[1.0, 0.5, 0.5])
    contests = [contest(0, alone, usable=1), contest(1, searched, usable=128)]
    reserve = Reserve(contests, 60.0, SHORT)
    assert reserve.another_s(contests[0]) == pytest.approx(3 * 0.1 + 1.5 * 0.8)
    assert reserve.another_s(contests[1]) > 16 * 2 * 0.5, "it has a heat"
    reserve.learn(contests[0], FEWEST_PAIRS, 2 * (0.1 + 1.5 * 0.8))
    assert reserve.another_s(contests[0]) == pytest.approx(2 * (3 * 0.1 + 1.5 * 0.8))


def test_where_pairs_are_fewest_no_heat_is_expected() -> None:
    had = contest(0, Took(build_s=0.1, trials_s=[0.6, 0.2, 0.2]), usable=64)
    assert costs(had, FEWEST_PAIRS + 1).crowd == 8
    assert costs(had, FEWEST_PAIRS).crowd == 0


def test_kernels_without_a_batch_take_what_others_take() -> None:
    assert finals_s([Costs(), Costs()], 9) == [UNKNOWN_FINAL_S] * 2
    known = final_s(COSTS, 9)
    assert known is not None
    assert finals_s([COSTS, Costs(default_s=0.2)], 9) == pytest.approx([known, known])


def test_a_run_that_goes_on_expects_the_default_to_take_what_the_oracle_took() -> None:
    assert final_s(replace(COSTS, default_s=None), 0) == pytest.approx(2.35 - 0.4 + 0.6)
