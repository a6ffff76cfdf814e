"""What becomes of kernels that were tuned together in a program, whatever other programs find."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from hlotune.hlo.kernel import Kernel
from hlotune.measure.timing.comparison import Comparison
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.search.budget.limits import Limits
from hlotune.search.finals.closing import Closing
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Whole
from tests.support.ended_runs import SLOWER, algorithms, always, ended, kept_later
from tests.support.sessions import PROGRAM, UNDER, WHOLE, Lucky, Objects, run, two


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


@pytest.mark.parametrize("is_wrong", [True, False], ids=["wrong", "slower"])
def test_what_was_tuned_together_goes_back_in_its_program_whatever_others_found(
    database: Database, is_wrong: bool
) -> None:
    result = ended(database, SLOWER, always)
    kept_later(database, result, "another program")
    dense = result.kernels[1].key

    def compared(also: Mapping[str, Final]) -> Whole:
        if algorithms(database, result, PROGRAM.key)[1] == XLA:
            return WHOLE
        if is_wrong:
            raise WrongResult("expected 1, got 2", (dense,), ("dense0",))
        return replace(WHOLE, slower=(dense,))

    closing = Closing(database=database, run=result.run, numerics="standard", under=UNDER)
    verdict = closing.verdict(result, compared)
    assert (verdict.wrong, verdict.slower) == (((dense,), ()) if is_wrong else ((), (dense,)))
    assert verdict.whole == WHOLE


class Noting(Lucky):
    """Knows which schedules met the default."""

    met: ClassVar[list[Schedule]] = []

    def final(self, kernel: Kernel, objects: Objects, pairs: int) -> Comparison:
        self.met.extend(candidate.schedule for candidate, _ in objects)
        return super().final(kernel, objects, pairs)


@pytest.mark.parametrize("is_wrong", [True, False], ids=["wrong by itself", "right"])
def test_what_was_tuned_together_takes_part_in_later_finals_of_its_program(
    database: Database, is_wrong: bool
) -> None:
    result = ended(database, SLOWER, always)
    kept_later(database, result, "another program")
    stands = result.kernels[1].schedule
    assert stands is not None
    Noting.met = []
    tasks = two()
    device = Noting(tasks, wrong=is_wrong)
    run(database, tasks, device, limits=Limits(trials=32), seed=5, compare_whole=lambda: None)
    assert stands in Noting.met
    if is_wrong:
        assert algorithms(database, result, PROGRAM.key) == [XLA, XLA]
