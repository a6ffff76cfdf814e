"""How long the tuner takes to TVM's speed, from made-up records of both."""

import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.cases import CASES, source
from benchmarks.page import LAB, markdown
from benchmarks.peers import searches
from benchmarks.peers.passes import Pass
from benchmarks.peers.rounds import Turns
from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.tuning_logs.database import Database
from tests.benchmarks.test_results_page import CONDITIONS
from tests.support.recorded import default_trial, failed, measured
from tests.support.tree import ROOT

CASE = "GMM2"


def kernel() -> Kernel:
    return sites(load(source(CASE)))[0].kernel


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Two runs; in the first the third trial of ours takes 2 ms, and the second batch 1 ms."""
    path, of = tmp_path / "a.db", kernel()
    first = [default_trial(1e-4, of), measured(9e-3, 1, of=of), failed(of=of)]
    first.append(measured(2e-3, 2, of=of))
    with Database(path) as opened:
        run = opened.start_run(None, host_target(), toolchain())
        opened.add(run, of, first, batch=0)
        opened.add(run, of, [measured(1e-3, 3, of=of)], batch=1)
        later = opened.start_run(None, host_target(), toolchain())
        opened.add(later, of, [measured(1e-5, 4, of=of)], batch=0)
    return path


@pytest.mark.parametrize(("goal_s", "trials"), [(2e-3, 3), (1.5e-3, 4)])
def test_trials_of_the_first_run_count_but_not_the_default(
    database: Path, goal_s: float, trials: int
) -> None:
    found = searches.reached(CASE, goal_s, database, host_target())
    assert found and found.trials == trials and 0 <= found.seconds < 60


def test_a_speed_that_no_trial_of_the_first_run_has_is_never_reached(database: Path) -> None:
    assert searches.reached(CASE, 5e-4, database, host_target()) is None


def test_a_kernel_without_records_reaches_nothing(database: Path) -> None:
    assert searches.reached("GMM1", 1.0, database, host_target()) is None


def a_pass(**outcomes: Turns) -> Pass:
    return Pass(case=CASE, key="", conditions={}, status={}, own={}, outcomes=outcomes)


def test_the_race_is_to_tvms_fastest_turn(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "SEARCHES", tmp_path)
    (tmp_path / CASE).mkdir()
    search = {"trials": 128, "search_s": 150.0}
    (tmp_path / CASE / "search.json").write_text(json.dumps(search))
    passes = [a_pass(**{searches.LABEL: Turns((4e-3, 3e-3), 2)})]
    found = searches.race(CASE, passes, database, host_target())
    assert (found.tvm_call_s, found.tvm_search_s, found.tvm_trials) == (3e-3, 150.0, 128)
    assert found.ours and found.ours.trials == 3
    with pytest.raises(ValueError, match=f"expected turns of TVM in the passes of {CASE}, got non"):
        searches.race(CASE, [a_pass()], database, host_target())


def test_a_row_tells_how_many_times_sooner() -> None:
    common = {"case": "C6", "tvm_trials": 128, "tvm_search_s": 160.0, "tvm_call_s": 1e-3}
    sooner = searches.Race(**common, ours=searches.Reached(8.0, 70))  # type: ignore[arg-type]
    never = searches.Race(**common, ours=None)  # type: ignore[arg-type]
    rows = searches.table([sooner, never]).rows
    assert rows[0] == ["C6", "128", "160", "1", "70", "8.0", "20.0"]
    assert rows[1][-3:] == ["never", "-", "-"]


def test_the_table_says_that_clocks_and_beginnings_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    race = searches.Race(case="C6", tvm_trials=128, tvm_search_s=160.0, tvm_call_s=1e-3, ours=None)
    results.publish(searches.table([race]), CONDITIONS, [])
    published = markdown(json.loads((tmp_path / "searches.json").read_text(encoding="utf-8")))
    for text in (capsys.readouterr().out, published):
        assert "clock `kernel`" in text and "TVM's is a blocking call" in text
        assert "the trained model that comes with it" in text and "of other kernels" in text
        assert "TVM from nothing" in text


def test_make_lets_tvm_search_first_and_each_case_alone_as_the_page_says() -> None:
    makefile, quoted = (
        " ".join((ROOT / file).read_text(encoding="utf-8").replace("\\\n", " ").split())
        for file in ("Makefile", LAB / "peers.md")
    )
    cases = makefile.partition("TVM_CASES := ")[2].partition(" TVM_TRIALS := ")[0]
    trials = makefile.partition("TVM_TRIALS := ")[2].split()[0]
    assert set(cases.split()) <= set(CASES)
    asked = "-m benchmarks.peers --cases {} --tvm-trials {} --trials {}"
    assert f"for case in {cases}; do python {asked.format('$case', trials, trials)}; done" in quoted
    recipe = makefile.partition("bench-peers: setup ")[2].partition(" bench-search: ")[0]
    parts = [
        "-m benchmarks.peers.environments",
        "for case in $(TVM_CASES); do",
        asked.format("$$case", "$(TVM_TRIALS)", "$(TVM_TRIALS)"),
        "-m benchmarks.peers --trials $(TRIALS)",
        "-m benchmarks.peers.shortfalls",
        "-m benchmarks.peers.searches",
    ]
    places = [recipe.index(part) for part in parts]
    assert places == sorted(places)
