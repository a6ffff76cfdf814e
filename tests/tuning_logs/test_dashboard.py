"""The dashboard by a test client: pages, what may ask for them, news, and replay."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from werkzeug.test import Client, TestResponse

from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.dashboard import replay
from hlotune.tuning_logs.dashboard.app import HEADERS, Dashboard
from hlotune.tuning_logs.dashboard.codes import Codes
from hlotune.tuning_logs.dashboard.sources import sources
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import Evidence, KernelEvidence, evidence
from hlotune.tuning_logs.page.regenerated import Missing
from tests.support.html_pages import Page
from tests.support.recorded import KERNEL, default_trial, fill, measured, start

HOST = {"Host": "127.0.0.1:8642"}
NO_CODE = Missing("nothing is made again in this test")


def never(found: Evidence, kernel: KernelEvidence) -> Missing:
    return NO_CODE


class Site:
    """A dashboard over the databases of a folder."""

    def __init__(self, *paths: Path, make: Callable[..., Missing] = never) -> None:
        self.client = Client(Dashboard(sources(paths), "1.0", Codes(make)))

    def get(self, address: str, **headers: str) -> TestResponse:
        return self.client.get(address, headers={**HOST, **headers})

    def page(self, address: str, status: int = 200) -> Page:
        answer = self.get(address)
        assert answer.status_code == status, answer.text
        return Page.of(answer.text)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


@pytest.fixture
def fresh(path: Path) -> str:
    """A run in a database of this test alone."""
    with Database(path) as database:
        return fill(database)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, str]:
    """A dashboard and the run that it shows, for tests that read: its pages are drawn once."""
    path = tmp_path_factory.mktemp("kept") / "tuning.db"
    with Database(path) as database:
        run = fill(database)
    return Site(path), run


@pytest.fixture
def site(kept: tuple[Site, str]) -> Site:
    return kept[0]


@pytest.fixture
def run(kept: tuple[Site, str]) -> str:
    return kept[1]


def addresses(run: str) -> tuple[str, ...]:
    of_run = f"/runs/0/{run}"
    return ("/", "/kernels", of_run, f"{of_run}/kernels/{KERNEL.key}", f"{of_run}/replay?trial=2")


def own(reference: str) -> bool:
    return (reference.startswith("/") and not reference.startswith("//")) or reference == "data:,"


def test_every_page_is_sound_and_leads_and_loads_from_itself_alone(site: Site, run: str) -> None:
    for address in addresses(run):
        read = site.page(address)
        assert all(map(own, read.references())), address
        assert [e.attributes.get("src") for e in read.named("script")] == ["/dashboard.js"]
        assert not any("style" in e.attributes for e in read.elements), address
        assert not any(name.startswith("on") for e in read.elements for name in e.attributes)
        assert len(read.ids) == len(set(read.ids)), address
        assert len(read.named("h1")) == len(read.named("main")) == 1
        assert read.named("a")[0].attributes["href"] == "#main"


def test_every_link_leads_to_a_page(site: Site, run: str) -> None:
    seen, waiting = set[str](), ["/"]
    while waiting:
        address = waiting.pop()
        if address not in seen:
            seen.add(address)
            links = site.page(address).named("a")
            waiting += [x for e in links if (x := e.attributes["href"]).startswith("/")]
    assert len(seen) == 2 + 1 + 3 + 1 + 3  # lists, run, its kernels, replays of both


def test_pages_are_those_of_the_report(site: Site, run: str) -> None:
    words = site.page(f"/runs/0/{run}").words
    assert "1.50 times as fast" in words and "Default against tuned" in words
    kernel = site.page(f"/runs/0/{run}/kernels/{KERNEL.key}")
    assert "What holds it" in kernel.words and "All trials of add [8]" in kernel.words
    assert len(kernel.named("svg")) == 1


def test_the_policy_forbids_what_is_inline_or_elsewhere(site: Site, run: str) -> None:
    for address in (*addresses(run), "/style.css", "/dashboard.js", "/none"):
        headers = site.get(address).headers
        assert all(headers[name] == value for name, value in HEADERS.items())
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy


@pytest.mark.parametrize(
    "host",
    ["tuning.example", "127.0.0.1.example", "localhost.example:8642", "[::1]:8642", "127.0.0.2",
     "localhost:80@example", "0.0.0.0:8642"],
)  # fmt: skip
def test_a_foreign_host_is_refused(site: Site, host: str) -> None:
    answer = site.client.get("/", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.text == "expected a request to 127.0.0.1 or localhost, got another host\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9000"])
def test_names_of_this_machine_are_answered_at_any_port(site: Site, host: str) -> None:
    assert site.client.get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_what_would_change_something_is_refused(site: Site, method: str) -> None:
    answer = site.client.open("/", method=method, headers=HOST)
    assert (answer.status_code, answer.text) == (405, "expected GET: the dashboard only reads\n")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/none", "There is no page /none."),
        ("/runs/0/ffff", "expected a recorded run, got 'ffff'"),
        ("/runs/7/ffff", "expected one of 1 databases, numbered from 0, got 7"),
        ("/runs/0/mlp/kernels/ff", "expected a kernel of run"),
    ],
)
def test_what_is_not_there_is_said(site: Site, address: str, words: str) -> None:
    assert words in site.page(address, 404).words


def test_nothing_is_written(path: Path, fresh: str) -> None:
    site, before = Site(path), path.read_bytes()
    files = sorted(path.parent.iterdir())
    for address in addresses(fresh):
        site.page(address)
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == files


def test_a_page_is_sent_again_when_there_are_new_records(path: Path, fresh: str) -> None:
    site = Site(path)
    for address in ("/", f"/runs/0/{fresh}"):
        known = site.get(address).headers["ETag"]
        assert site.get(address, **{"If-None-Match": known}).status_code == 304
        with Database(path) as database:
            database.add(fresh, KERNEL, [measured(0.9e-3, 7)], batch=2)
        answer = site.get(address, **{"If-None-Match": known})
        assert answer.status_code == 200 and answer.headers["ETag"] != known
    assert "7" in [e.attributes["value"] for e in site.page("/").named("data")]


def test_a_run_that_goes_on_is_shown_without_code(path: Path) -> None:
    def refuse(found: Evidence, kernel: KernelEvidence) -> Missing:
        raise AssertionError("code was made while the run goes on")

    with Database(path) as database:
        run = start(database)
        database.add(run, KERNEL, [default_trial(2e-3), measured(1e-3)], batch=0)
    site = Site(path, make=refuse)
    read = site.page(f"/runs/0/{run}")
    assert "The run has not finished" in read.words or "there is no program" in read.words
    assert {"yes"} == {e.attributes["data-live"] for e in read.elements if "data-live" in
                       e.attributes}  # fmt: skip
    kernel = site.page(f"/runs/0/{run}/kernels/{KERNEL.key}")
    assert "the run has not finished, and making them would take its processors" in kernel.words
    assert "not finished" in site.page("/").words


def test_code_is_made_once_and_shown_when_it_is_there(path: Path, fresh: str) -> None:
    go, made = threading.Event(), list[str]()

    def slow(found: Evidence, kernel: KernelEvidence) -> Missing:
        made.append(kernel.report.key)
        assert go.wait(10)
        return NO_CODE

    site, address = Site(path, make=slow), f"/runs/0/{fresh}/kernels/{KERNEL.key}"
    assert "they are being made now" in site.page(address).words
    known = site.get(address).headers["ETag"]
    go.set()
    end = time.monotonic() + 10
    while site.get(address, **{"If-None-Match": known}).status_code == 304:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert NO_CODE.reason in site.page(address).words
    assert made == [KERNEL.key]


def test_several_databases_stand_in_one_list(path: Path, fresh: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tuning.db"
    with Database(other) as database:
        second = fill(database)
    site = Site(path, other)
    read = site.page("/")
    links = {e.attributes["href"] for e in read.named("a")}
    assert {f"/runs/0/{fresh}", f"/runs/1/{second}"} <= links
    assert str(path) in read.words and str(other) in read.words
    assert any(e.attributes.get("data-filter") == "database" for e in read.elements)


def test_a_database_that_is_gone_spoils_no_other(path: Path, fresh: str, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    Database(other).close()
    site = Site(path, other)
    other.unlink()
    read = site.page("/")
    assert "expected a file, found none" in read.words and f"/runs/0/{fresh}" in read.references()
    assert "expected a file, found none" in site.page("/runs/1/mlp", 500).words


def test_a_database_that_cannot_be_read_is_told_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken.db"
    broken.write_text("no database" * 100)
    with pytest.raises(DatabaseError, match="expected a tuning database"):
        sources([broken])


HOSTILE = "</main><script src=//x.example>\"'\x1b[31m"


def test_text_of_records_is_data(path: Path, fresh: str) -> None:
    with Database(path) as database, database.writing() as sql:
        for change in ("kernels set label", "programs set name", "trials set failure_message",
                       "targets set name"):  # fmt: skip
            sql.execute(f"update {change} = ?", [HOSTILE])
    site = Site(path)
    for address in (*addresses(fresh), f"/runs/0/{fresh}/replay?kernel=%3Cb%3E&trial=1"):
        answer = site.get(address)
        read = Page.of(answer.text)
        assert len(read.named("script")) == 1 and "\x1b" not in answer.text
        assert all(map(own, read.references()))


def test_two_runs_of_two_databases_stand_on_one_page(
    path: Path, fresh: str, tmp_path: Path
) -> None:
    with Database(tmp_path / "other.db") as database:
        second = fill(database)
    site = Site(path, tmp_path / "other.db")
    choice = [e.attributes.get("value") for e in site.page(f"/runs/0/{fresh}").named("option")]
    assert choice == [f"1/{second}"]
    words = site.page(f"/compare?a=0%2F{fresh}&b=1%2F{second}").words
    assert f"run {fresh[:12]}" in words and f"run {second[:12]}" in words
    assert "speedup A" in words and words.count("1.50 times as fast") == 2


@pytest.mark.parametrize("query", ["", "?a=0%2Fmlp", "?a=0%2Fmlp&b=mlp", "?a=x%2Fy&b=0%2Fmlp"])
def test_two_runs_that_are_not_both_named_are_refused(site: Site, query: str) -> None:
    assert "as the number of a database, / and a run" in site.page(f"/compare{query}", 404).words


# Replay


@pytest.fixture
def found(path: Path, fresh: str) -> Evidence:
    with Database(path, read_only=True) as database:
        return evidence(database, fresh)


def test_a_replay_knows_what_was_known_by_then(path: Path, fresh: str, found: Evidence) -> None:
    with Database(path) as database:
        database.add(fresh, KERNEL, [measured(0.5e-3, 9)], batch=3)
        found = evidence(database, fresh)
    last = replay.last_trial(found)

    def best(trial: int) -> float | None:
        kernel = replay.chosen(replay.until(found, trial), KERNEL.key)
        point = replay.best_of(kernel.points) if kernel else None
        return point.time_s if point else None

    assert [best(0), best(1), best(3), best(last)] == [None, 1e-3, 1e-3, 0.5e-3]


def test_the_figures_of_a_replay_have_one_scale(found: Evidence) -> None:
    def ticks(trial: int) -> list[list[str]]:
        html = replay.frame(found, trial, KERNEL.key)
        return [re.findall(r"<text[^>]*>([^<]*)</text>", svg) for svg in html.split("<svg")[1:]]

    first, last = ticks(1), ticks(replay.last_trial(found))
    assert len(first) == 2 and first == last


def test_a_replay_shows_the_best_schedule_by_then(site: Site, run: str) -> None:
    before = site.page(f"/runs/0/{run}/replay?trial=0&kernel={KERNEL.key}").words
    assert "None of ours was measured yet" in before and "After trial 0 of" in before
    after = site.page(f"/runs/0/{run}/replay?trial=1&kernel={KERNEL.key}").words
    assert "It took 1.00 ms and is trial 1. Algorithm direct, 2 steps." in after


def test_a_replay_of_a_number_that_no_trial_has_shows_the_nearest(site: Site, run: str) -> None:
    last = site.page(f"/runs/0/{run}/replay").words
    assert site.page(f"/runs/0/{run}/replay?trial=99999").words == last
    assert "After trial 0 of" in site.page(f"/runs/0/{run}/replay?trial=-3").words
    assert site.page(f"/runs/0/{run}/replay?trial=x").words == last
