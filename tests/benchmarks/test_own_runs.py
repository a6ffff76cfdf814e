"""Runs that benchmarks make once, and what two of them say of each other; nothing is timed here."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest

from benchmarks import budgets, rivals
from benchmarks.own_runs import Run, finished, once, place
from benchmarks.results import interval
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.targets.target import Toolchain
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Summary

TOOLS = Toolchain(jaxlib="0", llvm="0", codegen="0", xla_flags="")


class Tuner:
    """Makes runs that are through, or are interrupted as often as it is told."""

    def __init__(self, interruptions: int = 0) -> None:
        self.runs, self._interruptions = 0, interruptions

    def __call__(self, path: Path) -> TuneResult:
        self.runs += 1
        interrupted = self.runs <= self._interruptions
        with Database(path) as database:
            run = database.start_run(None, TARGETS["x86-64"], TOOLS)
            if not interrupted:
                database.finish_run(run, Summary(wall_s=12.5, waited_s=0.5, away_s=2.0))
        return TuneResult(
            program_name="toy", database=path, run=run, kernels=(), trials=0, known_trials=0,
            wall_s=12.5, interrupted=interrupted,
        )  # fmt: skip


def test_a_run_that_is_through_is_not_made_again(tmp_path: Path) -> None:
    tuner, path = Tuner(), tmp_path / "folder" / "a.db"
    first, second = (once(path, tuner) for _ in range(2))
    assert tuner.runs == 1
    assert first == second == Run(path, 10.0, 0)


def test_an_interrupted_run_is_begun_anew(tmp_path: Path) -> None:
    """Its seconds would count from the middle."""
    tuner, path = Tuner(interruptions=1), tmp_path / "a.db"
    with pytest.raises(KeyboardInterrupt):
        once(path, tuner)
    assert finished(path) is None
    assert once(path, tuner).counted_s == 10.0
    with Database(path, create=False) as database:
        assert len(database.query("select id from runs")) == 1


def test_a_run_that_leaves_no_record_is_an_error(tmp_path: Path) -> None:
    def forgetful(path: Path) -> TuneResult:
        return Tuner()(path.with_suffix(".other"))

    with pytest.raises(RuntimeError, match=r"expected a finished run in .*a\.db, got none; remove"):
        once(tmp_path / "a.db", forgetful)


def test_runs_on_other_models_have_other_files(tmp_path: Path) -> None:
    paths = {place(tmp_path, "C6", model=name) for name in ("trees", "trees-rank", "random")}
    assert len(paths) == 3
    assert place(tmp_path, "C6", 0) != place(tmp_path, "C6", 1)


def test_rivals_are_held_against_the_first_model() -> None:
    runs = {
        "trees": Run(Path("a"), 20.0, 200), "treegru": Run(Path("b"), 30.0, 200),
        "random": Run(Path("c"), 50.0, 200),
    }  # fmt: skip
    samples = [(1e-3,) * 7, (1.01e-3,) * 7, (2e-3,) * 7]
    table = rivals.table(rivals.lines_of("C6", 0, runs, samples))
    assert [row[1:] for row in table.rows] == [
        ["trees", "1", "1", "1.000", "-", "1.000", "1.000", "20.0", "1.00"],
        ["treegru", "1", "1.01", "0.990", "-", "0.990", "0.990", "30.0", "1.50"],
        ["random", "1", "2", "0.500", "-", "0.500", "0.500", "50.0", "2.50"],
    ]
    assert table.notes[1:] == [
        "treegru: in the mean at most 3% slower on 1 of 1 cases; by the intervals surely so on 0, "
        "surely slower on 0; in at most 2 times the seconds on 1",
        "random: in the mean at most 3% slower on 0 of 1 cases; by the intervals surely so on 0, "
        "surely slower on 0; in at most 2 times the seconds on 0",
    ]


def test_several_seeds_say_how_sure_a_rivals_place_is() -> None:
    line = rivals.Line(
        case="C7", model="trees", seed=0, trials=200, wall_s=20.0, tuned_s=1e-3, speed=1.0,
        low=1.0, high=1.0, longer=1.0,
    )  # fmt: skip
    speeds = {"close": (1.0, 1.01, 0.99), "apart": (0.8, 1.0, 1.2), "behind": (0.8, 0.81, 0.79)}
    groups = [[replace(line, seed=k) for k in range(3)]]
    groups += [[replace(line, model=m, speed=s) for s in of] for m, of in speeds.items()]
    table = rivals.table([x for g in groups for x in g])
    assert [row[5] for row in table.rows] == [
        "1.000 to 1.000", "0.975 to 1.025", "0.596 to 1.634", "0.775 to 0.825",
    ]  # fmt: skip
    sure = ("surely so on 1", "surely slower on 1")
    assert [words in note for note in table.notes[1:] for words in sure] == [
        True, False, False, False, False, True,
    ]  # fmt: skip


def test_the_interval_of_a_geometric_mean_is_students_of_the_logarithms() -> None:
    low, high = interval([2.0, 8.0])
    reach = 12.7062 * np.log(4) / 2  # t of one degree, times the standard error
    assert (low, high) == pytest.approx((4 / np.exp(reach), 4 * np.exp(reach)), rel=1e-4)
    assert interval([1.5]) == interval([1.0, inf]) == (0.0, inf)


def test_a_short_budget_has_a_share_of_the_speed_of_a_long_one() -> None:
    line = budgets.Line(
        program="toy.py:model", seed=0, short=Run(Path("a"), 90.2, 400),
        long=Run(Path("b"), 599.0, 3000), default_s=4e-3, short_s=1.25e-3, long_s=1e-3,
        share=0.8, low=0.79, high=0.81,
    )  # fmt: skip
    assert budgets.table([line], 90, 600).rows == [
        [
            "toy.py:model",
            "0",
            "4",
            "1.25",
            "1",
            "0.800",
            "0.790 to 0.810",
            "400, 3000",
            "100%, 100%",
        ]
    ]
