"""The report of a small real run in headless Chromium: `make test-browser`."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.html_pages import Page
from tests.support.tree import ROOT

pytestmark = pytest.mark.browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-default-apps", "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
OWN = "not an origin"
"""The initiator of what the browser asks for itself, as for its updates."""
SHOTS = ROOT / "build" / "browser"


@dataclass(frozen=True)
class Opened:
    console: list[str]
    """What the page's console said."""
    requests: list[str]
    """Addresses that were asked for, the file itself left out."""
    dom: str
    """The page as the browser understood it."""


def browser() -> str:
    """Fails, and does not skip, where there is none: who asks for this wants it looked at."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.fail(
            f"expected a browser, one of {', '.join(NAMES)}, found none; install it, on Debian "
            "with `apt-get install chromium`"
        )
    return found


def opened(address: str, folder: Path, *options: str) -> Opened:
    log = folder / "net.json"
    done = subprocess.run(
        [browser(), *QUIET, f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}",
         "--enable-logging=stderr", *options, address],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Opened(console, [x for x in asked_by_pages(log) if is_remote(x)], done.stdout)


def asked_by_pages(log: Path) -> list[str]:
    """Addresses in a log of the network; what the browser asks by itself comes from no origin."""
    events = json.loads(log.read_text(encoding="utf-8"))["events"]
    starts = (event.get("params", {}) for event in events)
    return [p["url"] for p in starts if "url" in p and p.get("initiator", OWN) != OWN]


def is_remote(address: str) -> bool:
    return address.startswith(("http:", "https:", "ws:", "wss:", "ftp:"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    tune = (str(ROOT / ".venv" / "bin" / "tune"),)
    database = ("--database", str(folder / "tuning.db"))
    program = "examples/mlp.py:model"
    for command in (
        ("run", program, "--trials", "8", *database),
        ("report", program, "-o", str(folder / "report.html"), *database),
    ):
        subprocess.run([*tune, *command], cwd=ROOT, check=True, capture_output=True)
    return folder / "report.html"


def test_a_report_opens_without_errors_and_asks_for_nothing(report: Path, tmp_path: Path) -> None:
    found = opened(report.as_uri(), tmp_path, "--dump-dom")
    assert found.console == []
    assert found.requests == []
    read = Page.of(report.read_text(encoding="utf-8"))
    assert found.dom.count("<svg") == len(read.named("svg")) >= 6
    assert len(re.findall(r'class="page"', found.dom)) == 1 + 3


def test_the_check_sees_what_a_page_does_wrong(tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><title>x</title><img src='http://127.0.0.1:9/x.png'>"
        "<script>console.error('wrong')</script>"
    )
    found = opened(bad.as_uri(), tmp_path, "--dump-dom")
    assert any("wrong" in line for line in found.console)
    assert "http://127.0.0.1:9/x.png" in found.requests


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [500, 900, 1400])
def test_a_report_is_drawn_at_each_width(
    report: Path, tmp_path: Path, width: int, theme: str
) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    shot = SHOTS / f"report-{theme}-{width}.png"
    shot.unlink(missing_ok=True)
    scheme = f"--blink-settings=preferredColorScheme={0 if theme == 'dark' else 1}"
    found = opened(
        report.as_uri(), tmp_path, scheme, f"--window-size={width},2400", f"--screenshot={shot}"
    )
    assert found.console == [] and found.requests == []
    from PIL import Image

    with Image.open(shot) as image:
        assert image.width == width
        corner = image.convert("RGB").getpixel((2, 2))
        colours = image.convert("RGB").getcolors(1 << 22) or []
    assert isinstance(corner, tuple)
    assert (sum(corner) > 600) == (theme == "light")
    assert len(colours) > 50  # something is drawn


def test_a_link_leads_to_the_page_of_a_kernel(report: Path, tmp_path: Path) -> None:
    first = next(x for x in Page.of(report.read_text("utf-8")).ids if x.startswith("kernel-"))
    shots = []
    for number, address in enumerate((report.as_uri(), f"{report.as_uri()}#{first}")):
        shot = tmp_path / f"{number}.png"
        opened(address, tmp_path, "--window-size=900,1200", f"--screenshot={shot}")
        shots.append(shot.read_bytes())
    assert shots[0] != shots[1]
