"""What other kernels found helps a new one: tried first, and learned from."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hlotune.costmodel.trees import Trees
from hlotune.measure.machine.targets import TARGETS
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.trial import Candidate, Failure, Measurement, Trial
from hlotune.schedules.algorithms.joined_space import space_of
from hlotune.schedules.algorithms.table import algorithm_of
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.target import Toolchain
from hlotune.search.experience import Experience
from hlotune.search.learning.transfer import OTHERS, fastest, kin, lent, octaves, recorded, teach
from hlotune.search.tasks import SPACES
from hlotune.tuning_logs.database import Database, conditions
from tests.support.computes import Case, batched, conv, gemm
from tests.support.winograd_cases import windowed

ZNVER4 = TARGETS["znver4"]
TOOLS = Toolchain(jaxlib="0", llvm="0", codegen="0", xla_flags="")
UNDER = conditions(ZNVER4, TOOLS)
NEW = gemm(96, 128, 64)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "tuning.db") as opened:
        yield opened


def record(database: Database, *cases: Case, n: int = 30) -> None:
    """Random trials of each, on the simulated device."""
    device = SimulatedDevice(ZNVER4)
    run = database.start_run(None, ZNVER4, TOOLS)
    for case in cases:
        space = case.space(ZNVER4)
        configs = space.sample(n, np.random.default_rng(3))
        candidates = [Candidate(case.kernel, space.schedule(c)) for c in configs]
        objects = list(zip(candidates, device.build(candidates), strict=True))
        database.add(run, case.kernel, device.measure(case.kernel, objects), batch=1)


def near(database: Database, case: Case = NEW) -> list[str]:
    found = kin(recorded(database, UNDER), case.kernel, case.compute)
    return [k.kernel.key for k in found]


def test_distance_is_the_mean_of_octaves_between_extents() -> None:
    assert octaves(gemm(64, 64, 64).compute, gemm(64, 64, 64).compute) == 0
    assert octaves(gemm(64, 64, 64).compute, gemm(128, 32, 256).compute) == pytest.approx(4 / 3)


def test_products_and_convolutions_are_no_kin() -> None:
    alien = conv(8, 8, 16, 16).compute
    assert octaves(NEW.compute, alien) == float("inf")
    assert octaves(NEW.compute, batched(4, 96, 128, 64).compute) == float("inf")


def test_the_nearest_kernels_come_first_and_strangers_not_at_all(database: Database) -> None:
    close, far, alien = gemm(96, 160, 64), gemm(384, 32, 256), conv(8, 8, 16, 16)
    record(database, far, alien, close, n=4)
    assert near(database) == [close.kernel.key, far.kernel.key]


def test_a_kernel_is_not_its_own_kin(database: Database) -> None:
    record(database, NEW, n=4)
    assert near(database) == []


def test_times_under_other_conditions_do_not_count(database: Database) -> None:
    record(database, gemm(96, 160, 64), n=4)
    elsewhere = conditions(TARGETS["x86-64-v3"], TOOLS)
    assert recorded(database, elsewhere) == []


def test_the_best_schedule_of_kin_is_lent_and_is_good_there(database: Database) -> None:
    record(database, gemm(96, 160, 64), gemm(128, 128, 64), n=60)
    space, device = NEW.space(ZNVER4), SimulatedDevice(ZNVER4)
    of = kin(recorded(database, UNDER), NEW.kernel, NEW.compute)
    rows = lent(database, of, space, UNDER)
    assert len(rows) == 2
    assert space.legal(rows).all()

    def times(configs: np.ndarray) -> np.ndarray:
        candidates = [Candidate(NEW.kernel, space.schedule(c)) for c in configs]
        objects = list(zip(candidates, device.build(candidates), strict=True))
        return np.array([t.time_s for t in device.measure(NEW.kernel, objects)])

    by_chance = times(space.sample(60, np.random.default_rng(8)))
    assert times(rows).max() < np.percentile(by_chance, 25)


def test_trials_of_kin_teach_the_model_before_the_first_batch(database: Database) -> None:
    record(database, gemm(96, 160, 64), gemm(128, 128, 64), n=40)
    experience = Experience(Trees())
    of = kin(recorded(database, UNDER), NEW.kernel, NEW.compute)
    assert teach(experience, database, of, ZNVER4, UNDER) == 80
    experience.learn()
    assert experience.model.knows
    assert OTHERS > 10_000  # no kernel of a run has such a number


def test_trials_of_algorithms_for_fast_numerics_alone_teach(database: Database) -> None:
    case = windowed(size=(14, 14), channels=16, features=32)
    space = space_of(case.compute, ZNVER4, "fast")
    schedules = [space.schedule(c) for c in space.sample(60, np.random.default_rng(3))]
    loose = {s for s in schedules if algorithm_of(s.algorithm).numerics == "fast"}
    run = database.start_run(None, ZNVER4, TOOLS, numerics="fast")
    measured = Measurement(samples_s=(1e-3,), numerics="fast")
    trials = [Trial(Candidate(case.kernel, s), measured) for s in loose]
    database.add(run, case.kernel, trials, batch=0)
    other = windowed(size=(15, 14), channels=16, features=32)
    of = kin(recorded(database, UNDER), other.kernel, other.compute)
    assert loose
    assert teach(Experience(Trees()), database, of, ZNVER4, UNDER) == len(loose)


def test_without_kin_nothing_is_lent_and_nothing_taught(database: Database) -> None:
    experience = Experience(Trees())
    assert lent(database, [], NEW.space(ZNVER4), UNDER).shape == (
        0, len(NEW.space(ZNVER4).heuristic())
    )  # fmt: skip
    assert teach(experience, database, [], ZNVER4, UNDER) == 0


def test_schedules_of_another_version_are_not_lent_and_do_not_teach(database: Database) -> None:
    record(database, gemm(96, 160, 64), gemm(128, 128, 64), n=40)
    old = '{"algorithm":"direct","steps":[["was","x",1]]}'
    with database.writing() as sql:
        sql.execute("update trials set schedule = ?", [old])
    of = kin(recorded(database, UNDER), NEW.kernel, NEW.compute)
    assert len(of) == 2
    assert len(lent(database, of, NEW.space(ZNVER4), UNDER)) == 0
    assert teach(Experience(Trees()), database, of, ZNVER4, UNDER) == 0


def test_kin_without_a_space_today_does_not_teach(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, kept = gemm(96, 160, 64), gemm(128, 128, 64)
    record(database, lost, kept, n=40)
    of = kin(recorded(database, UNDER), NEW.kernel, NEW.compute)

    def space(compute: Compute, target: CpuTarget, numerics: str) -> Space:
        if compute == lost.compute:
            raise UnsupportedKernel("expected a kernel with a rule, got one of old")
        return kept.space(target)

    monkeypatch.setitem(SPACES, "cpu", space)
    assert teach(Experience(Trees()), database, of, ZNVER4, UNDER) == 40


def test_kernels_of_which_the_default_alone_was_timed_are_no_kin(database: Database) -> None:
    """They would take the places of those that have something to lend."""
    close, far = gemm(96, 160, 64), gemm(384, 32, 256)
    record(database, far, n=4)
    default = Trial(Candidate(close.kernel, DEFAULT), Measurement(samples_s=(1e-3,)))
    database.add(database.start_run(None, ZNVER4, TOOLS), close.kernel, [default], batch=0)
    assert near(database) == [far.kernel.key]


def test_a_champion_that_proved_wrong_is_not_lent(database: Database) -> None:
    close = gemm(96, 160, 64)
    record(database, close, n=40)
    (best, _), (second, _) = fastest(database, close.kernel, UNDER, 2)
    candidate = Candidate(close.kernel, Schedule.from_json(best))
    wrong = [Trial(candidate, Failure("wrong_result", "a lost tap"))]
    database.add(database.start_run(None, ZNVER4, TOOLS), close.kernel, wrong, batch=0)
    assert fastest(database, close.kernel, UNDER, 1)[0][0] == second


def test_a_mishap_of_the_device_bars_nothing(database: Database) -> None:
    close = gemm(96, 160, 64)
    record(database, close, n=40)
    before = fastest(database, close.kernel, UNDER, 2)
    mishap = Failure("device", "the worker was killed")
    trials = [Trial(Candidate(close.kernel, Schedule.from_json(s)), mishap) for s, _ in before]
    database.add(database.start_run(None, ZNVER4, TOOLS), close.kernel, trials, batch=0)
    assert fastest(database, close.kernel, UNDER, 2) == before


def test_all_kin_together_teach_no_more_than_there_is_time_for(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(database, gemm(96, 160, 64), gemm(128, 128, 64), n=40)
    monkeypatch.setattr("hlotune.search.learning.transfer.TAUGHT", 24)
    of = kin(recorded(database, UNDER), NEW.kernel, NEW.compute)
    assert 12 <= teach(Experience(Trees()), database, of, ZNVER4, UNDER) <= 24


def test_what_the_run_itself_found_is_not_lent(database: Database) -> None:
    close = gemm(96, 160, 64)
    record(database, close, n=10)
    own = database.query("select id from runs")[0]["id"]
    assert fastest(database, close.kernel, UNDER, 1)
    assert fastest(database, close.kernel, UNDER, 1, own) == []
    assert recorded(database, UNDER, own) == []
