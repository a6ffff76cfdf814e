"""Which kernels that did not win alone are tried in the program, and in how many forms."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.schedules.steps.schedule import XLA
from hlotune.search.finals.closing import Closing
from hlotune.search.finals.forms import FEW, Compared
from hlotune.search.progress import Event, FormTried
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from tests.support.ended_runs import (
    SLOWER,
    algorithms,
    always,
    ended,
    never,
    taking,
    with_all,
)
from tests.support.sessions import PROGRAM, UNDER, WHOLE, task, two


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


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
