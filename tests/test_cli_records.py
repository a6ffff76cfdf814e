"""Commands that read a database, on one with a won kernel, a kept default and a failure."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hlotune.cli.main import run_command
from hlotune.deploy import bench as benching
from hlotune.deploy.artifact import load_artifact
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.program import load
from hlotune.hlo.sites import sites
from hlotune.hlo.to_compute import compute_of
from hlotune.measure.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Measurement, Outcome, Trial
from hlotune.schedules.cpu import space_of
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.features import NAMES
from hlotune.schedules.schedule import DEFAULT, Schedule
from hlotune.schedules.spaces import space_of as every_space_of
from hlotune.schedules.steps import Split
from hlotune.schedules.winograd import NEED_FAST
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final, Paired
from tests.applied import code_of
from tests.winograd_cases import windowed

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
        database.record_final(run, won, replace(final(split, 2.0), code=code_of(won, split)))
        database.record_final(run, kept, final(split, 0.9))
        database.finish_run(run)
    return str(file)


def stage_of(kernel: Kernel) -> str:
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
    assert (first["trials"], first["failures"], first["speedup"]) == (2, 1, 2.0)
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
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    file = tmp_path / "records.jsonl"
    said(capsys, "db", "export", str(file), "--db", path)
    good = file.read_text(encoding="utf-8")
    file.write_text("{}\nnot json\n" + good, encoding="utf-8")
    text = said(capsys, "db", "import", str(file), "--db", str(tmp_path / "a.db"))
    assert "2 broken lines" in text and "line 2" in text


def test_show_prints_text_decision_and_fastest_schedule(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    text = said(capsys, "show", key[:6], "--steps", "--db", path)
    assert "stablehlo.dot_general" in text
    assert "tuned: 2.00x" in text and "fastest: 100 us" in text
    assert "before any step" in text and "Split(" in text


def test_show_has_the_machine_code_in_text(capsys: pytest.CaptureFixture[str], path: str) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    text = said(capsys, "show", key[:6], "--llvm", "--asm", "--db", path)
    assert "define i32 @kernel(ptr" in text
    assert ".globl\tkernel" in text
    data = parsed(capsys, "show", key[:6], "--llvm", "--db", path)
    assert data["assembly"] is None and data["llvm"].count("@kernel") == 1


def test_show_names_the_features_of_a_schedule_of_the_space(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    kernel = sites(load(PROGRAM))[0].kernel
    space = space_of(compute_of(graph_of(kernel)), host_target())
    schedule = space.schedule(space.heuristic())
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain())
        trial = Trial(Candidate(kernel, schedule), Measurement(samples_s=(1e-4,)))
        database.add(run, kernel, [trial], batch=0)
    data = parsed(capsys, "show", kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert list(data["features"]) == list(NAMES)
    assert data["space_size"] == space.size
    text = said(capsys, "show", kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert "register_share" in text


def test_show_names_the_features_of_an_algorithm_for_fast_numerics_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    case = windowed(size=(14, 14), channels=16, features=32)
    space = every_space_of(case.compute, host_target(), fast=True)
    schedule = next(s for c in space.firsts() if (s := space.schedule(c)).algorithm in NEED_FAST)
    measured = Measurement(samples_s=(1e-4,), numerics="fast")
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), numerics="fast")
        trial = Trial(Candidate(case.kernel, schedule), measured)
        database.add(run, case.kernel, [trial], batch=0)
    data = parsed(capsys, "show", case.kernel.key, "--features", "--db", str(tmp_path / "a.db"))
    assert list(data["features"]) == list(NAMES)


def test_show_refuses_features_of_a_schedule_that_the_space_has_not(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    key = sites(load(PROGRAM))[0].kernel.key
    assert run_command(["show", key, "--features", "--db", path]) == 2
    assert "expected a schedule of today's space" in capsys.readouterr().err


def test_show_has_no_details_where_nothing_of_ours_ran(
    capsys: pytest.CaptureFixture[str], path: str
) -> None:
    kept = sites(load(PROGRAM))[1].kernel.key
    assert "fastest: nothing ran here" in said(capsys, "show", kept, "--db", path)
    assert run_command(["show", kept, "--asm", "--db", path]) == 1
    assert "expected a schedule of ours that ran on this machine" in capsys.readouterr().err


def test_a_merged_database_brings_its_rows_once(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy.db")
    first = parsed(capsys, "db", "merge", path, "--db", copy)["added"]
    assert first["trials"] == 3 and first["finals"] == 2
    again = parsed(capsys, "db", "merge", path, "--db", copy)["added"]
    assert set(again.values()) == {0}
    assert "trials" in said(capsys, "db", "merge", path, "--db", copy)


def test_a_missing_database_is_not_merged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    files = str(tmp_path / "none.db"), str(tmp_path / "a.db")
    assert run_command(["db", "merge", files[0], "--db", files[1]]) == 2
    assert "expected a file, found none" in capsys.readouterr().err


def test_prune_drops_failures_and_all_but_the_fastest(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    assert said(capsys, "db", "prune", "--keep", "1", "--db", copy) == "2 trials dropped\n"
    assert parsed(capsys, "db", "prune", "--keep", "1", "--db", copy) == {"dropped_trials": 0}


def test_check_finds_a_sound_database_sound_and_a_damaged_one_not(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    assert ", 0 problems" in said(capsys, "db", "check", "--db", copy)
    with Database(copy) as database, database.writing() as sql:
        sql.execute("update kernels set text = 'x'")
    assert run_command(["db", "check", "--json", "--db", copy]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("key of the text" in line for line in problems)


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
    assert {x["reason"] for x in lines[2:] if x["status"] == "no record"} == {"never tuned"}


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


def test_importing_a_file_without_one_record_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "junk.jsonl"
    file.write_text("junk\n")
    arguments = ["db", "import", str(file), "--database", str(tmp_path / "new.db")]
    assert run_command(arguments) == 2
    assert "got 1 lines that are none" in capsys.readouterr().err


def test_a_benchmark_that_finds_a_kernel_wrong_takes_its_record_back(
    capsys: pytest.CaptureFixture[str],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = str(shutil.copy(path, tmp_path / "copy.db"))
    key = sites(load(PROGRAM))[0].kernel.key

    def wrong(*_: object, **__: object) -> None:
        raise WrongResult("expected 1, got 2; to blame: dot0; tune it again", kernels=(key,))

    monkeypatch.setattr(benching, "bench", wrong)
    assert run_command(["bench", PROGRAM, "--db", copy]) == 2
    said_last = capsys.readouterr().err
    assert f"tune it again; {key[:8]} keep the default from now on" in said_last
    (first, *_) = parsed(capsys, "explain", PROGRAM, "--db", copy)["sites"]
    assert first["reason"] == "kept default: wrong in the program"
    shown = parsed(capsys, "show", key, "--db", copy)
    assert shown["fastest_of_ours"] is None and "xla" in shown["fastest"]["schedule"]


def test_records_go_into_a_pipe_line_by_line_and_nothing_else(path: str) -> None:
    command = [sys.executable, "-m", "hlotune", "db", "export", "/dev/stdout", "--db", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and done.stderr == f"{len(lines)} records in /dev/stdout\n"


def test_a_reader_of_records_that_leaves_early_is_no_fault_of_the_file(path: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "hlotune", "db", "export", "/dev/stdout", "--db", path]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_apply_writes_a_program_that_can_be_loaded(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "mlp.hlotune")
    written = parsed(capsys, "apply", PROGRAM, "-o", file, "--db", path)
    assert (written["sites"], len(written["kernels"])) == (1, 1)
    assert written["bytes"] == Path(file).stat().st_size
    assert all(a["wrong"] is None for a in written["accuracy"])
    assert load_artifact(file).target == written["target"]


def test_apply_without_anything_tuned_writes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Database(tmp_path / "empty.db").close()
    file = tmp_path / "mlp.hlotune"
    arguments = ["apply", PROGRAM, "-o", str(file), "--db", str(tmp_path / "empty.db")]
    assert run_command(arguments) == 1
    assert "found none; `tune explain` says why" in capsys.readouterr().err
    assert not file.exists()
