"""How `tune run` ends: its exit code, and the line after the report."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.cli.main import run_command
from hlotune.cli.outcome import end, going_on, too_short
from hlotune.hlo.frontends.program import Program
from hlotune.measure.machine.targets import TARGETS, toolchain
from hlotune.schedules.errors import NoRecord
from hlotune.search import resuming
from hlotune.search import tune as tuning
from hlotune.search.result import KernelResult, TuneResult
from hlotune.tuning_logs.database import Database

KERNEL = KernelResult(
    label="dot 64x784x512", key="ab" * 16, weight=1, trials=0, failures=0, default_s=1, best_s=None
)


def recorded(folder: Path) -> TuneResult:
    """The result of a run that a database knows."""
    path = folder / "tuning.db"
    with Database(path) as database:
        run = database.start_run(None, TARGETS["x86-64"], toolchain())
    return TuneResult(
        program_name="model",
        database=path,
        run=run,
        kernels=(KERNEL,),
        trials=0,
        known_trials=0,
        wall_s=1.0,
    )


def ended(monkeypatch: pytest.MonkeyPatch, folder: Path, **outcome: Any) -> int:
    """Runs the command with a tuner that says it ended so."""
    result = recorded(folder)
    monkeypatch.setattr(tuning, "tune", lambda *_, **__: replace(result, **outcome))
    program = ["examples/mlp.py:model", "--budget", "10s", "--database", str(result.database)]
    return run_command(["run", *program])


def test_a_run_without_mishaps_ends_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert ended(monkeypatch, tmp_path) == 0


def test_wrong_results_are_said_after_the_report_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = "dot1 (dot 64x784x512)", "dot3 (dot 64x784x512)"
    wrong: dict[str, Any] = {"wrong": (KERNEL.key,), "wrong_sites": sites}
    assert ended(monkeypatch, tmp_path, **wrong, interrupted=True) == 2
    said = capsys.readouterr()
    assert "whole program" in said.out
    assert "expected its results, got others with dot1 (dot 64x784x512), dot3 (" in said.err
    assert "; kernels abababab keep the default from now on" in said.err
    assert said.err.count("\n") == 1


def test_a_wrong_program_without_a_kernel_to_blame_is_said_after_the_report_with_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, tmp_path, wrong_anyway="expected 1, got 2; to blame: no site") == 2
    said = capsys.readouterr()
    assert "whole program" in said.out
    assert "program model: expected 1, got 2; to blame: no site" in said.err


def test_a_budget_that_was_too_short_is_said_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, tmp_path, needed_s=40) == 1
    said = capsys.readouterr().err
    assert "found none in the budget of 10 s; give --budget 40s, or --first for first" in said


def test_no_option_is_offered_that_cannot_be_given(tmp_path: Path) -> None:
    """First candidates are taken on one device."""
    with pytest.raises(NoRecord, match=r"in the budget of 10 s; give --budget 40s$"):
        end(replace(recorded(tmp_path), needed_s=40), 10.0, devices=2)


def test_a_run_that_is_taken_up_again_with_too_little_time_is_to_be_begun_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`tune resume` has options of neither a budget nor first candidates."""
    result = recorded(tmp_path)
    before = SimpleNamespace(run=result.run, budget_s=10.0)
    monkeypatch.setattr(resuming, "interrupted", lambda *_: before)
    monkeypatch.setattr(resuming, "resume", lambda *_, **__: replace(result, needed_s=40))
    monkeypatch.setattr("hlotune.cli.resume.load_program", lambda *_, **__: None)
    words = ["resume", result.run, "examples/mlp.py:model", "--database", str(result.database)]
    assert run_command(words) == 1
    said = capsys.readouterr().err
    assert "of 10 s; begin anew: tune run with --budget 40s, or --first for first" in said


def test_trips_that_were_told_modules_without_loops_are_told_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the command says that an interrupted run of a module of a folder ends with."""
    result, module = recorded(tmp_path), tmp_path / "module.mlir"
    module.write_text(
        "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %y = stablehlo.add %x, %x : tensor<8xf32>\n"
        "  return %y : tensor<8xf32>\n}\n"
    )
    before = SimpleNamespace(run=result.run, budget_s=10.0, source=str(module))
    taken_up: list[Program] = []

    def go_on(program: Program, *_: object, **__: object) -> TuneResult:
        taken_up.append(program)
        return result

    monkeypatch.setattr(resuming, "interrupted", lambda *_: before)
    monkeypatch.setattr(resuming, "resume", go_on)
    assert run_command(shlex.split(going_on(result, None, (), (), ["50"]))[1:]) == 0
    assert [program.trips for program in taken_up] == [{"": (50,)}]


def test_a_budget_that_several_programs_divide_is_told_for_all_of_them() -> None:
    """As two sizes of a dimension do, each with ten seconds of twenty."""
    said = "its part, 10 s, of the budget of 20 s; give --budget 30s"
    assert too_short(10.0, 20.0, 15) == said
    assert too_short(20.0, 20.0, 15) == "the budget of 20 s; give --budget 15s"


def test_a_program_without_kernels_is_nothing_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, tmp_path, kernels=()) == 1
    assert "expected kernels to tune, found none; XLA keeps all of it" in capsys.readouterr().err
    assert ended(monkeypatch, tmp_path, kernels=(), skipped=(("dot", "no rule"),)) == 1
    assert "found none (no rule); XLA keeps all of it" in capsys.readouterr().err


def test_an_interrupted_run_leaves_with_130_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "two words"
    folder.mkdir()
    assert ended(monkeypatch, folder, interrupted=True) == 130
    first, second = capsys.readouterr().err.splitlines()
    with Database(folder / "tuning.db") as database:
        (run,) = database.query("select id from runs")
    words = shlex.split(first.removeprefix("tune: to go on: "))
    assert words == ["tune", "resume", run["id"], "--database", str(folder / "tuning.db")]
    assert second == "tune: interrupted; what was recorded until then stays"


def test_going_on_takes_again_what_no_database_has(tmp_path: Path) -> None:
    result = TuneResult(
        program_name="model", database=tmp_path / "a.db", run="5f0c", kernels=(), trials=0,
        known_trials=0, wall_s=1.0,
    )  # fmt: skip
    types, sizes = ["f32[8,784]", "f32[2]"], ["batch=8"]
    words = shlex.split(going_on(result, Path("my model.npz"), types, sizes, ["while0=9"]))
    assert words[5:] == [
        "--model-file", "my model.npz", "--arg", "f32[8,784]", "--arg", "f32[2]", "--dim",
        "batch=8", "--trips", "while0=9",
    ]  # fmt: skip
    assert shlex.split(going_on(result, None, [], devices=2))[5:] == ["--devices", "2"]
