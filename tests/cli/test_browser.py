"""Report and dashboard of a small real run in headless Chromium: `make test-browser`."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import evidence
from hlotune.tuning_logs.page import page as pages
from tests.support import browser, images
from tests.support.browser import Tab
from tests.support.html_pages import Page
from tests.support.recorded import filled
from tests.support.tree import ROOT

pytestmark = pytest.mark.browser

SHOTS = ROOT / "build" / "browser"
TUNE = str(ROOT / ".venv" / "bin" / "tune")
WIDTHS = (320, 500, 900, 1400)
REFERENCES = ROOT / "tests" / "golden" / "test_browser"
REFERENCE_WIDTHS = (500, 900, 1400)
REFERENCE_HEIGHT = 1200
MOST_SHADES = 4.0
"""How far a page may differ from its reference, in the mean: another browser's letters differ by
less than half of that, a line of text more or less by more."""
OVERFLOWS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
WIDE = """[...document.querySelectorAll("body *")].filter(x =>
    x.getBoundingClientRect().right > innerWidth + 1 && !x.closest(".wide, pre, .nest, .skip"))
    .map(x => x.tagName + "." + x.className).slice(0, 5)"""
"""The elements that extend beyond the window and are not in a box that scrolls."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database and the report of a real run, which takes a minute: without a
    browser it is not begun."""
    browser.browser()
    folder = tmp_path_factory.mktemp("report")
    database = ("--database", str(folder / "tuning.db"))
    program = "examples/mlp.py:model"
    for command in (
        ("run", program, "--trials", "24", *database),
        ("report", program, "-o", str(folder / "report.html"), *database),
    ):
        subprocess.run([TUNE, *command], cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return folder / "report.html"


def _fixed_times(path: Path) -> None:
    """Fills a database by hand, with a run that is always of the same moment."""
    with filled(path) as database, database.writing() as sql:
        sql.execute("update runs set started = '2026-01-02T03:04:05+00:00'")
        sql.execute("update runs set finished = '2026-01-02T03:05:05+00:00'")


@pytest.fixture(scope="module")
def made_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report that has always the same figures."""
    folder = tmp_path_factory.mktemp("made")
    _fixed_times(folder / "made.db")
    with Database(folder / "made.db", read_only=True) as database:
        run = database.query("select id from runs")[0]["id"]
        text = pages.page(evidence(database, run), {}, "1.0")
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running dashboard over two databases, one of them written by hand."""
    other = tmp_path_factory.mktemp("other") / "made.db"
    _fixed_times(other)
    command = [TUNE, "dashboard", "--port", "0", "--db", str(folder / "tuning.db"), "--db",
               str(other)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", served.stdout.readline())
        assert found
        yield found[0]
        served.send_signal(signal.SIGINT)
        assert served.wait(20) == 0


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser.opened(tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Tab:
    chromium.console.clear()
    chromium.requests.clear()
    chromium.media()
    chromium.size(1000)
    return chromium


def remote(tab: Tab, address: str = "") -> list[str]:
    """The requests that went over the network, but for those to this address."""
    over = [x for x in tab.requests if x.startswith(("http:", "https:", "ws:", "wss:", "ftp:"))]
    return [x for x in over if not (address and x.startswith(f"{address}/"))]


def test_a_report_opens_without_errors_and_asks_for_nothing(report: Path, tab: Tab) -> None:
    tab.open(report.as_uri())
    assert (tab.console, remote(tab)) == ([], [])
    read = Page.of(report.read_text(encoding="utf-8"))
    assert tab.value("document.querySelectorAll('svg').length") == len(read.named("svg")) >= 6
    assert tab.value("document.querySelectorAll('.page').length") == 1 + 3
    assert tab.value("getComputedStyle(document.querySelector('.verdict')).fontSize") == "36px"


def test_the_check_sees_what_a_page_does_wrong(tmp_path: Path, tab: Tab) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><title>x</title><img src='http://127.0.0.1:9/x.png'>"
        "<script>console.error('wrong')</script><p style='width: 3000px'>x</p>"
    )
    tab.open(bad.as_uri())
    assert any("wrong" in line for line in tab.console)
    assert remote(tab) == ["http://127.0.0.1:9/x.png"]
    assert tab.value(OVERFLOWS) > 0 and tab.value(WIDE) == ["P."]


def looked_at(tab: Tab, address: str, name: str, theme: str, width: int) -> None:
    """Opens a page at a width, keeps its image, and checks that nothing extends beyond it."""
    shot = SHOTS / f"{name}-{theme}-{width}.png"
    shot.unlink(missing_ok=True)
    tab.media(theme)
    tab.size(width)
    tab.open(address)
    tab.shot(shot)
    assert tab.console == []
    assert (tab.value(OVERFLOWS), tab.value(WIDE)) == (0, [])
    from PIL import Image

    with Image.open(shot) as image:
        assert image.width == width
        corner = image.convert("RGB").getpixel((2, 2))
        colours = image.convert("RGB").getcolors(1 << 24) or []
    assert isinstance(corner, tuple)
    assert (sum(corner) > 600) == (theme == "light")
    assert len(colours) > 20  # something is drawn


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_fits_into_each_width(report: Path, tab: Tab, width: int, theme: str) -> None:
    first = next(x for x in Page.of(report.read_text("utf-8")).ids if x.startswith("kernel-"))
    looked_at(tab, report.as_uri(), "report", theme, width)
    looked_at(tab, f"{report.as_uri()}#{first}", "report-kernel", theme, width)
    assert remote(tab) == []


def test_tables_scroll_in_their_own_box_where_it_is_narrow(report: Path, tab: Tab) -> None:
    tab.size(320)
    tab.open(report.as_uri())
    table = "document.querySelector('.wide:has(table)')"
    assert tab.value(f"{table}.scrollWidth > {table}.clientWidth")
    assert tab.value(f"{table}.focus(), document.activeElement === {table}")


def test_print_shows_all_pages_in_light_and_cuts_nothing_off(report: Path, tab: Tab) -> None:
    tab.size(680)  # the width of a sheet of A4 without its margins
    tab.media("dark", "print")
    tab.open(report.as_uri())
    shown = "[...document.querySelectorAll('.page')].map(x => getComputedStyle(x).display)"
    assert tab.value(shown) == ["block"] * 4
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(254, 254, 254)"
    cut = "[...document.querySelectorAll('table')].filter(x => x.offsetWidth > innerWidth).length"
    assert tab.value(cut) == 0
    ways = "[...document.querySelectorAll('nav, details')].map(x => getComputedStyle(x).display)"
    assert set(tab.value(ways)) == {"none"}
    tab.shot(SHOTS / "report-print.png")


def test_a_link_leads_to_the_page_of_a_kernel(report: Path, tab: Tab) -> None:
    first = next(x for x in Page.of(report.read_text("utf-8")).ids if x.startswith("kernel-"))
    shown = "[...document.querySelectorAll('.page')].filter(x => x.offsetHeight).map(x => x.id)"
    tab.open(report.as_uri())
    assert tab.value(shown) == ["overview"]
    tab.value(f"document.querySelector('a[href=\"#{first}\"]').click()")
    assert tab.value(shown) == [first]


# References


def seen(tab: Tab, address: str, name: str, width: int, *, change: str = "") -> Path:
    """The image of the top of a page, after a change to it by a script, if there is one."""
    tab.size(width)
    tab.open(address)
    if change:
        tab.value(change)
    tab.shot(shot := SHOTS / f"{name}-{width}.png", REFERENCE_HEIGHT)
    return shot


@pytest.mark.parametrize("width", REFERENCE_WIDTHS)
def test_pages_look_as_their_references(
    width: int, made_report: Path, address: str, tab: Tab, request: pytest.FixtureRequest
) -> None:
    first = next(x for x in Page.of(made_report.read_text("utf-8")).ids if x.startswith("kernel-"))
    pages = {
        "made-report": made_report.as_uri(),
        "made-report-kernel": f"{made_report.as_uri()}#{first}",
        "made-dashboard-run": f"{address}/runs/1/mlp",
    }
    for name, where in pages.items():
        shot, reference = seen(tab, where, name, width), REFERENCES / f"{name}-{width}.png"
        if request.config.getoption("--update-golden"):
            images.keep(shot, reference)
        images.require_alike(shot, reference, MOST_SHADES)


@pytest.mark.parametrize(
    "change",
    [
        "document.querySelector('h1').style.marginBottom = '60px'",
        "document.querySelectorAll('svg').forEach(x => x.remove())",
        "document.documentElement.style.fontSize = '18px'",
    ],
    ids=["lower", "without figures", "larger letters"],
)
def test_a_page_that_looks_otherwise_is_seen(change: str, made_report: Path, tab: Tab) -> None:
    shot = seen(tab, made_report.as_uri(), "changed-report", 900, change=change)
    with pytest.raises(AssertionError, match="differ by"):
        images.require_alike(shot, REFERENCES / "made-report-900.png", MOST_SHADES)


def test_references_take_little_room() -> None:
    sizes = [file.stat().st_size for file in REFERENCES.glob("*.png")]
    assert len(sizes) == 3 * len(REFERENCE_WIDTHS) and sum(sizes) < 1_000_000


# Dashboard

PAGES = {"runs": "/", "kernels": "/kernels", "run": "/runs/1/mlp", "replay": "/runs/0/model/replay"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_dashboard_fits_into_each_width(address: str, tab: Tab, width: int, theme: str) -> None:
    for name, page in PAGES.items():
        looked_at(tab, address + page, f"dashboard-{name}", theme, width)
    assert remote(tab, address) == []


def rows(tab: Tab) -> list[str]:
    """The first words of the rows that are shown."""
    shown = "[...document.querySelectorAll('tbody tr:not([hidden]) th')].map(x => x.innerText)"
    return [str(x) for x in tab.value(shown)]


def typed(tab: Tab, name: str, value: str) -> None:
    tab.value(
        f"(x => {{ x.value = {value!r}; x.dispatchEvent(new Event('input', {{bubbles: true}})) }})"
        f"(document.getElementById({name!r}))"
    )


def test_a_list_is_searched_filtered_and_sorted(address: str, tab: Tab) -> None:
    tab.open(f"{address}/")
    assert sorted(rows(tab)) == ["mlp", "model"]
    typed(tab, "list-search", "test cpu")
    assert rows(tab) == ["mlp"]
    typed(tab, "list-search", "")
    typed(tab, "database", "tuning.db")
    assert rows(tab) == ["model"]
    typed(tab, "database", "")
    typed(tab, "state", "not finished")
    assert rows(tab) == []
    typed(tab, "state", "")
    button = "[...document.querySelectorAll('button.sort')].find(x => x.innerText === 'trials')"
    tab.value(f"{button}.focus()")
    tab.key("Enter")
    assert rows(tab) == ["mlp", "model"]
    tab.key("Enter")
    assert rows(tab) == ["model", "mlp"]
    assert tab.value(f"{button}.closest('th').ariaSort") == "descending"
    assert tab.console == []


def test_a_run_is_played_to_its_end_and_with_the_keyboard(address: str, tab: Tab) -> None:
    tab.open(f"{address}/runs/0/model/replay")
    trial = "Number(document.getElementById('trial').value)"
    last = tab.value("Number(document.getElementById('trial').max)")
    said = "document.querySelector('.replayed').innerText"
    tab.value("document.getElementById('play').click()")
    tab.wait(f"{trial} > 0 && {trial} < {last}")
    tab.wait(f"{said}.startsWith('After trial {last} of')", limit_s=120)
    tab.wait("document.getElementById('play').innerText === 'Play'")
    tab.value("document.getElementById('trial').focus()")
    tab.key("ArrowLeft")
    tab.wait(f"{said}.startsWith('After trial {last - 1} of')")
    assert f"trial={last - 1}" in tab.value("location.search")
    assert tab.console == [] and remote(tab, address) == []


def test_a_page_follows_a_run_that_goes_on(tab: Tab, address: str, folder: Path) -> None:
    tab.open(f"{address}/")
    tab.wait("document.getElementById('status').innerText === 'Up to date.'")
    tab.value("document.querySelector('tbody a').focus()")
    reached = tab.value("document.activeElement.href")
    with Database(folder / "tuning.db") as database:
        known = database.query("select * from runs")[0]
        new = {**known, "id": "f" * 32, "finished": None, "summary": None,
               "started": "2020-01-01T00:00:00+00:00"}  # fmt: skip
        with database.writing() as sql:
            sql.table("runs").insert(new)
    tab.wait("document.querySelectorAll('tbody tr').length === 3")
    assert tab.value("document.activeElement.href") == reached
    assert tab.console == []
