"""Whole runs over real kernels without hardware: budgets by the device's clock, and resuming."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hlotune.codegen.built import Built
from hlotune.costmodel.trees import Trees
from hlotune.hlo.kernel import Kernel
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.trial import CacheMode, Candidate, Failure, Trial
from hlotune.search.budget.budget import SMALLEST
from hlotune.search.budget.limits import Limits
from hlotune.search.progress import Batch, Event
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from tests.support.computes import gemm
from tests.support.sessions import TARGET, UNDER, run

SLOW_S = 0.8
"""The time of a build: few trials fill a budget, so that the tests are quick."""


@dataclass
class Interrupted(SimulatedDevice):
    """Ctrl-C comes at one of the trials."""

    at: int = 40

    def measure(
        self,
        kernel: Kernel,
        objects: "list[tuple[Candidate, Built | Failure]]",  # type: ignore[override]
        *,
        cache: CacheMode = "model",
        limit_s: float | None = None,
    ) -> list[Trial]:
        if self.trials >= self.at:
            raise KeyboardInterrupt
        return super().measure(kernel, objects, cache=cache, limit_s=limit_s)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def task(label: str, m: int, n: int, k: int, weight: float) -> Task:
    case = gemm(m, n, k)
    return Task(case.kernel, label, weight, case.compute, case.space(TARGET))


def tasks() -> tuple[Task, Task]:
    return task("small", 64, 64, 64, 1), task("large", 256, 256, 128, 2)


def times(database: Database, of: tuple[Task, ...]) -> list[list[float | None]]:
    return [[t.time_s for t in database.trials(x.kernel.key, **UNDER)] for x in of]


@pytest.mark.parametrize("budget_s", [40.0, pytest.param(80.0, marks=pytest.mark.slow)])
def test_a_budget_in_seconds_is_kept_and_spent(budget_s: float, database: Database) -> None:
    device, events = SimulatedDevice(TARGET, build_s=SLOW_S), list[Event]()
    run(database, tasks(), device, limits=Limits(seconds=budget_s), events=events, model=Trees())
    batches = [e for e in events if isinstance(e, Batch)]
    remaining_s = batches[-1].remaining_s
    assert remaining_s < SMALLEST * 1.05 * SLOW_S  # no room for more
    assert 0.94 * budget_s < device.now() <= 1.05 * budget_s
    assert {e.label for e in batches} == {"small", "large"}


@pytest.mark.slow
def test_more_of_the_budget_goes_where_the_program_spends_its_time(database: Database) -> None:
    device = SimulatedDevice(TARGET, build_s=SLOW_S)
    small, large = run(database, tasks(), device, limits=Limits(seconds=90), model=Trees()).kernels
    assert large.trials > small.trials


def test_a_large_kernel_gets_faster_than_the_device_s_default(database: Database) -> None:
    _, large = tasks()
    (found,) = run(
        database, [large], SimulatedDevice(TARGET), limits=Limits(trials=16), model=Trees()
    ).kernels
    assert found.won


@pytest.mark.parametrize("at", [20, 40])
def test_an_interrupted_run_goes_on_as_if_it_had_never_stopped(at: int, tmp_path: Path) -> None:
    """Without noise a device that begins anew times as one that was never switched off.

    At the first place one kernel has begun: what it found is not lent to the other, its kin.
    """
    of, limits = tasks(), Limits(trials=32)
    with Database(tmp_path / "a.db") as whole, Database(tmp_path / "b.db") as parts:
        run(whole, of, SimulatedDevice(TARGET, noise=0.0), limits=limits, model=Trees())
        stopped = run(
            parts, of, Interrupted(TARGET, noise=0.0, at=at), limits=limits, model=Trees()
        )
        assert stopped.interrupted
        run(
            parts,
            of,
            SimulatedDevice(TARGET, noise=0.0),
            limits=limits,
            resume=stopped.run,
            model=Trees(),
        )
        assert times(parts, of) == times(whole, of)
