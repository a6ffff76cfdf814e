"""`tune model` trains, judges and exports models, and draws how they do."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hlotune.cli.charts import line_chart
from hlotune.cli.main import run_command
from hlotune.cli.model import MEANS, means, print_tables, rows_per_s
from hlotune.costmodel import files
from hlotune.costmodel.files import header_of
from hlotune.costmodel.model import MODELS
from hlotune.costmodel.pretrained import start
from hlotune.search.learning import train_and_evaluate
from hlotune.search.learning.train_and_evaluate import cross_judged, judged
from hlotune.search.learning.training_rows import Examples
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.records import export_records
from tests.support.dot_records import EXTENTS, examples_of, recorded
from tests.support.few_rounds import grow_few_rounds


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("records") / "tuning.db")


@pytest.fixture(scope="module")
def of(path: Path) -> list[Examples]:
    return examples_of(path)


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is one of the test, and no model takes long to learn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    grow_few_rounds(monkeypatch)


def test_a_trained_model_says_what_it_saw_and_can_be_judged_and_exported(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    model = tmp_path / "m.npz"
    assert run_command(["model", "train", "--db", str(path), "-o", str(model)]) == 0
    told = capsys.readouterr().out
    assert "trees, trained on" in told and "when to stop" not in told
    assert len(header_of(model).training.kernels) == len(EXTENTS)  # type: ignore[union-attr]
    out = tmp_path / "m.json"
    assert run_command(["model", "export", "--file", str(model), "-o", str(out)]) == 0
    assert "learner" in json.loads(out.read_text())
    assert run_command(["model", "eval", "--db", str(path), "--file", str(model)]) == 1
    assert "expected kernels that the model has not seen" in capsys.readouterr().err


def test_one_kernel_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    path, out = recorded(tmp_path / "a.db", EXTENTS[:1]), tmp_path / "m.npz"
    assert run_command(["model", "train", "--db", str(path), "-o", str(out)]) == 0
    told = capsys.readouterr()
    assert " trials of 1 kernel of 1 family" in told.out
    assert "no other kernel could say when to stop" in told.out
    assert f"reading the trials of {path}" in told.err
    assert "teaching trees by" in told.err
    assert start("trees", out).words.endswith(" of 1 kernel")


def test_an_interrupted_training_leaves_nothing_and_says_so(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cached: None,
) -> None:
    """Whether the model is being made, or its file is."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "out" / "m.npz"
    out.parent.mkdir()
    for module, name in ((train_and_evaluate, "trained"), (files, "annotate")):
        with monkeypatch.context() as at:
            at.setattr(module, name, interrupted)
            assert run_command(["model", "train", "--db", str(path), "-o", str(out)]) == 130
        last = capsys.readouterr().err.splitlines()[-1]
        assert last == "tune: interrupted; nothing was written"
        assert not list(out.parent.iterdir())


def test_eval_tells_on_stderr_which_split_it_is_at(
    path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    assert run_command(["model", "eval", "--db", str(path), "--model", "roofline"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [
        f"roofline, split {k} of 3: taught by 5 kernels, judged by 1 kernel" for k in (1, 2, 3)
    ]


def test_records_in_json_lines_are_as_good_as_a_database(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    lines = tmp_path / "records.jsonl.gz"
    with Database(path) as database:
        export_records(database, lines)
    told = []
    for source in (path, lines):
        out = tmp_path / f"{source.name}.npz"
        run_command(["model", "train", "--json", "--db", str(source), "-o", str(out)])
        told.append(json.loads(capsys.readouterr().out))
    assert told[0]["trials"] == told[1]["trials"] > 0
    assert told[0]["kernels"] == told[1]["kernels"]


def test_eval_prints_figures_and_draws_them(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    plot = tmp_path / "plot.svg"
    options = ["--model", "roofline", "--model", "random", "--seeds", "1", "--plot", str(plot)]
    assert run_command(["model", "eval", "--db", str(path), *options]) == 0
    printed = capsys.readouterr().out
    assert "pairs" in printed and "roofline" in printed and "random" in printed
    assert "roofline" in plot.read_text()
    assert run_command(["model", "eval", "--db", str(path), *options, "--json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {x["model"] for x in lines} == {"roofline", "random"}
    assert all(0 <= x["pairwise_accuracy"] <= 1 for x in lines)
    assert {x["by"] for x in lines} == {"all trials", "at random"}
    assert all(x["predict_s"] > 0 and x["train_s"] > 0 for x in lines)


def test_eval_averages_neither_machines_nor_kinds_of_trials(of: Sequence[Examples]) -> None:
    lines = [x for e in of for x in judged("roofline", MODELS["roofline"](), e)]
    lines += [replace(x, machine="another") for x in lines]
    sets = dict(means(lines))
    assert list(sets) == [
        ("roofline", machine, by)
        for machine in (of[0].machine, "another")
        for by in ("all trials", "at random")
    ]
    assert {cells[0] for cells in sets.values()} == {str(len(of))}


def test_an_empty_database_teaches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    Database(tmp_path / "a.db").close()
    arguments = ["--db", str(tmp_path / "a.db"), "-o", str(tmp_path / "m.npz")]
    assert run_command(["model", "train", *arguments]) == 1
    assert "expected recorded trials" in capsys.readouterr().err


def test_too_few_kernels_are_not_split(
    path: Path, capsys: pytest.CaptureFixture[str], cached: None
) -> None:
    assert run_command(["model", "eval", "--db", str(path), "--hold-out", "families"]) == 1
    assert "expected two families, to hold some families out, got" in capsys.readouterr().err


def test_an_unknown_model_is_misuse(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["model", "eval", "--db", str(path), "--model", "oracle"]) == 2
    assert "got oracle" in " ".join(capsys.readouterr().err.split())


def test_lines_that_are_no_records_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text("nothing\n")
    arguments = ["--db", str(tmp_path / "a.jsonl"), "-o", str(tmp_path / "m.npz")]
    assert run_command(["model", "train", *arguments]) == 2
    assert "expected records in" in capsys.readouterr().err


def test_rows_a_second_are_those_of_all_kernels_together(of: Sequence[Examples]) -> None:
    line = next(cross_judged("random", of, "kernels", 0))
    rates = [(30, 10.0), (10, 10.0), (60, 30.0)]  # 3 s, 1 s, 2 s
    lines = [replace(line, trials=n, predict_rows_per_s=rate) for n, rate in rates]
    assert rows_per_s(lines) == pytest.approx(100 / 6)


def test_the_table_of_means_says_how_many_seconds_training_and_predicting_take(
    of: Sequence[Examples], capsys: pytest.CaptureFixture[str]
) -> None:
    line = next(cross_judged("random", of, "kernels", 0))
    lines = [
        replace(line, trials=trials, train_s=train_s, predict_rows_per_s=40.0)
        for trials, train_s in ((20, 6.0), (60, 7.0))
    ]
    print_tables(lines)
    *_, header, _, row = capsys.readouterr().out.splitlines()
    found = dict(zip(MEANS, re.split(r"\s{2,}", row.strip()), strict=True))
    assert re.split(r"\s{2,}", header.strip()) == [name.lstrip(">") for name in MEANS]
    assert (found[">train, s"], found[">predict, s"], found[">rows/s"]) == ("6.5", "1", "40")


def test_a_chart_is_an_svg_with_a_line_a_name() -> None:
    text = line_chart("a < b", "x", "y", {"one": [0.0, 1.0], "two": [0.5, 0.5, 1.0]})
    root = ElementTree.fromstring(text)
    lines = [e for e in root.iter() if e.tag.endswith("polyline")]
    assert [len(e.attrib["points"].split()) for e in lines] == [2, 3]
    assert "a < b" in [e.text for e in root.iter()]
