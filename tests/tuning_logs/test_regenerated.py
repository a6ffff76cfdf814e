"""Nests and code that are made again from records, in a process apart."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlotune.measure.machine.targets import host_target
from hlotune.schedules.targets.gpu import GPU_TARGETS
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.evidence import Evidence, KernelEvidence, evidence
from hlotune.tuning_logs.figures.model import ranks
from hlotune.tuning_logs.page import regenerated as module
from hlotune.tuning_logs.page.feature_words import correlations, facts, noun
from hlotune.tuning_logs.page.regenerated import (
    ENDED,
    LATE,
    Correlated,
    Missing,
    Regenerated,
    model_of,
    regenerated,
)
from hlotune.tuning_logs.predictions import rank_correlation
from tests.support.mlp_records import recorded


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    with Database(recorded(tmp_path_factory.mktemp("records")), read_only=True) as database:
        return evidence(database, "model")


@pytest.fixture(scope="module")
def won(found: Evidence) -> KernelEvidence:
    return next(k for k in found.kernels if k.report.won)


def test_the_machine_code_is_that_which_was_verified(won: KernelEvidence) -> None:
    """Between two records that are none: each costs its own answer alone."""
    first = replace(won, report=replace(won.report, key="first"), text="this is no program")
    last = replace(won, report=replace(won.report, key="last"), schedule='{"algorithm": 1}')
    answers = regenerated((first, won, last), host_target())
    made, broken, unreadable = (answers[k] for k in (won.report.key, "first", "last"))
    assert isinstance(made, Regenerated)
    assert made.code == won.code and made.flops > 0 and made.dtype == "f32"
    assert "define i32 @kernel" in made.llvm and "kernel" in made.assembly
    assert made.boxes and made.boxes[0].kind in ("serial", "parallel")
    assert isinstance(broken, Missing) and broken.reason
    assert isinstance(unreadable, Missing)
    assert "expected the JSON of a schedule" in unreadable.reason


def test_a_record_at_which_the_process_ends_costs_no_other(
    won: KernelEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def ends(*_: object, **options: Any) -> subprocess.CompletedProcess[str]:
        asked = options["input"].count("\n")
        calls.append(asked)
        return subprocess.CompletedProcess([], -6, "LLVM ERROR: out of luck\n", "")

    monkeypatch.setattr(subprocess, "run", ends)
    second = replace(won, report=replace(won.report, key="second"))
    assert regenerated((won, second), host_target()) == {
        won.report.key: Missing(ENDED), "second": Missing(ENDED),
    }  # fmt: skip
    assert calls == [2, 1]


def test_what_there_was_no_time_for_says_so(
    won: KernelEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **options: Any) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired([], options["timeout"], output=b'{"key": "half')

    monkeypatch.setattr(subprocess, "run", late)
    assert regenerated((won,), host_target(), limit_s=0.05) == {won.report.key: Missing(LATE)}


def test_targets_of_other_kinds_are_left_alone(won: KernelEvidence) -> None:
    gpu = next(iter(GPU_TARGETS.values()))
    (answer,) = regenerated((won,), gpu).values()
    assert isinstance(answer, Missing) and "of another kind than a CPU" in answer.reason
    assert module.CHILD == "hlotune.tuning_logs.page.regenerating"


def test_a_model_is_asked_again_where_its_name_and_digest_are_recorded() -> None:
    assert model_of({"model": "trees", "model_digest": "ab"}) == ("trees", "ab")
    assert model_of({"model": "trees", "model_digest": None}) is None
    assert model_of({}) is None


def test_ranks_that_agree_have_a_correlation_of_one() -> None:
    assert rank_correlation([(0, 0), (0.5, 0.5), (1, 1)]) == pytest.approx(1)
    assert rank_correlation([(0, 1), (0.5, 0.5), (1, 0)]) == pytest.approx(-1)
    assert rank_correlation([(0.5, 0.5)] * 3) == 0
    assert "of 3 trials" in ranks([[(0, 0), (0.5, 0.5), (1, 1)]], among="a kernel", title="x").alt


def test_features_are_told_in_words() -> None:
    words = correlations((Correlated(name="tasks", rank_correlation=-0.5, trials=40),))
    assert words == (
        "Trials with more tasks were slower (rank correlation with the speed -0.50 over 40 "
        "trials).",
    )
    assert noun("operand1_padding") == "padding of its copy of operand 1"
    assert noun("no such column") == "no such column"
    assert facts({}) == ()


def test_every_feature_of_a_nest_has_a_word() -> None:
    from hlotune.schedules.features.summary import NEST_NAMES, OPERAND_NAMES
    from hlotune.tuning_logs.page.feature_words import NEST, OPERAND

    assert NEST.keys() == set(NEST_NAMES)
    assert OPERAND.keys() == set(OPERAND_NAMES)


def test_a_database_of_another_machine_has_code_too(won: KernelEvidence, tmp_path: Path) -> None:
    """LLVM compiles for the recorded target, whatever machine this is."""
    from hlotune.measure.machine.targets import TARGETS

    (made,) = regenerated((won,), TARGETS["aarch64"]).values()
    assert isinstance(made, Regenerated)
    assert "aarch64" in made.assembly or "ret" in made.assembly
    assert made.code != won.code
