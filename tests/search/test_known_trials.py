"""A run begins with what is known, and that takes seconds however much there is."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.search.experience import Experience
from hlotune.search.learning.known_trials import FEWEST_KNOWN, MOST_KNOWN, share_of_known
from hlotune.search.searchers.searcher import SEARCHERS
from hlotune.search.tasks import Task, tasks
from hlotune.search.tuner import KernelTuner
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.database import Database, conditions
from tests.support.recorded import HERE, KERNEL, TARGET, TOOLCHAIN, failed, final, measured, start

KNOWN = 200_000
LOOSELY_S = 30.0
"""Tests run on machines that are slow by turns; docs/reliability.md has a figure."""


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def test_of_many_trials_the_fastest_and_the_newest_are_known(database: Database) -> None:
    run = start(database)
    for number in range(1, 21):
        database.add(run, KERNEL, [measured(number * 1e-3, number)], batch=number)
    assert len(database.trials(KERNEL.key, most=20, **HERE)) == 20
    few = database.trials(KERNEL.key, most=6, **HERE)
    assert [t.time_s for t in few] == pytest.approx([1e-3, 2e-3, 3e-3, 18e-3, 19e-3, 20e-3])
    assert len(database.trials(KERNEL.key, most=6, own=run, **HERE)) == 20


def test_failures_of_the_fastest_and_of_finals_are_known_however_old_they_are(
    database: Database,
) -> None:
    run = start(database)
    database.add(run, KERNEL, [failed(number=n) for n in (1, 2, 40)], batch=0)
    for number in range(1, 21):
        database.add(run, KERNEL, [measured(number * 1e-3, number)], batch=number)
    database.record_final(run, KERNEL, final(number=40))
    few = database.trials(KERNEL.key, most=2, **HERE)
    barred = [t.candidate for t in few if isinstance(t.outcome, Failure)]
    assert barred == [failed(number=1).candidate, failed(number=40).candidate]


def test_every_kernel_has_a_share() -> None:
    assert [share_of_known(n) for n in (0, 1, 2, 1000)] == [
        MOST_KNOWN, MOST_KNOWN, MOST_KNOWN // 2, FEWEST_KNOWN,
    ]  # fmt: skip


def product() -> Task:
    x, w = np.zeros((64, 96), np.float32), np.zeros((96, 128), np.float32)
    found, _ = tasks(sites(load(lambda x, w: x @ w, x, w)), TARGETS["znver4"], "standard")
    return found[0]


def fill(database: Database, task: Task) -> None:
    """Trials of the kernel's own space, and as many more, slower and older, as make `KNOWN`."""
    kernel, space = task.kernel, task.space
    configs = np.unique(space.sample(4000, np.random.default_rng(0)), axis=0)
    configs = configs[space.legal(configs)][:2000]
    run = start(database, target=TARGET)
    trials = [
        Trial(Candidate(kernel, space.schedule(c)), Measurement(samples_s=(1e-3 + n * 1e-9,)))
        for n, c in enumerate(configs)
    ]
    database.add(run, kernel, trials, batch=0)
    (row,) = database.query("select * from runs")
    (one,) = database.query("select * from trials where number = 0")
    older = "2020-01-01T00:00:00+00:00"
    copies = (
        {**one, "id": rows.new_id(), "time_s": 1 + n, "recorded": older, "samples_s": f"[{1 + n}]"}
        for n in range(KNOWN - len(trials))
    )
    assert row["id"] == run
    with database.writing() as sql:
        sql.table("trials").insert_all(copies)


@pytest.mark.slow
def test_two_hundred_thousand_known_trials_delay_a_run_by_seconds(database: Database) -> None:
    task = product()
    fill(database, task)
    under = conditions(TARGET, TOOLCHAIN)
    model = Trees()
    searcher = SEARCHERS["evolution"](task.space, model, (0, 0), task.space.firsts())
    tuner = KernelTuner(
        task.kernel, task.space, searcher=searcher, finisher=None, experience=Experience(model),
        group=0, builder=None, runner=None, record=lambda *_: None,  # type: ignore[arg-type]
    )  # fmt: skip
    begin_s = time.monotonic()
    known = tuner.know(database.trials(task.kernel.key, most=MOST_KNOWN, **under))
    took_s = time.monotonic() - begin_s
    print(f"{known} of {KNOWN} known trials in {took_s:.1f} s")
    assert known == MOST_KNOWN
    assert tuner.usable == known
    assert took_s < LOOSELY_S
