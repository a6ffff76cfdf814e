"""A run lends its kernels the best of their kin, and teaches the model, before it proposes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.costmodel.inputs import Inputs
from hlotune.costmodel.trees import Trees
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.schedules.steps.schedule import XLA, Schedule
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.promises import YOUNG
from hlotune.search.learning.transfer import OTHERS, kin, recorded
from hlotune.search.searchers.history import digests
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from tests.support.computes import Case, gemm, whole
from tests.support.sessions import TARGET, UNDER, run

M, N, K = 96, 192, 64


def task(case: Case) -> Task:
    return Task(case.kernel, case.name, 1.0, case.compute, case.space(TARGET))


def biased() -> Case:
    """A product of another family than plain ones, whose main stage has the same axes."""
    x, w, b = whole(M, K), whole(K, N, seed=1), whole(N, seed=2)
    return Case("biased", lambda x, w, b: x @ w + b, (x, w, b))


KNOWN, NEW = task(biased()), task(gemm(96, 128, 64))


class Pupil(Trees):
    """Remembers each lesson, and how many trials of the run had been measured by then."""

    def __init__(self, device: SimulatedDevice) -> None:
        super().__init__()
        self._device = device
        self.lessons: list[tuple[int, NDArray[np.int32]]] = []

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        self.lessons.append((self._device.trials, groups))
        super().fit(inputs, scores, groups)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "empty.db") as opened:
        yield opened


@pytest.fixture
def knowing(tmp_path: Path) -> Iterator[Database]:
    """Has a run over the kin of the new kernel."""
    with Database(tmp_path / "knowing.db") as opened:
        run(opened, [KNOWN], SimulatedDevice(TARGET), limits=Limits(trials=2 * YOUNG))
        yield opened


def searched(database: Database) -> Pupil:
    """The model of a run over the new kernel."""
    device = SimulatedDevice(TARGET)
    pupil = Pupil(device)
    run(database, [NEW], device, limits=Limits(trials=2 * YOUNG), model=pupil)
    return pupil


def trials_of(database: Database, of: Task) -> dict[Schedule, float | None]:
    trials = database.trials(of.kernel.key, **UNDER)
    times = {t.candidate.schedule: t.time_s for t in trials}
    return {s: time_s for s, time_s in times.items() if s.algorithm != XLA}


def best_of_kin(database: Database) -> Schedule:
    """As it stands in the space of the new kernel."""
    times = {s: t for s, t in trials_of(database, KNOWN).items() if t is not None}
    config = NEW.space.locate(min(times, key=lambda s: times[s]))
    assert config is not None
    assert NEW.space.legal(config[None])[0]
    return NEW.space.schedule(config)


def test_the_known_kernel_is_kin_of_the_new_one_and_not_of_its_family(knowing: Database) -> None:
    (found,) = kin(recorded(knowing, UNDER), NEW.kernel, NEW.compute)
    assert found.kernel == KNOWN.kernel
    assert KNOWN.kernel.family != NEW.kernel.family
    assert knowing.seeds(NEW.kernel, **UNDER) == []


def test_the_best_schedule_of_kin_is_in_the_first_batch(knowing: Database, empty: Database) -> None:
    best = best_of_kin(knowing)
    config = NEW.space.locate(best)
    assert config is not None
    nests = digests(NEW.space, np.stack([config, *NEW.space.firsts()]))
    assert nests[0] not in nests[1:], "it is proposed anyway"
    searched(knowing)
    assert best in list(trials_of(knowing, NEW))[: len(NEW.space.firsts()) + 1]
    searched(empty)
    assert best not in trials_of(empty, NEW), "nobody lent it"


def test_trials_of_kin_teach_the_model_before_the_first_proposal(knowing: Database) -> None:
    recorded = len(trials_of(knowing, KNOWN))
    trials, groups = searched(knowing).lessons[0]
    assert trials == 1, "the default's"
    assert groups.tolist() == [OTHERS] * recorded


def test_after_an_empty_database_the_model_learns_of_the_first_batch_alone(empty: Database) -> None:
    trials, groups = searched(empty).lessons[0]
    assert trials == 1 + YOUNG
    assert groups.tolist() == [0] * YOUNG
