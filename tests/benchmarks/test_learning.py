"""Races go on where they stopped, and their figures say what the curves say."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.learned import (
    CONTESTANTS,
    EARLIER,
    HELD_OUT,
    Race,
    against_random,
    against_scratch,
    charts,
    drawn,
    mean_shares,
    over_random,
    reached,
    share,
    summary,
    table,
)
from benchmarks.learning import Track, batch_after, in_turns
from benchmarks.searching import Operator
from hlotune.codegen.built import Built
from hlotune.costmodel.pretrained import untrained
from hlotune.hlo.kernel import Kernel
from hlotune.measure.simulated.device import SimulatedDevice
from hlotune.measure.timing.comparison import Comparison
from hlotune.measure.trial import Candidate, Clock, Failure
from hlotune.schedules.errors import DatabaseError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.search.experience import Experience
from hlotune.search.learning.transfer import NEAREST
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from tests.support.computes import gemm
from tests.support.few_rounds import grow_few_rounds
from tests.support.sessions import PROGRAM, PROPERTIES, TARGET, FakeDevice, place, task

TASKS = tuple(task(name, seed) for seed, name in enumerate((*EARLIER, "C7")))
RACE = Race("C7", "scratch", 0)


def track(database: Database, device: FakeDevice | None = None) -> Track:
    device = device or FakeDevice(TASKS)
    found = Track(database, device, device, TARGET, PROPERTIES)
    for one in TASKS:
        program = replace(PROGRAM, key=one.label)
        found._operators[one.label] = Operator(one.label, program, place(one), one)  # type: ignore[arg-type]
    return found


def schedules(of: Track) -> list[Schedule]:
    return [trial.candidate.schedule for trial in of.trials(RACE)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "learning.db") as opened:
        yield opened


def test_a_race_goes_on_from_what_is_recorded(database: Database) -> None:
    track(database).advance(RACE, 24)
    device = FakeDevice(TASKS)
    track(database, device).advance(RACE, 40)
    assert device.requests == 16
    assert len(track(database).trials(RACE)) == 40


def test_an_interrupted_race_is_the_same_as_one_that_was_not(
    database: Database, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        track(database, FakeDevice(TASKS, interrupt_at=37)).advance(RACE, 64)
    track(database).advance(RACE, 64)
    with Database(tmp_path / "other.db") as other:
        track(other).advance(RACE, 64)
        assert schedules(track(database)) == schedules(track(other))


def test_races_do_not_know_of_each_other(database: Database) -> None:
    for race in (RACE, replace(RACE, contestant="random"), replace(RACE, seed=1)):
        track(database).advance(race, 16)
        assert len(track(database).trials(race)) == 16


def test_a_race_begins_anew_where_another_model_is_shipped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = replace(RACE, contestant="shipped")
    for digest in ("one", "another"):
        begun = replace(untrained("trees-time", ""), digest=digest)
        monkeypatch.setattr(learning, "start", lambda name, begun=begun: begun)
        assert len(track(database).trials(race)) == 0
        track(database).advance(race, 16)
        assert len(track(database).trials(race)) == 16


def test_the_last_tenth_of_a_run_is_coordinate_descent() -> None:
    run = Race("C2", "run", 0)
    batches, done = list[tuple[int, bool]](), 0
    while done < run.trials:
        batches.append(batch_after(run, done))
        done += batches[-1][0]
    assert done == 128
    assert [n for n, ends in batches if ends] == [12]
    assert batch_after(replace(run, contestant="shipped"), 116) == (16, False)


def test_a_first_batch_is_proposed_at_once(database: Database) -> None:
    first = Race("C2", "first", 0)
    assert batch_after(first, 0) == (first.trials, False) == (64, False)


def test_a_late_race_does_not_start(database: Database) -> None:
    track(database).advance(RACE, 16, deadline_s=-inf)
    assert len(track(database).trials(RACE)) == 0


def test_who_is_to_be_taught_waits_until_all_teachers_have_made_their_trials(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All races are brought to the first milestone before any teacher is through."""
    monkeypatch.setattr(learning, "LESSONS", 16)
    taught = replace(RACE, contestant="taught")
    for case in EARLIER[:-1]:
        track(database).advance(Race(case, "teacher", 0), 16)
    track(database).advance(taught, 16)
    assert len(track(database).trials(taught)) == 0
    track(database).advance(Race(EARLIER[-1], "teacher", 0), 16)
    track(database).advance(taught, 16)
    assert len(track(database).trials(taught)) == 16


def test_what_teachers_found_decides_the_first_batch(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With other lessons another one."""
    grow_few_rounds(monkeypatch)
    monkeypatch.setattr(learning, "LESSONS", 32)
    taught, first = replace(RACE, contestant="taught"), []
    for name, device in (("same", None), ("again", None), ("other", Reversed(TASKS))):
        with Database(tmp_path / f"{name}.db") as lessons:
            for case in EARLIER:
                track(lessons, device).advance(Race(case, "teacher", 0), 32)
            track(lessons).advance(taught, 16)
            first.append([t.candidate.schedule for t in track(lessons).trials(taught)])
    assert len(first[0]) == 16
    assert first[0] == first[1] != first[2]


def test_a_database_of_teachers_lends_their_best_and_teaches(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "LESSONS", 16)
    found, device = track(database), SimulatedDevice(TARGET)
    found.builder = found.runner = device
    products = [gemm(96, 64 + 16 * k, 64) for k in range(len(EARLIER))]
    for name, case in zip((*EARLIER, "C7"), (*products, gemm(96, 128, 128)), strict=True):
        real = Task(case.kernel, name, 1.0, case.compute, case.space(TARGET))
        found._operators[name] = replace(found._operators[name], task=real)
    for name in EARLIER:
        found.advance(Race(name, "teacher", 0), 16)
    experience, task = Experience(untrained("trees", "").model), found._operator("C7").task
    rows = found._lent(task, experience, 0)
    experience.learn()
    assert experience.model.knows
    assert 1 <= len(rows) <= NEAREST
    lent = Race("C7", "lent", 0)
    found.advance(lent, 16)
    tried = [trial.candidate.schedule for trial in found.trials(lent)]
    assert tried[: len(rows)] == [task.space.schedule(row) for row in rows]


class Reversed(FakeDevice):
    """What was fast is slow on it."""

    def _time_s(self, candidate: Candidate) -> float:
        return 1e-6 / super()._time_s(candidate)


class Referee(FakeDevice):
    """Takes as long as it needs, which is no time."""

    def compare(
        self,
        kernel: Kernel,
        objects: Sequence[tuple[Candidate, Built | Failure]],
        *,
        pairs: int,
        limit_s: float = 5.0,
        clock: Clock = "call",
        staying: int | None = None,
    ) -> Comparison:
        return super().compare(kernel, objects, pairs=pairs)


def test_the_best_is_that_of_all_races_in_turns(database: Database) -> None:
    races, device = (RACE, replace(RACE, seed=1)), Referee(TASKS)
    found = track(database, device)
    for race in races:
        found.advance(race, 16)
    curves, best_s = in_turns(found, races, device, {"C7": []})
    assert best_s == {"C7": min(curve[-1] for curve in curves.values())}
    assert [len(curve) for curve in curves.values()] == [16, 16]


def test_the_best_ever_may_be_in_another_database(database: Database, tmp_path: Path) -> None:
    device, elsewhere = Referee(TASKS), tmp_path / "elsewhere.db"
    found = track(database, device)
    found.advance(RACE, 8)
    with Database(elsewhere) as other:
        track(other, device).advance(replace(RACE, contestant="random"), 64)
    also = found.elsewhere("C7", [elsewhere])
    assert len(also) == 64
    curves, best_s = in_turns(found, [RACE], device, {"C7": also})
    assert best_s["C7"] == min(t.time_s for t in also if t.time_s) < curves[RACE][-1]
    said = "the best is that of 64 trials of other databases, too"
    assert said in table(curves, best_s, len(also)).notes
    assert said not in table(curves, best_s).notes


def test_a_database_of_other_trials_that_is_not_there_is_an_error(
    database: Database, tmp_path: Path
) -> None:
    with pytest.raises(DatabaseError, match=r"missing\.db"):
        track(database).elsewhere("C7", [tmp_path / "missing.db"])


def test_teachers_race_before_who_learns_from_them() -> None:
    names = [r.contestant for r in drawn(("C1", "C7"), [0])]
    assert names.index("teacher") < names.index("taught")
    assert {r.contestant for r in drawn(("C1", "C7"), [0], ["lent", "teacher"])} == {
        "teacher", "lent",
    }  # fmt: skip
    assert len(HELD_OUT) == 8 and set(HELD_OUT) <= set(CONTESTANTS["shipped"].cases)


CURVE = np.array([4.0, 2.0, 2.0, 1.0])


def test_shares_are_of_the_best_speed() -> None:
    assert share(CURVE, 2, best_s=1.0) == 0.5
    assert share(CURVE, 5, best_s=1.0) is None


def test_a_time_is_reached_after_so_many_trials() -> None:
    assert reached(CURVE, 2.0) == 2
    assert reached(CURVE, 0.5) is None


def test_where_everything_failed_nothing_is_reached() -> None:
    failed = np.full(2000, inf)
    assert reached(failed, inf) is None
    assert share(failed, 2, best_s=inf) is None
    curves = {Race("C2", "shipped", 0): CURVE, Race("C2", "random", 0): failed}
    assert against_random(curves) == ([], 0)


def falling(*times: float) -> np.ndarray:
    return np.array(times)


def test_charts_compare_searches_on_the_same_cases() -> None:
    curves = {Race(case, "taught", seed): CURVE for case in ("C7", "C8") for seed in (0, 1)}
    best_s = {"C7": 1.0, "C8": 0.5}
    assert mean_shares("taught", ("C7", "C8"), curves, best_s) == pytest.approx(
        [0.1875, 0.375, 0.375, 0.75]
    )
    assert mean_shares("scratch", ("C7", "C8"), curves, best_s) == []
    shorter = curves | {Race("C7", "taught", 2): CURVE[:3]}
    assert len(mean_shares("taught", ("C7", "C8"), shorter, best_s)) == 3
    long = {Race("C7", "taught", 0): np.full(2000, 1.0)}
    assert len(mean_shares("taught", ("C7", "C8"), long, best_s)) == 512
    drawn_charts = charts(curves, best_s)
    assert list(drawn_charts) == ["learning_taught"]
    assert "taught" in drawn_charts["learning_taught"]
    assert "scratch" not in drawn_charts["learning_taught"]


def test_trials_saved_are_counted_against_random_search() -> None:
    rival = np.full(2000, 3.0)
    rival[1000:] = 2.0
    curves = {Race("C2", "shipped", 0): CURVE, Race("C2", "random", 0): rival}
    assert against_random(curves) == ([2 / 1001], 0)
    curves[Race("C2", "random", 0)] = np.linspace(2.0, 0.5, 2000)
    assert against_random(curves) == ([len(CURVE) / 2000], 1)
    assert "1 in which it did not get there" in summary(curves, {"C2": 0.5})[-1]


def test_random_search_is_held_against_annealing_at_equal_trials() -> None:
    """Where one of both has nothing that works, that is no less than a loss."""
    curves = {Race("C2", c, 0): CURVE * k for c, k in (("shipped", 1.0), ("random", 2.0))}
    curves |= {Race("C6", c, 0): CURVE * k for c, k in (("shipped", 1.0), ("random", 8.0))}
    curves |= {Race("C9", "shipped", 0): CURVE, Race("C9", "random", 0): np.full(4, inf)}
    assert over_random(2, curves) == [2, 8, inf]
    curves |= {Race("C7", c, 0): np.full(4, inf) for c in ("shipped", "random")}
    assert over_random(2, curves) == [2, 8, inf]
    assert over_random(5, curves) == []
    long = {Race("C2", c, 0): np.full(130, t) for c, t in (("shipped", 1.0), ("random", 1.5))}
    assert (
        "random's best over annealing's after 64, 128 trials: 1.50, 1.50, geometric means of "
        "1 races" in summary(long, {"C2": 1.0})
    )


def test_random_search_that_is_not_through_has_no_best_to_be_held_against() -> None:
    most = CONTESTANTS["random"].trials
    curves = {Race("C2", "shipped", 0): CURVE, Race("C2", "random", 0): np.full(most - 1, 2.0)}
    assert against_random(curves) == ([], 0)
    curves[Race("C2", "random", 0)] = np.full(most, 2.0)
    assert against_random(curves) == ([2.0], 0)


def test_lessons_are_counted_against_a_search_from_nothing() -> None:
    slow = falling(4.0, 4.0, 3.0, 2.0, 1.5, 1.02)
    curves = {Race("C7", "taught", 0): CURVE, Race("C7", "scratch", 0): slow}
    assert against_scratch(curves, {"C7": 1.0}) == [4 / 6]


def test_searches_that_did_not_get_there_count_too() -> None:
    """Else those that need most trials would be left out, of either side."""
    taught, scratch = Race("C7", "taught", 0), Race("C7", "scratch", 0)
    never = falling(4.0, 4.0, 3.0, 3.0, 3.0, 3.0)
    assert against_scratch({taught: CURVE, scratch: never}, {"C7": 1.0}) == [4 / 6]
    assert against_scratch({taught: never, scratch: CURVE}, {"C7": 1.0}) == [6 / 4]
    assert against_scratch({taught: never, scratch: never}, {"C7": 1.0}) == [None]
    assert summary({taught: CURVE, scratch: never}, {"C7": 1.0}) == [
        "to 95 % of the best ever, a model trained on C1 to C6 needs 0.667 (median 0.667) of the "
        "trials from scratch in 1 races; 0 in which neither got there count as no saving; a search "
        "that did not get there (`never`) counts with all the trials that it made: of one from "
        "scratch the ratio is an upper bound, of the other a lower one"
    ]
    both = {taught: CURVE, scratch: never}
    both |= {replace(race, seed=1): never for race in (taught, scratch)}
    both |= {replace(race, seed=2): never for race in (taught, scratch)}
    (line,) = summary(both, {"C7": 1.0})
    assert "needs 0.874 (median 1.000) of the trials" in line and "races; 2 in which" in line


def test_a_taught_search_that_never_gets_there_leaves_the_mean_of_all_races_finite() -> None:
    taught, scratch = Race("C7", "taught", 0), Race("C7", "scratch", 0)
    curves = {taught: np.full(6, 3.0), scratch: CURVE}
    curves |= {replace(taught, seed=1): CURVE, replace(scratch, seed=1): CURVE}
    (line,) = summary(curves, {"C7": 1.0})
    assert "needs 1.225 (median 1.250) of the trials from scratch in 2 races" in line


def test_what_is_lent_is_counted_as_what_is_taught() -> None:
    lent, scratch = Race("C7", "lent", 0), Race("C7", "scratch", 0)
    (line,) = summary({lent: CURVE, scratch: falling(4.0, 1.0, 1.0, 1.0)}, {"C7": 1.0})
    assert line.startswith("to 95 % of the best ever, a search on a database of C1 to C6, which")
    assert "needs 2.000" in line


def test_a_first_batch_is_held_against_the_best_ever() -> None:
    curves = {Race("C2", "first", seed): np.full(64, t) for seed, t in enumerate((1.0, 1.1, 1.2))}
    curves[Race("C6", "first", 0)] = np.full(64, 1.25)
    curves[Race("C9", "first", 0)] = np.full(63, 1.0)  # not through
    assert summary(curves, dict.fromkeys(("C2", "C6", "C9"), 1.0)) == [
        "a first batch of 64 within 10 % of the best ever: 1 of 2 cases, means of the seeds; the "
        "least has 0.800 of its speed"
    ]


def test_the_table_has_a_line_for_each_search_and_says_the_figures() -> None:
    curve = np.concatenate([np.full(63, 2.0), np.full(65, 1.0)])
    curves = {Race("C2", "shipped", seed): curve for seed in (0, 1)}
    curves[Race("C2", "scratch", 0)] = np.full(64, 2.0)
    found = table(curves, {"C2": 1.0})
    assert found.rows == [
        ["C2", "shipped", "2", "1.000", "1.000", "-", "-", "64", "0"],
        ["C2", "scratch", "1", "0.500", "-", "-", "-", "-", "1"],
    ]
    assert summary(curves, {"C2": 1.0}) == [
        "shipped model, the first 128 trials of 512: 1.000 of the best ever",
    ]
