"""Tables of benchmarks: printed, kept with their conditions, and put into the page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import page, results, tracked
from benchmarks.kernels import kept
from hlotune.measure.machine.targets import TARGETS
from tests.benchmarks.test_kernels_benchmark import LINE
from tests.support.recorded import PROPERTIES
from tests.support.tree import ROOT

CONDITIONS = {
    "started": "2026-01-01T00:00:00+00:00",
    "machine": "Test CPU",
    "threads": 2,
    "peak_flop_per_s": {"f32": 2e11},
    "toolchain": {"jaxlib": "0", "llvm": "0", "codegen": "0"},
    "load_average": 0.0,
}


def test_a_table_is_kept_with_its_conditions_and_comes_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = results.Table(name="toy", columns=["a", ">b"], rows=[["x", "1"]], notes=["why"])
    results.publish(table, CONDITIONS, [{"b_s": 1.0}])
    assert "Test CPU, 2 threads" in capsys.readouterr().out
    kept = json.loads((tmp_path / "build" / "toy.json").read_text())
    blocks = {"toy": page.markdown(kept)}
    text = page.filled("# T\n<!-- toy -->\nold\n<!-- /toy -->\nend\n", blocks)
    assert "| a | b |\n| --- | ---: |\n| x | 1 |\n\n- why\n<!-- /toy -->\nend" in text
    assert "old" not in text and "load before 0.00" in text


def test_charts_that_the_page_shows_are_taken_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs" / "charts").mkdir(parents=True)
    (tmp_path / "build").mkdir()
    page.PAGE.write_text("![one](charts/one.svg) ![two](charts/two.svg)")
    page.MODELS.write_text("")
    page.RELIABILITY.write_text("")
    (tmp_path / "docs/charts/two.svg").write_text("old")
    (tmp_path / "build/one.svg").write_text("new")
    (tmp_path / "build/three.svg").write_text("of no page")
    page.main()
    shown = {f.name: f.read_text() for f in (tmp_path / "docs/charts").iterdir()}
    assert shown == {"one.svg": "new", "two.svg": "old"}


def test_conditions_name_the_kind_of_core_and_those_of_older_files_are_read() -> None:
    under = results.conditions(replace(TARGETS["znver4"], name="EPYC"), PROPERTIES)
    assert results.described(under).startswith("EPYC (znver4), 2 threads, measured f32 peak 200.0")
    assert "processor" not in CONDITIONS
    assert results.described(CONDITIONS).startswith("Test CPU, 2 threads, measured f32 peak 200.0")


def test_numbers_that_json_has_not_are_null(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = results.Table(name="toy", columns=["a"], rows=[])
    results.publish(table, CONDITIONS, [{"high": float("inf"), "all": (1.0, float("nan"))}])
    kept = json.loads((tmp_path / "build" / "toy.json").read_text())
    assert kept["data"] == [{"high": None, "all": [1.0, None]}]


def test_a_new_run_sets_the_table_of_an_earlier_one_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    again = {**CONDITIONS, "started": "2031-01-02T03:04:05+00:00"}
    for under, rows in ((CONDITIONS, ["1"]), (again, ["2"]), (again, ["3"])):
        results.publish(results.Table(name="toy", columns=["a"], rows=[rows]), under, [])
    kept = sorted((tmp_path / "build").iterdir())
    assert [json.loads(path.read_text())["rows"] for path in kept] == [[["1"]], [["3"]]]
    assert kept[1].name == "toy.json"


def test_the_page_is_filled_from_the_files_that_are_named_as_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    page.PAGE.write_text("<!-- toy -->\nold\n<!-- /toy -->\n<!-- other -->\nold\n<!-- /other -->\n")
    page.MODELS.write_text("")
    page.RELIABILITY.write_text("")
    results.publish(results.Table(name="toy", columns=["a"], rows=[["new"]]), CONDITIONS, [])
    page.main()
    text = page.PAGE.read_text()
    assert "| new |" in text.partition("<!-- /toy -->")[0]
    assert text.endswith("<!-- other -->\nold\n<!-- /other -->\n")


def test_tables_of_a_kind_of_core_that_no_page_has_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    for empty in (page.PAGE, page.MODELS, page.RELIABILITY):
        empty.write_text("")
    kernel = replace(LINE, conditions={**CONDITIONS, "processor": "znver9"})
    kept.add(tracked.file_of("kernels", "znver9"), kernel)
    page.main()
    assert (
        "kernels_znver9 stands in no page; put <!-- kernels_znver9 -->" in capsys.readouterr().out
    )


def test_what_was_not_measured_stays_in_the_page() -> None:
    text = "<!-- toy -->\nnot yet measured\n<!-- /toy -->\n"
    assert page.filled(text, {}) == text


def test_pages_of_the_lab_are_filled_and_get_their_charts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("docs/lab", "docs/charts", "build"):
        Path(folder).mkdir(parents=True)
    for other in (page.PAGE, page.RELIABILITY, page.MODELS):
        other.write_text("")
    (page.LAB / "toys.md").write_text("<!-- toy -->\nold\n<!-- /toy -->\n![a](../charts/a.svg)")
    Path("build/a.svg").write_text("drawn")
    results.publish(results.Table(name="toy", columns=["a"], rows=[["new"]]), CONDITIONS, [])
    page.main()
    assert "| new |" in (page.LAB / "toys.md").read_text()
    assert Path("docs/charts/a.svg").read_text() == "drawn"


def test_the_page_of_the_latest_tables_is_short_and_pages_of_the_lab_say_what_they_are_of() -> None:
    latest, _, *lab = page.pages(ROOT)
    assert latest.stat().st_size < 30_000
    assert {path.name for path in lab} == set(
        re.findall(r"\(lab/([\w-]+\.md)\) \|", latest.read_text(encoding="utf-8"))
    )
    for path in lab:
        head = path.read_text(encoding="utf-8")[:600]
        assert re.search(r"jax(lib)? \d+\.\d+\.\d+", head), path


def test_the_charts_that_pages_show_are_there() -> None:
    for path in page.pages(ROOT):
        for chart in page.CHART.findall(path.read_text(encoding="utf-8")):
            assert (path.parent / chart).exists()


def test_tables_of_kernels_and_models_are_what_their_tracked_results_make() -> None:
    """`make performance` puts them there; no figure in them is typed."""
    texts = [path.read_text(encoding="utf-8") for path in page.pages(ROOT)]
    for name, table in page.tracked_tables(ROOT / tracked.RESULTS).items():
        shown = [text for text in texts if f"<!-- {name} -->" in text]
        block = f"<!-- {name} -->\n{page.markdown(table)}\n<!-- /{name} -->"
        assert all(block in text for text in shown), f"{name}: run `make performance`"


def every_name() -> list[str]:
    texts = (path.read_text(encoding="utf-8") for path in page.pages(ROOT))
    return [name for text in texts for name in page.names(text)]


def test_the_pages_have_a_place_for_every_table() -> None:
    """Those of another machine have its kind of core behind their name."""
    names = every_name()
    assert len(names) == len(set(names)), "a table stands in one page"
    assert {re.sub(r"_znver\d$", "", name) for name in names} == {
        "algorithms",
        "arguments",
        "bandwidth",
        "budgets",
        "busy",
        "busy_intervals",
        "columns",
        "defaults",
        "defaults_sums",
        "functions",
        "hostile_forged",
        "hostile_kills",
        "hostile_mutations",
        "kernels",
        "kernels_by_hand",
        "learning",
        "matrix",
        "models",
        "models_losses",
        "models_peers",
        "models_vgg19",
        "operators",
        "peers",
        "peers_apart",
        "peers_channels_first",
        "peers_pieces",
        "peers_rolling",
        "products",
        "programs",
        "rivals",
        "search",
        "search_strict",
        "searchers",
        "searches",
        "shortfalls",
        "tuner",
        "types",
        "waking",
    }
