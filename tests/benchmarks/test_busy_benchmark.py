"""What the benchmark of a busy machine makes of its figures; nothing is tuned here."""

import dataclasses
import json

import pytest

from benchmarks.busy import Declared, Line, Tuned, declared_table, line_of, table
from hlotune.measure.timing.comparison import Ratio


def declared(*quiet: float) -> Declared:
    return Declared(what="dot", speedup=2.0, low=1.5, high=2.5, quiet=quiet)


def line(*figures: Declared) -> Line:
    return Line(
        seed=3,
        quiet=Tuned(trials=900, barred=0, load=""),
        busy=Tuned(trials=300, barred=1, load="other processes took 50 %"),
        speed=Ratio(0.97, 0.95, 0.99),
        declared=figures,
    )


@pytest.mark.parametrize(("quiet", "holds"), [((1.4, 1.6, 9.0), True), ((1.4, 1.45, 2.0), False)])
def test_an_interval_holds_where_the_median_of_the_processes_is_inside(
    quiet: tuple[float, ...], holds: bool
) -> None:
    assert declared(*quiet).holds is holds


def test_the_table_has_both_runs_and_counts_the_intervals_that_hold() -> None:
    found = table([line(declared(2.0), declared(9.0))], 40.0)
    (row,) = found.rows
    assert row == [
        "3", "900", "300", "0.33", "0.970", "0.950 to 0.990", "1 of 2", "0", "1",
        "other processes took 50 %",
    ]  # fmt: skip
    assert "1 of 2 declared intervals hold the quiet figure" in found.notes


def test_each_interval_has_a_row_with_the_range_of_the_quiet_figures() -> None:
    (row,) = declared_table([line(declared(1.4, 1.6, 9.0))]).rows
    assert row == ["3", "dot", "2.00", "1.50 to 2.50", "1.60", "1.40 to 9.00", "yes"]


def test_a_line_that_was_kept_is_read_back() -> None:
    kept = json.dumps(dataclasses.asdict(line(declared(2.0, 3.0))))
    assert json.dumps(dataclasses.asdict(line_of(json.loads(kept)))) == kept
