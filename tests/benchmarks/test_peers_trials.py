"""What the table against peers says of first candidates and errors, from made-up records."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.operators import first_schedule
from benchmarks.peers import __main__ as command
from benchmarks.peers.records import kernel_of, record
from benchmarks.peers.table import Row, table
from benchmarks.peers.trials import Begun, Past, notes, of_errors, of_first_candidates, past
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.steps.schedule import Schedule
from hlotune.tuning_logs.database import Database
from tests.benchmarks.test_peers_table import TARGET, a_pass, rows
from tests.support.applied import final
from tests.support.recorded import default_trial

CASE = "GMM2"
SLOW, FAILED = Measurement(samples_s=(3e-3,)), Failure("crash", "signal 11")


def kernel() -> Kernel:
    return kernel_of(CASE, "arguments")


def first(outcome: Outcome) -> Trial:
    return Trial(Candidate(kernel(), first_schedule(kernel(), host_target())), outcome)


def took(time_s: float) -> Measurement:
    return Measurement(samples_s=(time_s,), relative_error=2e-7)


def of_runs(path: Path, *runs: list[Trial]) -> Past:
    """What a database with these runs tells of the case, whose first candidate won."""
    with Database(path) as opened:
        for trials in runs:
            run = opened.start_run(None, host_target(), toolchain())
            opened.add(run, kernel(), trials, batch=0)
            opened.record_final(run, kernel(), final(first(SLOW).candidate.schedule))
    found = record(CASE, "arguments", path, host_target())
    return past(found, path, host_target(), "model")


def test_the_first_candidate_is_held_against_the_default_of_its_own_run(tmp_path: Path) -> None:
    elsewhere = [default_trial(9e-3, kernel())]
    together = [default_trial(2e-3, kernel()), first(took(1e-3))]
    found = of_runs(tmp_path / "a.db", elsewhere, together)
    assert found.begun == Begun(1e-3, 2e-3) and found.begun.speedup == 2.0


def test_without_a_default_in_its_run_a_first_candidate_proves_nothing(tmp_path: Path) -> None:
    assert of_runs(tmp_path / "a.db", [default_trial(1.0, kernel())], [first(SLOW)]).begun is None


def test_a_first_candidate_that_failed_and_then_ran_counts_as_it_ran(tmp_path: Path) -> None:
    failed = [default_trial(2e-3, kernel()), first(FAILED)]
    alone = of_runs(tmp_path / "a.db", failed)
    assert alone.begun and alone.begun.first_s is None and alone.begun.speedup == 0.0
    later = of_runs(tmp_path / "b.db", failed, [default_trial(3e-3, kernel()), first(SLOW)])
    assert later.begun == Begun(3e-3, 3e-3)


def test_the_error_of_a_winner_is_the_largest_of_its_trials(tmp_path: Path) -> None:
    worse = first(replace(took(1e-3), relative_error=5e-7))
    other = Trial(Candidate(kernel(), Schedule("direct")), took(1e-3))
    unseen = first(SLOW)
    found = of_runs(tmp_path / "a.db", [first(took(1e-3)), worse, unseen, other])
    assert found.error == 5e-7
    assert of_runs(tmp_path / "b.db", [first(SLOW)]).error is None


def known(algorithm: str = "direct", error: float | None = None, first_s: float = 1e-3) -> Past:
    return Past(algorithm=algorithm, error=error, begun=Begun(first_s, 2e-3))


def row(case: str = "C6") -> Row:
    return rows(a_pass(case))[0]


def test_first_candidates_that_are_behind_the_default_are_counted_and_named() -> None:
    failed = replace(known(), begun=Begun(None, 2e-3))
    found = [
        (row("C1"), known()),
        (row("C2"), known(first_s=2e-3)),
        (row("C3"), known(first_s=4e-3)),
        (row("C4"), failed),
        (row("C5"), replace(known(), begun=None)),
    ]
    counted, behind, unknown = of_first_candidates(found)
    assert "at least as fast as XLA: 2 of 4 f32 rows (50%)" in counted
    assert behind.endswith(": C3 (arguments) 0.50, C4 (arguments) 0.00")
    assert unknown == "no run has a trial of both first candidate and default: C5 (arguments)"
    assert not list(of_first_candidates([]))


def test_the_largest_error_by_winograd_is_told_with_its_case() -> None:
    found = [
        (row("C2"), known("winograd(2)", 4e-7)),
        (row("C6"), known("winograd(4)", 1.2e-6)),
        (row("C9"), known("direct", 1.0)),
    ]
    (note,) = of_errors(found)
    assert "over the largest element: 1.2e-06, C6 (arguments), of 2 rows; above 3e-06: none" in note


def test_errors_above_the_bound_are_named_and_those_that_nobody_knows() -> None:
    found = [
        (row("C2"), known("winograd(4)", 3.1e-6)),
        (row("C6"), known("winograd(4)", 2.9e-6)),
        (row("C9"), known("winograd(2)")),
    ]
    told, unknown = of_errors(found)
    assert told.endswith("3.1e-06, C2 (arguments), of 2 rows; above 3e-06: C2 (arguments) 3.1e-06")
    assert unknown.endswith("is not known: C9 (arguments)")


@pytest.mark.parametrize("algorithm", ["direct", "xla"])
def test_who_only_reorders_sums_has_no_error_worth_a_line(algorithm: str) -> None:
    kept = replace(row(), status="kept xla")
    assert not list(of_errors([(row(), known(algorithm, 1.0)), (kept, known("winograd(4)", 1.0))]))


def test_what_the_records_say_comes_under_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    of_runs(path, [default_trial(2e-3, kernel()), first(took(1e-3))])
    arguments, constants = rows(a_pass(CASE))
    judged = [arguments, replace(constants, status="not tuned")]
    told = notes(judged, path, host_target())
    assert told == [
        "first candidate, without any search, at least as fast as XLA: 1 of 1 f32 rows (100%), "
        "by trials of one run"
    ]
    assert told[0] in table(judged, {}, "model", told).notes
    assert notes(judged, tmp_path / "b.db", host_target()) == []


def test_narrow_types_count_in_no_share_of_first_candidates(tmp_path: Path) -> None:
    path, narrow = tmp_path / "a.db", row("C6_bf16")
    of_runs(path, [default_trial(2e-3, kernel())])
    assert notes([narrow], path, host_target()) == []


def test_what_the_records_say_is_printed_under_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "kept", lambda _: [a_pass("C6")])
    monkeypatch.setattr(command, "notes", lambda *_: ["so say the records"])
    command.shown(["C6"], tmp_path / "a.db", TARGET)
    assert "\nso say the records\n" in capsys.readouterr().out
