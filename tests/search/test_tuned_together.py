"""How a run ends where a program gains too little with the kernels that won alone."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Failure, Measurement
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import XLA
from hlotune.search.finals.closing import Closing
from hlotune.search.progress import Event, KernelSkipped
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.decisions import decision
from hlotune.tuning_logs.finals import Final, Whole
from tests.support.sessions import PROGRAM, UNDER, WHOLE, FakeDevice, FakeProgram, run, two

SLOWER = replace(WHOLE, paired=replace(WHOLE.paired, speedup=0.8, low=0.7, high=0.9))  # type: ignore[type-var]
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
        self, kernel: Kernel, objects: Sequence[tuple[Candidate, Built | Failure]], *, pairs: int
    ) -> Comparison:
        found = super().compare(kernel, objects, pairs=pairs)
        behind = self.behind.get(self._task(kernel).label)
        if behind is None:
            return found
        best_s = min(c.time_s for c in found.candidates if isinstance(c, Measurement))
        default = Measurement(samples_s=(best_s / behind,) * pairs)
        return Comparison(default, found.candidates)


def ended(
    database: Database,
    alone: Whole | None,
    together: Callable[[Mapping[str, Final]], Whole | None],
    *,
    behind: float = 1.1,
    conv_wins: bool = True,
    events: list[Event] | None = None,
) -> TuneResult:
    """A run in which the best candidate of `dense` takes `behind` times as long as its default."""
    tasks = two()
    device = Near(tasks)
    Near.behind = {"dense": behind} if conv_wins else {"dense": behind, "conv": behind}
    whole = FakeProgram(lambda: alone, with_undecided=together)
    return run(database, tasks, device, whole=whole, events=events)


def algorithms(database: Database, result: TuneResult, program: str | None) -> list[str]:
    found = (decision(database, k.key, program=program, **UNDER) for k in result.kernels)
    return [d.schedule.algorithm for d in found]


@pytest.mark.parametrize("alone", [SLOWER, SHORT], ids=["slower", "gains too little"])
def test_all_kernels_are_ours_where_the_program_is_proven_faster_with_all(
    database: Database, alone: Whole
) -> None:
    result = ended(database, alone, lambda also: WHOLE)
    assert [k.won for k in result.kernels] == [True, True]
    assert result.speedup == 2.0
    assert XLA not in algorithms(database, result, PROGRAM.key)
    assert "tuned together" in result.report()


def test_what_was_tuned_together_is_for_that_program_alone(database: Database) -> None:
    result = ended(database, SLOWER, lambda also: WHOLE)
    conv, dense = algorithms(database, result, "another program")
    assert conv != XLA and dense == XLA
    reason = decision(database, result.kernels[1].key, **UNDER).reason
    assert reason.startswith("kept default: tuned together with the other kernels of one program")


@pytest.mark.parametrize(
    ("together", "speedup"), [(SLOWER, 0.8), (None, 0.8)], ids=["slower", "not compared"]
)
def test_everything_is_left_to_the_default_where_the_program_is_slower_with_all_too(
    database: Database, together: Whole | None, speedup: float
) -> None:
    result = ended(database, SLOWER, lambda also: together)
    assert not result.won and result.speedup == speedup
    assert algorithms(database, result, PROGRAM.key) == [XLA, XLA]


def test_a_program_that_is_no_faster_with_all_keeps_those_that_won_alone(
    database: Database,
) -> None:
    result = ended(database, SHORT, lambda also: SHORT)
    assert [k.won for k in result.kernels] == [True, False]
    assert result.speedup == 1.1


@pytest.mark.parametrize("is_blamed", [True, False], ids=["blamed", "none alone to blame"])
def test_undecided_champions_that_are_wrong_in_the_program_stay_out_which_is_said_and_recorded(
    database: Database, is_blamed: bool
) -> None:
    def wrong(also: Mapping[str, Final]) -> Whole | None:
        raise WrongResult("expected 1, got 2", tuple(also) if is_blamed else (), ("dense0",))

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


def test_champions_far_behind_their_defaults_are_not_tried(database: Database) -> None:
    tried: list[Mapping[str, Final]] = []
    result = ended(database, SLOWER, lambda also: tried.append(also), behind=1.3)
    assert not tried and not result.won


def test_a_program_that_gains_what_its_kernels_promise_is_not_compared_again(
    database: Database,
) -> None:
    tried: list[Mapping[str, Final]] = []
    result = ended(database, WHOLE, lambda also: tried.append(also))
    assert not tried and [k.won for k in result.kernels] == [True, False]


def test_where_nothing_won_and_little_is_promised_nothing_is_compared(database: Database) -> None:
    tried: list[Mapping[str, Final]] = []
    result = ended(database, None, lambda also: tried.append(also), behind=1.01, conv_wins=False)
    assert not tried and not result.won


@pytest.mark.parametrize(("behind", "tried"), [(1.8, True), (2.2, False)])
def test_kernels_of_unrolled_loops_are_tried_in_the_program_where_xla_is_ahead_of_them_alone(
    database: Database, behind: float, tried: bool
) -> None:
    result = ended(database, None, lambda also: None, behind=behind, conv_wins=False)
    assert not result.won
    closing = Closing(
        database=database, run=result.run, numerics="standard", under=UNDER, is_unrolled=True
    )
    verdict = closing.verdict(result, lambda also: WHOLE if also else None)
    assert bool(verdict.together) == tried
