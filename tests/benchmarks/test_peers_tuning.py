"""What the benchmark against peers tunes, in which runs, and what becomes of a run that fails."""

import time
from pathlib import Path

import pytest

from benchmarks.cases import source
from benchmarks.peers import tuning
from benchmarks.peers.tuning import groups, is_tuned, together, tune_missing
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import DEFAULT
from tests.benchmarks.test_peers import recorded

CASES = ["GMM2", "C11", "C6_weight_gradient"]


def test_constant_weights_come_after_the_same_cases_with_arguments() -> None:
    assert list(groups(CASES, 2)) == [
        ["GMM2", "C11"],
        ["GMM2_frozen", "C11_frozen"],
        ["C6_weight_gradient"],
        [],
    ]


def test_kernels_of_cases_together_are_those_of_each_alone() -> None:
    names = ["GMM2", "GMM2_frozen", "C11"]
    alone = {sites(load(source(name)))[0].kernel.key for name in names}
    assert {s.kernel.key for s in sites(together(names))} == alone


def test_what_is_decided_is_not_tuned_again_and_a_run_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = recorded(tmp_path / "a.db", "GMM2", DEFAULT)
    asked: list[list[str]] = []

    def tune_together(names: list[str], *_: object) -> None:
        asked.append(names)
        raise ProgramError("expected a program, got none")

    monkeypatch.setattr(tuning, "tune_together", tune_together)
    tune_missing(CASES, 8, database, host_target(), "model")
    assert asked == [
        ["C11", "C6_weight_gradient"], ["C11"], ["C6_weight_gradient"],
        ["GMM2_frozen", "C11_frozen"], ["GMM2_frozen"], ["C11_frozen"],
    ]  # fmt: skip
    said = capsys.readouterr().out
    assert "tuning GMM2_frozen, C11_frozen ended early: expected" in said
    assert "tuning C11_frozen ended early: expected" in said
    assert is_tuned("GMM2", database, host_target(), "model")


def test_when_the_time_is_over_it_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune_missing(CASES, 8, tmp_path / "a.db", host_target(), "model", time.monotonic() - 1)
    assert "the time is over: GMM2, C11, C6_weight_gradient and" in capsys.readouterr().out


def test_where_nothing_is_lacking_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = recorded(tmp_path / "a.db", "C6_weight_gradient", DEFAULT)
    past_s = time.monotonic() - 1
    tune_missing(["C6_weight_gradient"], 8, database, host_target(), "model", past_s)
    assert capsys.readouterr().out == ""


def test_one_case_that_fails_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def tune_together(names: list[str], *_: object) -> None:
        if "C11" in names:
            raise ProgramError("expected a program, got none")
        done.extend(names)

    monkeypatch.setattr(tuning, "tune_together", tune_together)
    tune_missing(["C11", "C6_weight_gradient"], 8, tmp_path / "a.db", host_target(), "model")
    assert done == ["C6_weight_gradient", "C11_frozen"]
