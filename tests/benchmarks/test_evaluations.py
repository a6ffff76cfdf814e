"""What `tune model eval --json` wrote comes into the tables of docs/models.md."""

import json
from collections.abc import Sequence
from dataclasses import fields
from math import inf, isnan, nan
from pathlib import Path

import pytest

from benchmarks import evaluations, page
from benchmarks.evaluations import AIMED, FAMILIES, KERNELS
from hlotune.cli.model import as_json
from hlotune.costmodel.ranking_quality import Quality
from hlotune.search.learning.train_and_evaluate import By, Judged
from tests.support.tree import ROOT

MACHINES = ("one", "other")


def line(model: str, machine: str, by: By, pairs: float, trials: int = 300) -> Judged:
    figures = dict.fromkeys((f.name for f in fields(Quality)), 0.5)
    return Judged(
        model=model,
        seed=0,
        key="ab",
        family="cd",
        label="dot",
        machine=machine,
        by=by,
        trials=trials,
        quality=Quality(**{**figures, "pairwise_accuracy": pairs, "kendall": nan}),
        curve=(0.5, 1.0),
        train_s=1.0,
        predict_rows_per_s=1e3,
    )


KINDS: tuple[By, ...] = ("all trials", "300 of all", "at random")
LINES = [
    line(model, machine, by, pairs, trials)
    for model, pairs in (("trees", 0.9), ("treegru", 0.89))
    for machine, trials in zip(MACHINES, (300, 142), strict=True)
    for by in KINDS
]


def written(name: str, lines: Sequence[Judged]) -> None:
    file = Path("build") / f"{name}.json"
    file.write_text(json.dumps([as_json(x) for x in lines]), encoding="utf-8")


def blocks(text: str) -> dict[str, list[str]]:
    """By name, the lines between marks."""
    return {m["name"]: m[0].splitlines()[1:-1] for m in page.MARKED.finditer(text)}


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page of models as it stands, in a directory of the test's own."""
    monkeypatch.chdir(tmp_path)
    for folder in ("build", "docs"):
        Path(folder).mkdir()
    for empty in (page.PAGE, page.RELIABILITY):
        empty.write_text("")
    text = (ROOT / page.MODELS).read_text(encoding="utf-8")
    page.MODELS.write_text(text, encoding="utf-8")
    return text


def test_the_page_of_models_has_a_place_for_each_table() -> None:
    text = (ROOT / page.MODELS).read_text(encoding="utf-8")
    assert page.names(text) == [KERNELS, FAMILIES, AIMED]


def test_what_was_judged_comes_into_the_page_in_its_columns(before: str) -> None:
    written(KERNELS, LINES)
    written(FAMILIES, LINES[:4])
    page.main()
    text = page.MODELS.read_text(encoding="utf-8")
    new, old = blocks(text), blocks(before)
    for name in (KERNELS, FAMILIES):
        assert new[name][:2] == old[name][:2]
    assert len(new[KERNELS]) == 2 + 12 and len(new[FAMILIES]) == 2 + 4
    first = new[KERNELS][2]
    assert first.startswith("| trees | one | all trials | 1 | 0.900 | 0.500 | 0.500 | - | 0.500 |")
    assert first.endswith("| 0.500 | 0.900 |")
    assert [x.split(" | ")[:2] for x in new[AIMED][1:]] == [
        x.split(" | ")[:2] for x in old[AIMED][1:]
    ]
    assert page.MARKED.sub("", text) == page.MARKED.sub("", before)


def test_aims_are_told_of_each_machine(before: str) -> None:
    written(KERNELS, LINES)
    written(FAMILIES, [line("trees", m, "all trials", 0.7) for m in MACHINES])
    page.main()
    found = blocks(page.MODELS.read_text(encoding="utf-8"))[AIMED]
    assert found[0] == "| asked of the trees | aim | one | other |"
    assert "| pairs, all trials | 0.87 | 0.900 | 0.900 |" in found
    assert "| recall@30, 300 of all | 0.65 | 0.500 | 0.500 |" in found
    assert "| recall@30 of 300 at random | - | 0.500 | - |" in found
    assert "| the worst kernel of these, no less than | 0.68 | 0.700 | 0.700 |" in found
    assert "| the worst kernel of these, drawn at random | - | - | - |" in found
    assert found[-1] == "| TreeGRU behind the trees in pairs, at most | 0.02 | 0.010 | 0.010 |"


def test_what_was_not_judged_stays(before: str) -> None:
    page.main()
    assert page.MODELS.read_text(encoding="utf-8") == before
    written(FAMILIES, LINES)
    page.main()
    new, old = blocks(page.MODELS.read_text(encoding="utf-8")), blocks(before)
    assert (new[KERNELS], new[AIMED]) == (old[KERNELS], old[AIMED])
    assert new[FAMILIES] != old[FAMILIES]


def test_null_is_no_number_and_of_a_regret_infinite() -> None:
    data = as_json(LINES[0])
    again = evaluations.judged_of(json.loads(json.dumps({**data, "top1_regret": None})))
    assert isnan(again.quality.kendall) and again.quality.top1_regret == inf
    assert as_json(evaluations.judged_of(data)) == data


def test_the_page_quotes_the_commands_that_make_runs() -> None:
    makefile, quoted = (
        " ".join((ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ").split())
        for file in ("Makefile", page.MODELS)
    )
    recipe = makefile.partition("bench-eval: setup-oldest ")[2].partition(" -m benchmarks.page")[0]
    database = "tune model eval --database tuning_logs/trials.jsonl.gz "
    first, second = (x.partition(database)[2] for x in recipe.split(" --json > ")[:2])
    assert database + first in quoted and f"`{second}`" in quoted
    for name in (KERNELS, FAMILIES):
        assert f"mv build/{name}.json.part build/{name}.json" in recipe
