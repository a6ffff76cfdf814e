"""Two runs side by side."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.tuning_logs.comparison import compared, to_json, to_markdown, to_text
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import evidence
from hlotune.tuning_logs.page.two_runs import two_runs_page
from hlotune.tuning_logs.report import Report, report
from tests.support.html_pages import Page
from tests.support.mlp_records import said
from tests.support.recorded import KERNEL, fill, final, start


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Report, Report]:
    """The second run found more for one kernel."""
    with Database(tmp_path / "tuning.db") as database:
        first, second = fill(database), fill(database)
        database.record_final(second, KERNEL, final(3.0))
        return report(database, first), report(database, second)


def test_a_kernel_that_gained_more_is_marked_where_its_intervals_lie_apart(
    runs: tuple[Report, Report],
) -> None:
    found = compared(*runs)
    pair = next(p for p in found.kernels if p.label == "add [8]")
    assert (pair.first_speedup, pair.second_speedup, pair.proven) == (2.0, 3.0, True)
    assert pair.ratio == pytest.approx(1.5)
    same = next(p for p in found.kernels if p.label == "multiply [8]")
    assert (same.ratio, same.proven) == (1.0, False)
    assert "1.50*" in to_text(found) and "the intervals of 1 lie apart" in to_text(found)


def test_runs_under_other_conditions_are_said_not_to_be_comparable(
    runs: tuple[Report, Report],
) -> None:
    first, second = runs
    other = replace(second, threads=8, toolchain={"jaxlib": "0.9"})
    text = to_text(compared(first, other))
    assert "the runs differ in toolchain, threads: their times are not comparable" in text
    assert "the runs differ" not in to_text(compared(first, second))


def test_a_kernel_of_one_run_alone_has_no_ratio(runs: tuple[Report, Report]) -> None:
    first, second = runs
    found = compared(first, replace(second, kernels=()))
    assert len(found.kernels) == 3
    assert all(p.ratio is None and p.second_used_s is None for p in found.kernels)


def test_json_and_markdown_have_every_kernel(runs: tuple[Report, Report]) -> None:
    found = compared(*runs)
    data = json.loads(to_json(found))
    assert [len(data["kernels"]), data["runs"], data["differing"]] == [
        3, [runs[0].run, runs[1].run], [],
    ]  # fmt: skip
    rows = [line for line in to_markdown(found).splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_the_command_takes_two_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "tuning.db")
    with Database(path) as database:
        first, second = fill(database), fill(database)
    assert "A: run" in said(capsys, "report", first, second, "--db", path)
    assert run_command(["report", first, second, "--csv", "--db", path]) == 2
    assert (
        "expected text, -o with a name in .html, --markdown or --json of two runs"
        in capsys.readouterr().err
    )


def test_two_runs_are_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Database(tmp_path / "tuning.db") as database:
        first, second = fill(database), fill(database)
        database.record_final(second, KERNEL, final(3.0))
        with database.writing() as sql:
            sql.execute("update runs set numerics = 'fast' where id = ?", [second])
    file = tmp_path / "two.html"
    where = ("--db", str(tmp_path / "tuning.db"))
    assert f"report: {file}" in said(capsys, "report", first, second, "-o", str(file), *where)
    read = Page.of(file.read_text(encoding="utf-8"))
    assert read.references() == [] and read.scripts() == []
    assert len(read.ids) == len(set(read.ids)) and len(read.named("h1")) == 1
    assert "The runs differ in numerics: their times are not comparable" in read.words
    assert "numerics (differs)" in read.words and "seed (differs)" not in read.words
    assert "1.50*" in read.words and read.words.count("1.50 times as fast") == 2
    images = [
        e.attributes["aria-label"] for e in read.elements if e.attributes.get("role") == "img"
    ]
    assert "add [8] 2.00 in A and 3.00 in B" in images[0]
    assert images[1].startswith("In A the time of all kernels falls to")


def test_two_runs_without_a_kernel_in_common_are_a_page(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        first, second = fill(database), start(database)
        page = two_runs_page(evidence(database, first), evidence(database, second), "1.0")
    read = Page.of(page)
    assert "No kernel was compared in both runs." in read.words
    assert "B: " in read.words and len(read.named("svg")) == 1
