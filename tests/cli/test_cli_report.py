"""`tune report`: forms, files, and what is refused."""

import csv
import json
from pathlib import Path

import pytest

from hlotune.cli.main import run_command
from hlotune.schedules.errors import VersionError
from hlotune.tuning_logs import flat
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import evidence
from hlotune.tuning_logs.figures import canvas
from tests.support.html_pages import Page
from tests.support.mlp_records import recorded, said
from tests.support.recorded import fill


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("records"))


def test_a_page_shows_the_code_that_was_verified(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    file, folder = tmp_path / "report.html", tmp_path / "figures"
    text = said(capsys, "report", "model", "-o", str(file), "--figures", str(folder), "--db", path)
    assert f"report: {file}" in text and "as SVG and PNG" in text
    read = Page.of(file.read_text(encoding="utf-8"))
    assert read.references() == [] and read.scripts() == []
    assert "is the machine code that was verified" in read.words
    assert "define i32 @kernel(ptr" in read.words and "parallel" in read.words
    assert any(e.attributes.get("class") == "nest" for e in read.elements)
    assert (folder / "speedups.svg").exists() and (folder / "speedups.png").exists()


def test_markdown_is_a_table_for_a_pull_request(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    lines = said(capsys, "report", "model", "--markdown", "--db", path).splitlines()
    assert lines[0] == "### Tuning report of model"
    rows = [line for line in lines if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert "| 200 us | 100 us | 2.00 |" in rows[2]


def test_csv_has_a_row_a_kernel_with_units_in_the_names(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    rows = list(csv.DictReader(said(capsys, "report", "model", "--csv", "--db", path).splitlines()))
    assert len(rows) == 2
    assert float(rows[0]["default_s"]) == pytest.approx(2e-4)
    assert (rows[0]["decision"], rows[0]["won"], rows[1]["decision"]) == (
        "tuned", "True", "kept xla",
    )  # fmt: skip


@pytest.mark.parametrize("ending", [".json", ".md", ".csv", ".txt"])
def test_the_ending_of_a_file_says_its_form(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"report{ending}"
    said(capsys, "report", "model", "-o", str(file), "--db", path)
    text = file.read_text(encoding="utf-8")
    if ending == ".json":
        assert json.loads(text)["won"] == 1
    else:
        assert "model" in text


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(["report", "model", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tune: ") and error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "report.pdf"), "expected a file whose name ends in .html"),
        (("--csv", "--markdown"), "expected one form, got --markdown and --csv"),
        (("--csv", "-o", "report.html"), "expected --csv or a name that says another form"),
        (("-o", "no/such/folder/report.html"), "got no folder for it"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], path: str, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(capsys, *arguments, "--db", path)


def test_a_report_is_not_written_over_its_database(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    link = tmp_path / "report.html"
    link.symlink_to(path)
    assert "would be lost" in refused(capsys, "-o", str(link), "--db", path)


def test_without_matplotlib_a_page_is_one_error_and_text_is_printed(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise VersionError(f"expected matplotlib, found none; install it with `{canvas.INSTALL}`")

    monkeypatch.setattr(canvas, "require_matplotlib", missing)
    file = tmp_path / "report.html"
    assert "pip install 'hlotune[report]'" in refused(capsys, "-o", str(file), "--db", path)
    assert not file.exists()
    assert "all kernels" in said(capsys, "report", "model", "--db", path)


HOSTILE = "=1+1|<script>`\x1b[31m\n# x"


def test_markdown_and_csv_take_text_of_records_as_data(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        run = fill(database)
        with database.writing() as sql:
            sql.execute("update kernels set label = ?", [HOSTILE])
        found = evidence(database, run)
    markdown, table = flat.to_markdown(found), flat.to_csv(found)
    assert "\x1b" not in markdown + table
    assert "<script" not in markdown.replace("\\<", "")
    assert len({line.replace("\\|", "").count("|") for line in markdown.splitlines() if
                line.startswith("|")}) == 1  # fmt: skip
    labels = {row["label"] for row in csv.DictReader(table.splitlines())}
    assert labels == {"'=1+1|<script>`\\x1b[31m\\n# x"}
