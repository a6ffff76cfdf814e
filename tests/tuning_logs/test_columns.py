"""Columns that a narrow terminal goes without."""

from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.tuning_logs.columns import fitting, left_out
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import Report, report
from tests.support.recorded import fill


@pytest.fixture
def full(tmp_path: Path) -> Report:
    with Database(tmp_path / "tuning.db") as database:
        return report(database, fill(database))


def test_the_first_of_the_spare_columns_go_first_and_no_more_than_have_to() -> None:
    widths = {"a": 10, "b": 10, "c": 10, "d": 10}
    assert fitting(widths, ("c", "b"), 46) == ["a", "b", "c", "d"]
    assert fitting(widths, ("c", "b"), 40) == ["a", "b", "d"]
    assert fitting(widths, ("c", "b"), 5) == ["a", "d"]


def test_what_is_left_out_is_said() -> None:
    assert left_out([]) == ""
    assert left_out(["key", "sites"]).startswith("no room for: key, sites (a wider terminal")


@pytest.mark.parametrize("width", [80, 100, 120, 180])
def test_the_final_table_keeps_its_figures_on_one_line(full: Report, width: int) -> None:
    long = tuple(replace(k, label=f"{k.label} +scale+add+relu and more") for k in full.kernels)
    text = render(replace(full, kernels=long), color=False, width=width)
    rows = [line for line in text.splitlines() if line.startswith((" add [8]", " multiply [8]"))]
    assert len(rows) == 2
    assert max(map(len, rows)) <= width
    for figure in ("2.00 ms", "1.00 ms", "2.00", "1.96 to 2.04"):
        assert figure in rows[1], (figure, rows[1])
    assert ("no room for" in text) == (width < 150)


def test_shares_of_the_limit_stand_beside_those_of_the_peak(full: Report) -> None:
    shares = {k.key: 0.75 for k in full.kernels if k.won}
    text = render(full, color=False, limit_shares=shares)
    row = next(line for line in text.splitlines() if "add [8]" in line)
    assert " 75% " in row and "of limit" in text
