"""The page of a report: one file that needs nothing, escapes what records say, and can be read."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import Evidence, evidence
from hlotune.tuning_logs.page import page as page_module
from hlotune.tuning_logs.page.markup import Markup, tag
from hlotune.tuning_logs.page.overview import headline
from hlotune.tuning_logs.page.page import MOST_BYTES, page
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated
from tests.support.html_pages import Page, contrast, variables
from tests.support.recorded import fill, start

CSS = Path(page_module.__file__).with_name("style.css").read_text(encoding="utf-8")
LIGHT, DARK = ":root {", "@media (prefers-color-scheme: dark)"
HOSTILE = (
    '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    "</style><style>*{background:url(http://evil.example/)}</svg><a href='javascript:1'>x</a>",
    "$\\frac{1}{0}$ & &lt;b&gt; \x1b[31m\u202e\ud800",
    "ラベル 🚀 " * 40,
)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    with Database(tmp_path_factory.mktemp("page") / "tuning.db") as database:
        return evidence(database, fill(database))


@pytest.fixture(scope="module")
def html(found: Evidence) -> str:
    return page(found, {}, "1.0")


@pytest.fixture(scope="module")
def read(html: str) -> Page:
    return Page.of(html)


MADE = Regenerated(
    flops=10**7,
    dtype="f32",
    boxes=(),
    llvm="define i32 @kernel()\n" * 100,
    assembly=".LBB0_1:\n\tvfmadd231ps\t(%rax), %zmm1, %zmm2\n\tjne\t.LBB0_1\n",
    code="0" * 32,
    features={},
    correlated=(),
)


def test_a_page_refers_to_nothing_outside_of_itself(read: Page) -> None:
    assert read.references() == []
    assert read.scripts() == []
    assert not read.named("link", "img", "iframe", "audio", "video")
    (policy,) = [
        e for e in read.named("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.attributes["content"].startswith("default-src 'none'")


def test_the_check_of_references_finds_those_that_are_there() -> None:
    read = Page.of(
        '<p><img src="http://a/b.png"><a href="#x" style="background: url(x.png)">x</a></p>'
        '<svg><use href="other.svg#a"/></svg><script>x</script><style>@import "y.css";</style>'
    )
    assert read.references() == ["http://a/b.png", "x.png", "other.svg#a", '@import "y.css"']
    assert [e.name for e in read.scripts()] == ["script"]


def test_ids_are_unique_and_every_link_within_the_page_leads_to_one(html: str, read: Page) -> None:
    assert len(read.ids) == len(set(read.ids))
    inside = {
        value[1:]
        for e in read.elements
        for name, value in e.attributes.items()
        if name.endswith("href") and value.startswith("#")
    } | set(re.findall(r"url\(#([^)]+)\)", html))
    assert inside and inside <= set(read.ids)


def test_every_figure_has_an_alternative_text_with_its_values(read: Page) -> None:
    images = [e for e in read.elements if e.attributes.get("role") == "img"]
    assert len(images) == len(read.named("svg")) == len(read.named("figure")) >= 6
    texts = [e.attributes["aria-label"] for e in images]
    assert len(set(texts)) == len(texts)
    assert "whole program 1.50 times (1.47 to 1.53)" in texts[0]
    assert all(e.attributes["aria-hidden"] == "true" for e in read.named("svg"))


def test_what_scrolls_can_be_reached_by_the_keyboard_and_has_a_name(read: Page) -> None:
    wide = [e for e in read.elements if e.attributes.get("class") == "wide"]
    assert wide
    assert all(e.attributes["tabindex"] == "0" and e.attributes["aria-label"] for e in wide)
    assert all(e.attributes.get("tabindex") == "0" for e in read.named("pre"))
    assert read.named("a")[0].attributes["href"] == "#main"


def test_a_page_has_a_language_one_heading_and_a_title_with_the_verdict(read: Page) -> None:
    assert read.named("html")[0].attributes["lang"] == "en"
    assert len(read.named("h1")) == len(read.named("title")) == len(read.named("main")) == 1
    assert "mlp: 1.50 times as fast (hlotune report)" in read.words


@pytest.mark.parametrize("selector", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_enough_contrast_in_both_themes(selector: str) -> None:
    colours = variables(CSS, selector)
    grounds = [colours["paper"], colours["raised"]]
    for ink in ("ink", "muted", "link", "good", "lost", "limit"):
        assert min(contrast(colours[ink], ground) for ground in grounds) >= 4.5, ink
    for kind in ("serial", "parallel", "unroll", "vectorize", "mark"):
        assert contrast(colours["ink"], colours[kind]) >= 4.5, kind
    for bar in ("default", "tuned", "lost", "limit"):
        assert contrast(colours[bar], colours["paper"]) >= 3, bar


def test_themes_name_the_same_colours_and_print_is_light() -> None:
    light = variables(CSS, LIGHT)
    assert variables(CSS, DARK).keys() == light.keys()
    assert variables(CSS, "@media print") == light


def test_figures_follow_the_theme(html: str) -> None:
    drawn = html[html.index("<svg") : html.rindex("</svg>")]
    assert "var(--tuned)" in drawn and "var(--ink)" in drawn
    assert set(re.findall(r"var\(--([a-z]+)\)", drawn)) <= variables(CSS, LIGHT).keys()


def test_contrast_is_computed_as_the_guidelines_do() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_records_is_data(found: Evidence, text: str) -> None:
    """Labels, messages, schedules, sources and reasons of a made-up file."""
    report = found.report
    kernels = tuple(
        replace(
            k,
            report=replace(k.report, label=text, decision=text, withdrawn=text, algorithm=text),
            text=text,
            schedule=text,
            points=tuple(replace(p, failure=p.failure and text, message=text) for p in k.points),
        )
        for k in found.kernels
    )
    failures = tuple(replace(f, kind=text, kernel=text, message=text) for f in report.failures)
    changed = replace(
        report, program=text, source=text, target=text, notes=(text,), overrun=text,
        failures=failures, toolchain={text: text}, cache=text, numerics=text,
        kernels=tuple(k.report for k in kernels),
    )  # fmt: skip
    hostile = replace(found, report=changed, kernels=kernels, options={text: text})
    html = page(hostile, {kernels[0].report.key: Missing(text)}, "1.0")
    read = Page.of(html)
    assert read.references() == [] and read.scripts() == []
    assert len(read.named("style")) == 1
    assert len(read.ids) == len(set(read.ids))
    assert "\x1b" not in html and "\u202e" not in html
    html.encode("utf-8")


def test_a_kernel_key_of_a_made_up_file_makes_no_markup(found: Evidence) -> None:
    first, *others = found.kernels
    strange = replace(first, report=replace(first.report, key='"><b>#../../x'))
    read = Page.of(page(replace(found, kernels=(strange, *others)), {}, "1.0"))
    assert not read.named("b")
    assert len(read.ids) == len(set(read.ids))


def test_a_child_that_is_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "<b>", Markup("<i>x</i>"), title='"') == (
        '<p title="&quot;">&lt;b&gt;<i>x</i></p>'
    )


def test_a_page_stays_below_its_limit_by_showing_less_code(found: Evidence) -> None:
    many = tuple(
        replace(k, report=replace(k.report, key=f"{n:032x}"))
        for n, k in enumerate(found.kernels[2:] * 30)
    )
    large = replace(MADE, llvm="x" * 99 + "\n", assembly="\tvmovaps\t%zmm1, %zmm2\n" * 5000)
    large = replace(large, llvm=large.llvm * 5000)
    code: dict[str, Regenerated | Missing] = {k.report.key: large for k in many}
    html = page(replace(found, kernels=many), code, "1.0")
    assert len(html.encode()) < MOST_BYTES
    assert "of 5000 lines" in html


def test_a_page_that_has_no_room_for_code_says_so(
    found: Evidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_module, "MOST_BYTES", 1000)
    one = replace(found, kernels=found.kernels[:1])
    html = page(one, {one.kernels[0].report.key: MADE}, "1.0")
    assert "It is left out, as the page would grow too large" in html


def test_a_kernel_shows_its_code_with_the_inner_loop_and_where_it_is_from(found: Evidence) -> None:
    won = next(k for k in found.kernels if k.report.won)
    verified = replace(won, code=MADE.code)
    words = Page.of(page(replace(found, kernels=(verified,)), {won.report.key: MADE}, "1.0")).words
    assert (
        "The inner loop has 2 instructions: 1 multiply-adds, 1 with an operand in memory" in words
    )
    assert "is the machine code that was verified" in words
    other = replace(won, code="1" * 32)
    words = Page.of(page(replace(found, kernels=(other,)), {won.report.key: MADE}, "1.0")).words
    assert "differs from the machine code that was verified" in words


def test_code_that_cannot_be_made_again_says_why(found: Evidence) -> None:
    key = found.kernels[0].report.key
    words = Page.of(page(found, {key: Missing("no step Fold is known")}, "1.0")).words
    assert "Nest and code are not shown: no step Fold is known." in words


def test_each_failure_stands_with_its_kernel_and_an_example(read: Page) -> None:
    assert "wrong_result 1" in read.words and "[bold]3 of 8 elements[/bold]" in read.words


def test_the_verdict_says_what_is_proven(found: Evidence) -> None:
    whole = found.report.whole
    assert whole is not None
    assert headline(found.report) == ("1.50 times as fast", "good")
    slower = replace(whole, speedup=0.8, speedup_low=0.7, speedup_high=0.9)
    assert headline(replace(found.report, whole=slower)) == ("1.25 times as slow", "bad")
    taken_back = replace(found.report, whole=slower, kernels=())
    assert headline(taken_back) == ("XLA keeps all of it", "")
    unclear = replace(whole, speedup_low=0.9)
    assert headline(replace(found.report, whole=unclear)) == ("No difference is proven", "")
    assert headline(replace(found.report, whole=None)) == ("1 of 3 kernels are faster", "")


def test_a_run_without_trials_has_a_page_too(tmp_path: Path) -> None:
    with Database(tmp_path / "tuning.db") as database:
        words = Page.of(page(evidence(database, start(database)), {}, "1.0")).words
    assert "0 of 0 kernels are faster" in words and "The run has not finished." in words


def test_provenance_has_target_versions_seed_and_noise(read: Page) -> None:
    for part in ("seed 7", "jaxlib 0.10.2", "Test CPU (znver4)", "XLA_FLAGS none", "hlotune 1.0",
                 "f32 200 GFLOP/s; memory 30.0 GB/s", "trials 4"):  # fmt: skip
        assert part in read.words, part
