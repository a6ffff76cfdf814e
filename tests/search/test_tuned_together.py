"""How a run ends where a program gains too little with the kernels that won alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.closing import Closing
from hlotune.search.finals.forms import FEW, Compared
from hlotune.search.finals.judged import judged
from hlotune.search.progress import Event, FormTried, KernelSkipped
from hlotune.search.result import TuneResult
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision, own_final, tuned_together
from hlotune.tuning_logs.finals import Final, Paired, Whole
from tests.support.sessions import (
    PROGRAM,
    UNDER,
    WHOLE,
    FakeDevice,
    FakeProgram,
    run,
    started,
    task,
    two,
)

SLOWER = replace(
    WHOLE,
    paired=Paired(default_s=(1.0,), tuned_s=(1.25,), speedup=0.8, low=0.7, high=0.9),
)
LITTLE = replace(WHOLE, paired=replace(WHOLE.paired, speedup=1.1, low=1.05, high=1.2))  # type: ignore[type-var]
SHORT = replace(LITTLE, falls_short=True)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


class Near(FakeDevice):
    """Finals of some kernels have a best candidate that takes so many times as long as the default,
    by label."""

    behind: ClassVar[dict[str, float]] = {}

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        staying: int | None = None,
    ) -> Comparison:
        found = super().compare(kernel, objects, pairs=pairs)
        behind = self.behind.get(self._task(kernel).label)
        if behind is None:
            return found
        best_s = min(c.time_s for c in found.candidates if isinstance(c, Measurement))
        default = Measurement(samples_s=(best_s / behind,) * pairs)
        return Comparison(default, found.candidates)


Faster = Callable[[Sequence[str], Sequence[str]], bool | Compared]


def ended(
    database: Database,
    alone: Whole | None,
    faster_with: Faster,
    *,
    together: Whole | None = WHOLE,
    behind: float = 1.1,
    conv_wins: bool = True,
    tasks: Sequence[Task] = (),
    events: list[Event] | None = None,
    places: Sequence[Any] = (),
    is_long: bool = False,
) -> TuneResult:
    """A run in which the best candidates of all kernels but `conv` take `behind` times as long as
    their defaults, and of that too where it does not win.

    `alone` is the comparison of the program with what won alone, `together` that with more.
    """
    tasks = tasks or two()
    device = Near(tasks)
    Near.behind = {t.label: behind for t in tasks if t.label != "conv" or not conv_wins}
    whole = FakeProgram(
        lambda: alone, with_undecided=lambda also: together, faster_with=faster_with,
        is_long=is_long,
    )  # fmt: skip
    return run(database, tasks, device, whole=whole, events=events, places=places)


def always(base: Sequence[str], more: Sequence[str]) -> bool:
    return True


def never(base: Sequence[str], more: Sequence[str]) -> bool:
    return False


def with_all(base: Mapping[str, Final], more: Mapping[str, Final], confidence: float) -> Compared:
    return Compared(is_faster=True, standing=frozenset({*base, *more}))


def algorithms(database: Database, result: TuneResult, program: str | None) -> list[str]:
    found = (decision(database, k.key, program=program, **UNDER) for k in result.kernels)
    return [d.schedule.algorithm for d in found]


def taking(tuned_s: float) -> Whole:
    """A program that gains what its kernels promise and takes so long with what won alone."""
    paired = Paired(default_s=(2 * tuned_s,), tuned_s=(tuned_s,), speedup=2.0, low=1.9, high=2.1)
    return replace(WHOLE, paired=paired)


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


def kept_later(database: Database, result: TuneResult, program: str) -> None:
    """A later run of a program, which finds that the second kernel keeps its default."""
    key = result.kernels[1].key
    stands = own_final(database, result.run, key)
    assert stands is not None
    slower = replace(stands.paired, speedup=0.5, low=0.45, high=0.55)
    identity = replace(PROGRAM, key=program)
    later = started(database, two(), Limits(trials=1), seed=1, program=identity)
    kept = replace(stands, outcome="kept default", paired=slower)
    database.record_final(later, database.kernel(key), kept)


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


@pytest.mark.parametrize(
    ("behind", "tuned_s", "is_taken"),
    [(3.0, 1.0, True), (3.0, 1e-3, False), (1.2, 1e-3, True)],
    ids=["the program takes far more than its kernels alone", "it does not", "close"],
)
def test_a_kernel_that_loses_alone_is_tried_where_it_may_take_what_no_kernel_alone_explains(
    database: Database, behind: float, tuned_s: float, is_taken: bool
) -> None:
    result = ended(database, taking(tuned_s), always, behind=behind)
    assert [k.won for k in result.kernels] == [True, is_taken]


def test_a_program_whose_time_its_kernels_explain_is_not_compared_again(
    database: Database,
) -> None:
    events = list[Event]()
    first = ended(database, taking(1.0), never)
    (conv, dense) = first.kernels
    mostly_conv = replace(first, kernels=(replace(conv, weight=100.0), dense))
    own_s = sum(k.weight * k.tuned_s for k in mostly_conv.kernels)
    closing = Closing(
        database=database, run=first.run, numerics="standard", under=UNDER, tell=events.append
    )
    verdict = closing.verdict(mostly_conv, lambda also: taking(own_s), with_all)
    assert not events and not verdict.together


def test_a_single_kernel_that_lost_alone_is_tried_in_its_program(database: Database) -> None:
    """Alone the default may find memory and threads as it does in no call of the program."""
    tasks = two()[1:]
    result = ended(database, None, always, behind=1.15, tasks=tasks)
    assert [k.won for k in result.kernels] == [True] and result.speedup == 2.0
    other = ended(database, None, never, behind=1.15, tasks=[task("other", 7)])
    assert not other.won and other.speedup is None


def test_of_many_kernels_that_promise_little_nothing_is_compared(database: Database) -> None:
    tried: list[Sequence[str]] = []

    def faster_with(base: Sequence[str], more: Sequence[str]) -> bool:
        tried.append(more)
        return True

    many = [task(f"k{n}", n) for n in range(FEW + 1)]
    result = ended(database, None, faster_with, behind=1.01, tasks=many)
    assert not tried and not result.won


@pytest.mark.parametrize(("behind", "tried"), [(1.8, True), (2.2, False)])
def test_kernels_of_unrolled_loops_are_tried_in_the_program_where_xla_is_ahead_of_them_alone(
    database: Database, behind: float, tried: bool
) -> None:
    result = ended(database, None, never, behind=behind, conv_wins=False)
    assert not result.won
    closing = Closing(
        database=database, run=result.run, numerics="standard", under=UNDER, is_unrolled=True
    )
    verdict = closing.verdict(result, lambda also: WHOLE if also else None, with_all)
    assert bool(verdict.together) == tried


def sharing(*tasks: Task) -> list[Any]:
    """Sites of kernels that all have an operation in common, the largest first."""
    return [
        SimpleNamespace(
            kernel=t.kernel, path=(), ops=frozenset(range(len(tasks) - n)), weight=1.0,
            pattern="rows",
        )
        for n, t in enumerate(tasks)
    ]  # fmt: skip


@pytest.mark.parametrize("is_faster", [True, False])
def test_all_kernels_of_the_main_kind_are_tried_once_before_the_default_is_compared(
    is_faster: bool, database: Database
) -> None:
    """Also in a program that is proven faster as much as its kernels promise."""
    places: list[Any] = [
        SimpleNamespace(
            kernel=t.kernel, path=(), ops=frozenset([n]), weight=1.0, pattern="contraction"
        )
        for n, t in enumerate(two())
    ]  # fmt: skip
    events = list[Event]()
    alone, together = (SLOWER, WHOLE) if is_faster else (WHOLE, SLOWER)
    result = ended(
        database, alone, lambda base, more: is_faster, together=together, events=events,
        places=places,
    )  # fmt: skip
    assert [e for e in events if isinstance(e, FormTried)] == [
        FormTried(labels=("dense",), is_faster=is_faster)
    ]
    assert [k.won for k in result.kernels] == [True, is_faster]
    assert result.speedup == 2.0


def test_of_kernels_that_share_operations_one_alone_is_tried_and_tuned_together(
    database: Database,
) -> None:
    tried: list[Sequence[str]] = []

    def faster_with(base: Sequence[str], more: Sequence[str]) -> bool:
        tried.append(tuple(more))
        return True

    large, small = task("dot+bias+tanh", 4), task("dot", 7)
    result = ended(database, None, faster_with, tasks=[large, small], places=sharing(large, small))
    assert tried == [(large.kernel.key,)]
    assert [k.won for k in result.kernels] == [True, False]
    here = algorithms(database, result, PROGRAM.key)
    assert here[0] != XLA and here[1] == XLA


def test_a_champion_that_does_not_stand_in_the_faster_form_is_not_tuned_together(
    database: Database,
) -> None:
    tasks = [task("stands", 4), task("cannot be built", 7)]

    def faster_with(base: Sequence[str], more: Sequence[str]) -> Compared:
        return Compared(is_faster=True, standing=frozenset({tasks[0].kernel.key}))

    result = ended(database, None, faster_with, tasks=tasks)
    assert [k.won for k in result.kernels] == [True, False]
    assert algorithms(database, result, PROGRAM.key)[1] == XLA


def test_a_program_of_long_calls_is_tried_in_one_form(database: Database) -> None:
    tried: list[Sequence[str]] = []

    def faster_with(base: Sequence[str], more: Sequence[str]) -> bool:
        tried.append(more)
        return False

    ended(database, None, faster_with, tasks=[task("a", 4), task("b", 7)], is_long=True)
    assert len(tried) == 1


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
