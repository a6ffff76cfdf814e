"""Commands that read a database, on one with a won kernel, a kept default and a failure."""

import json
from pathlib import Path
from typing import Any

import pytest

from hlotune.cli.main import run_command
from hlotune.hlo.program import load
from hlotune.hlo.sites import sites
from hlotune.measure.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.schedule import DEFAULT, Schedule
from hlotune.schedules.steps import Split
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired

PROGRAM = "examples/mlp.py:model"
SPLIT = Schedule("direct", (Split("out", "i0", (4,)),))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a database with one run: the first kernel won, the second kept XLA."""
    file = tmp_path_factory.mktemp("records") / "tuning.db"
    program = load(PROGRAM)
    won, kept = (site.kernel for site in sites(program)[:2])
    split = Schedule("direct", (Split(stage_of(won), "i0", (4,)),))
    with Database(file) as database:
        run = database.start_run(program, host_target(), toolchain(), sites=sites(program))
        outcomes: list[tuple[Schedule, Outcome]] = [
            (DEFAULT, Measurement(samples_s=(2e-4,))),
            (split, Measurement(samples_s=(1e-4,))),
            (SPLIT, Failure("build", "no such stage")),
        ]
        trials = [Trial(Candidate(won, s), o) for s, o in outcomes]
        database.add(run, won, trials, batch=0)
        database.record_final(run, won, final(split, 2.0))
        database.record_final(run, kept, final(split, 0.9))
        database.finish_run(run)
    return str(file)


def stage_of(kernel: Any) -> str:
    from hlotune.hlo.canonical import graph_of
    from hlotune.hlo.to_compute import compute_of

    return compute_of(graph_of(kernel)).stages[0].name


def final(schedule: Schedule, speedup: float) -> Final:
    paired = Paired(
        default_s=(2e-4,), tuned_s=(2e-4 / speedup,), speedup=speedup, low=speedup, high=speedup
    )
    return Final(
        schedule=schedule,
        numerics="strict",
        paired=paired,
        outcome="tuned" if speedup > 1 else "kept default",
        margin=speedup - 1,
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it has to succeed."""
    code = run_command(arguments)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def parsed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(said(capsys, *arguments, "--json"))


def test_db_ls_lists_kernels_with_trials_and_speedup(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    first = parsed(capsys, "db", "ls", "--db", path)[0]
    assert (first["trials"], first["failures"], first["speedup"]) == (3, 1, 2.0)
    assert "2.00x" in said(capsys, "db", "ls", "--db", path)


def test_db_ls_of_an_empty_database_finds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    assert run_command(["db", "ls", "--db", str(tmp_path / "empty.db")]) == 1
    assert capsys.readouterr().err.startswith("tune: ")


def test_db_stats_counts_rows_and_failures(capsys: pytest.CaptureFixture[str], path: str) -> None:
    data = parsed(capsys, "db", "stats", "--db", path)
    assert data["rows"]["trials"] == 3
    assert data["failures"][0]["message"] == "no such stage"
    assert "no such stage" in said(capsys, "db", "stats", "--db", path)


def test_exported_records_come_back_once(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    lines, copy = str(tmp_path / "records.jsonl"), str(tmp_path / "copy.db")
    written = parsed(capsys, "db", "export", lines, "--db", path)["records"]
    first = parsed(capsys, "db", "import", lines, "--db", copy)
    again = parsed(capsys, "db", "import", lines, "--db", copy)
    assert first["records"] == first["added"] == written
    assert again["added"] == first["broken"] == 0


def test_import_counts_broken_lines_and_says_where(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "records.jsonl").write_text("{}\nnot json\n", encoding="utf-8")
    text = said(
        capsys, "db", "import", str(tmp_path / "records.jsonl"), "--db", str(tmp_path / "a.db")
    )
    assert "2 broken lines" in text and "line 2" in text


def test_show_prints_text_decision_and_fastest_schedule(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    text = said(capsys, "show", key[:6], "--steps", "--db", path)
    assert "stablehlo.dot_general" in text
    assert "tuned: 2.00x" in text and "fastest: 100 us" in text
    assert "before any step" in text and "Split(" in text


def test_show_of_an_unknown_kernel_finds_nothing(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    assert run_command(["show", "zzzz", "--db", path]) == 1
    assert "expected a recorded kernel, got 'zzzz'" in capsys.readouterr().err


def test_explain_gives_a_reason_for_every_site(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    lines = parsed(capsys, "explain", PROGRAM, "--db", path)["sites"]
    assert len(lines) == len(sites(load(PROGRAM)))
    assert lines[1]["status"] == "kept default" and lines[1]["speedup"] == 0.9
    assert "margin" in lines[1]["reason"]
    assert {x["reason"] for x in lines[2:]} == {"never tuned"}


def test_bench_without_records_finds_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    assert run_command(["bench", PROGRAM, "--db", str(tmp_path / "empty.db")]) == 1
    assert "`tune run` makes them" in capsys.readouterr().err


def test_report_is_found_by_program_and_prints_what_was_won(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    data = parsed(capsys, "report", "model", "--db", path)
    assert data["won"] == 1 and len(data["kernels"]) == 2
    assert "1 of 2" in said(capsys, "report", data["run"][:8], "--db", path)


def test_kernels_lists_work_and_data(capsys: pytest.CaptureFixture[str]) -> None:
    lines = parsed(capsys, "kernels", PROGRAM)["kernels"]
    bare = next(x for x in lines if x["label"] == "dot 64x784x512")
    assert bare["flops"] == 2 * 64 * 784 * 512
    assert bare["bytes"] == 4 * (64 * 784 + 784 * 512 + 64 * 512)
    assert "51.38 MFLOP" in said(capsys, "kernels", PROGRAM)
