"""What goes in comes out, under equal conditions only."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.measure.trial import Candidate, Measurement, Trial
from hlotune.schedules.errors import NoRecord
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import Conditions, Database, conditions
from hlotune.tuning_logs.rows import trial_of, trial_row
from tests.support.recorded import (
    HERE,
    KERNEL,
    OTHER_TARGET,
    OTHER_TOOLCHAIN,
    PROGRAM,
    TARGET,
    TOOLCHAIN,
    default_trial,
    failed,
    kernel,
    measured,
    schedule,
    start,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def test_trials_come_back_as_they_were_added(path: Path) -> None:
    trials = [default_trial(2e-3), measured(1e-3), failed()]
    with Database(path) as database:
        database.add(start(database), KERNEL, trials, batch=0)
    with Database(path) as database:
        assert database.trials(KERNEL.key, **HERE) == trials


positive = st.floats(min_value=1e-9, max_value=1e3)


@given(st.lists(positive, min_size=1, max_size=5), positive, st.integers(1, 64))
def test_any_trial_survives_its_row(samples: list[float], error: float, number: int) -> None:
    outcome = Measurement(samples_s=tuple(samples), error=error, build_s=error)
    trial = Trial(Candidate(KERNEL, schedule(number)), outcome)
    run = {"id": "r", "target": "t", "toolchain": "c", "threads": 2}
    run |= {"cache": "model", "numerics": "standard"}
    assert trial_of(trial_row(trial, run, 0, 0), KERNEL) == trial


def test_batches_come_back_in_the_order_of_recording(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        for batch in range(3):
            database.add(
                run, KERNEL, [measured(1e-3, 3 * batch + k) for k in range(3)], batch=batch
            )
        numbers = [t.candidate.schedule for t in database.trials(KERNEL.key, **HERE)]
        assert numbers == [schedule(n) for n in range(9)]


@pytest.mark.parametrize(
    "elsewhere",
    [
        conditions(OTHER_TARGET, TOOLCHAIN),
        conditions(TARGET, OTHER_TOOLCHAIN),
        conditions(TARGET, TOOLCHAIN, "warm"),
        Conditions(**{**HERE, "threads": 1}),
    ],
    ids=["target", "toolchain", "cache", "threads"],
)
def test_a_trial_under_other_conditions_is_not_measured_here(
    path: Path, elsewhere: Conditions
) -> None:
    with Database(path) as database:
        database.add(start(database), KERNEL, [measured(1e-3)], batch=0)
        assert database.trials(KERNEL.key, **elsewhere) == []
        assert database.seeds(KERNEL, **elsewhere) == [schedule(1)]
        assert database.seeds(KERNEL, **HERE) == []


def test_a_failure_counts_as_tried_in_the_cache_mode_of_its_run(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database, cache="warm"), KERNEL, [failed()], batch=0)
        assert database.trials(KERNEL.key, **conditions(TARGET, TOOLCHAIN, "warm")) == [failed()]
        assert database.trials(KERNEL.key, **HERE) == []


def test_what_only_a_narrower_setting_found_wrong_may_be_tried_again(path: Path) -> None:
    wrong, crashed = failed("wrong_result", number=1), failed("crash", number=2)
    with Database(path) as database:
        database.add(start(database, numerics="strict"), KERNEL, [wrong, crashed], batch=0)
        assert database.trials(KERNEL.key, numerics="strict", **HERE) == [wrong, crashed]
        assert database.trials(KERNEL.key, numerics="standard", **HERE) == [crashed]
        database.add(start(database, numerics="standard"), KERNEL, [wrong], batch=0)
        assert database.trials(KERNEL.key, numerics="standard", **HERE) == [crashed, wrong]
        assert database.trials(KERNEL.key, numerics="fast", **HERE) == [crashed]


def test_seeds_are_the_best_of_each_conditions_the_kernel_before_its_family(path: Path) -> None:
    cousin = kernel(16)
    with Database(path) as database:
        database.add(
            start(database, target=OTHER_TARGET),
            KERNEL,
            [measured(2e-3, 2), measured(1e-3, 1), default_trial(5e-4), failed()],
            batch=0,
        )
        # Slower by the clock, but as a best one it goes before the second best of the other.
        database.add(
            start(database, toolchain=OTHER_TOOLCHAIN), KERNEL, [measured(9e-3, 9)], batch=0
        )
        database.add(start(database), cousin, [measured(1e-6, 16, of=cousin)], batch=0)
        unrelated = kernel(op="divide")
        database.add(start(database), unrelated, [measured(1e-6, 77, of=unrelated)], batch=0)
        expected = [schedule(n) for n in (9, 1, 2, 16)]
        assert database.seeds(KERNEL, **HERE) == expected
        assert database.seeds(KERNEL, limit=2, **HERE) == expected[:2]


def test_seeds_leave_out_what_was_tried_here(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database, target=OTHER_TARGET), KERNEL, [measured(1e-3, 1)], batch=0)
        database.add(start(database), KERNEL, [failed(number=1)], batch=0)
        assert database.seeds(KERNEL, **HERE) == []
        assert DEFAULT not in database.seeds(kernel(32), **HERE)


def test_seeds_leave_out_what_the_run_itself_found(path: Path) -> None:
    cousin = kernel(16)
    with Database(path) as database:
        own = start(database)
        database.add(own, cousin, [measured(1e-6, 16, of=cousin)], batch=0)
        assert database.seeds(KERNEL, **HERE) == [schedule(16)]
        assert database.seeds(KERNEL, apart=own, **HERE) == []


def test_the_checkpoint_is_the_last_batch_with_its_state(path: Path) -> None:
    with Database(path) as database:
        run = start(database)
        assert database.checkpoint(run, KERNEL.key) is None
        database.add(run, KERNEL, [measured(1e-3)], batch=0, state=b"zero")
        database.add(run, KERNEL, [], batch=1, state=b"one\0\xff")
        assert database.checkpoint(run, KERNEL.key) == (1, b"one\0\xff")
        assert database.checkpoint(start(database), KERNEL.key) is None


def test_a_run_goes_on_with_the_newest_unfinished_one_like_it(path: Path) -> None:
    def begin(seed: int = 0, options: dict[str, object] | None = None) -> str:
        return database.start_run(PROGRAM, TARGET, TOOLCHAIN, seed=seed, options=options)

    with Database(path) as database:
        for state in (b"older", b"newer"):
            database.add(begin(), KERNEL, [], batch=3, state=state)
        finished = begin()
        database.add(finished, KERNEL, [], batch=9, state=b"finished")
        database.finish_run(finished)
        assert database.checkpoint(begin(), KERNEL.key) == (3, b"newer")
        assert database.checkpoint(begin(seed=1), KERNEL.key) is None
        assert database.checkpoint(begin(options={"trials": 8}), KERNEL.key) is None
        assert database.checkpoint(begin(), kernel(16).key) is None


def test_a_batch_that_cannot_be_written_leaves_neither_trials_nor_state(path: Path) -> None:
    not_a_number = Trial(Candidate(KERNEL, schedule(2)), Measurement(samples_s=(float("nan"),)))
    with Database(path) as database:
        run = start(database)
        with pytest.raises(ValueError, match="JSON compliant"):
            database.add(run, KERNEL, [measured(1e-3), not_a_number], batch=0, state=b"state")
        assert database.trials(KERNEL.key, **HERE) == []
        assert database.checkpoint(run, KERNEL.key) is None


def test_a_schedule_that_does_not_parse_is_skipped_and_counted(path: Path) -> None:
    with Database(path) as database:
        database.add(start(database), KERNEL, [measured(1e-3, 1), measured(2e-3, 2)], batch=0)
        with database.writing() as sql:
            old = '{"algorithm":"direct","steps":[["Twist","i0"]]}'
            sql.execute("update trials set schedule = ? where time_s < 1.5e-3", [old])
        assert database.trials(KERNEL.key, **HERE) == [measured(2e-3, 2)]
        assert database.unreadable == 1
        assert database.seeds(kernel(16), **HERE) == [schedule(2)]
        assert database.unreadable == 2


def test_adding_to_an_unknown_run_is_refused(path: Path) -> None:
    with Database(path) as database, pytest.raises(NoRecord, match="id of a recorded run, got 'x'"):
        database.add("x", KERNEL, [], batch=0)


def test_adding_a_trial_of_another_kernel_is_refused(path: Path) -> None:
    with Database(path) as database, pytest.raises(ValueError, match="got some of others"):
        database.add(start(database), KERNEL, [measured(1e-3, of=kernel(16))], batch=0)


def test_an_unknown_kernel_is_no_record(path: Path) -> None:
    with Database(path) as database, pytest.raises(NoRecord, match="key of a recorded kernel"):
        database.kernel("abc")
