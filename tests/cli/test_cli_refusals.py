"""Programs and databases that commands refuse: one line that says why, and exit code 2."""

import sqlite3
import sys
from pathlib import Path

import pytest

from hlotune.cli.each_variant import for_each
from hlotune.cli.main import run_command
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import host_target, toolchain
from hlotune.measure.trial import Candidate, Failure, Trial
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.steps.schedule import DEFAULT
from hlotune.tuning_logs.database import Database
from tests.cli.test_cli import refused
from tests.support.commands import tune

PROGRAM = "examples/mlp.py:model"
READING = ("ls", "stats", "prune", "check")


@pytest.mark.skipif(sys.platform != "linux", reason="the folder is Linux's")
def test_a_run_without_a_place_for_its_database_is_refused() -> None:
    message = refused("run", PROGRAM, "--trials", "1", "--database", "/proc/tuning.db")
    assert "cannot be opened; check the path and the rights of file and folder" in message


@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("mlir", "a StableHLO module"),
        ("hlo", "HLO text"),
        ("pb", "a serialized HloModuleProto"),
        ("onnx", "an ONNX model in"),
        ("pt2", "a file of torch.export.save in"),
        ("keras", "StableHLO, HLO, ONNX or an export of PyTorch in a file"),
        ("exe", "a StableHLO module"),
    ],
)
def test_a_file_that_is_no_program_is_refused(suffix: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_text("no program\n")
    assert f"expected {expected}" in refused("kernels", str(path))


def test_a_run_of_what_is_no_program_leaves_no_database(tmp_path: Path) -> None:
    path, database = tmp_path / "model.mlir", tmp_path / "tuning.db"
    path.write_text("no program\n")
    refused("run", str(path), "--database", str(database))
    assert not database.exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("show", "expected a recorded kernel, got ''; `tune db ls` lists them"),
        ("report", "expected a recorded run, got ''; `tune db stats` lists them"),
        ("resume", "expected the beginning of one run's id, got '', with which 1 begin"),
    ],
)
def test_an_empty_name_is_of_no_record_though_there_is_one_alone(
    command: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load(PROGRAM)
    with Database(tmp_path / "tuning.db") as database:
        run = database.start_run(program, host_target(), toolchain(), sites=[])
        trial = Trial(Candidate(sites(program)[0].kernel, DEFAULT), Failure("build", "none"))
        database.add(run, trial.candidate.kernel, [trial], batch=0)
    assert run_command([command, "", "--database", str(tmp_path / "tuning.db")]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("verb", READING)
def test_each_look_at_a_folder_says_that_it_is_one(verb: str, tmp_path: Path) -> None:
    message = refused("db", verb, "--database", str(tmp_path))
    assert "expected a file, got a folder; name a file in it" in message


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        ("import", "expected JSON lines at {folder}, got a folder; check the path"),
        ("merge", "database {folder}: expected a file, got a folder; name a file in it"),
        ("export", "expected a file to write, got the folder {folder}; name a file"),
    ],
)
def test_a_folder_in_place_of_a_file_of_records_is_refused(
    verb: str, message: str, tmp_path: Path
) -> None:
    database = tmp_path / "tuning.db"
    if verb == "export":
        Database(database).close()
    folder = tmp_path / "records"
    folder.mkdir()
    said = refused("db", verb, str(folder), "--database", str(database))
    assert message.format(folder=folder) in said
    assert database.exists() == (verb == "export")


@pytest.mark.parametrize(
    "command",
    [
        ("run", PROGRAM), ("bench", PROGRAM), ("explain", PROGRAM), ("report", PROGRAM),
        ("kernels", PROGRAM),
        ("db", "check"), ("db", "ls"), ("db", "stats"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_the_database_of_a_newer_version_is_refused(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "tuning.db"
    Database(path).close()
    newer = sqlite3.connect(path)
    newer.execute("pragma user_version = 99")
    newer.close()
    message = refused(*command, "--database", str(path))
    assert "got version 99, written by a newer hlotune; upgrade hlotune" in message


@pytest.mark.parametrize("command", [("run", "--trials", "1"), ("kernels",)])
@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (
            "tensor<?x4xf32>",
            "got none for arg0.0 (arg0 is arg0.0 x 4); give them on the command line as in --dim "
            "arg0.0=8",
        ),
    ],
)
def test_a_program_of_dynamic_shapes_is_refused(
    command: tuple[str, ...], tensor: str, message: str, tmp_path: Path
) -> None:
    name, *options = command
    database = tmp_path / "tuning.db"
    if name == "run":
        options += ["--database", str(database)]
    assert message in refused(name, str(identity(tensor, tmp_path)), *options)
    assert not database.exists()


@pytest.mark.parametrize("tensor", ["tensor<4xf8E4M3FN>", "tensor<4xcomplex<f32>>"])
def test_a_program_of_types_that_stay_with_xla_has_no_kernels(tensor: str, tmp_path: Path) -> None:
    done = tune("kernels", str(identity(tensor, tmp_path)))
    assert done.returncode == 1
    assert "expected kernels, found none; XLA keeps all of it" in done.stderr


def identity(tensor: str, folder: Path) -> Path:
    """A program file whose result is its argument."""
    text = f"func.func @main(%x: {tensor}) -> {tensor} {{ return %x : {tensor} }}"
    program = folder / "program.mlir"
    program.write_text(f"module {{ {text} }}", encoding="utf-8")
    return program


@pytest.mark.parametrize(
    "sizes",
    [
        ["batch"], ["batch=-1"], ["=2"], ["batch=2", "batch=3"], ["batch=1,"], ["batch=8=9"],
        ["batch=" + "9" * 19], ["batch=" + "9" * 5000],
    ],
    ids=lambda sizes: " ".join(sizes)[:30],
)  # fmt: skip
def test_a_size_of_a_dimension_is_a_name_and_a_whole_number(sizes: list[str]) -> None:
    words = [word for size in sizes for word in ("--dim", size)]
    message = refused("kernels", "model.onnx", *words)
    assert "expected a dimension and its size, as in batch=8, or sizes, as in" in message
    assert len(message) < 400


@pytest.mark.parametrize("command", [("run", "--trials", "1"), ("kernels",), ("bench",)])
def test_arguments_beside_a_factory_that_takes_none_are_refused(command: tuple[str, ...]) -> None:
    name, *options = command
    message = refused(name, PROGRAM, *options, "--arg", "f32[8,784]", "--arg", "f32[8]")
    assert (
        f"expected {PROGRAM} to take 2 arguments, as so many are given (--arg), got a function "
        "that takes none; leave them out if it is a factory" in message
    )


def test_the_first_candidates_of_a_model_s_file_are_none(tmp_path: Path) -> None:
    message = refused("run", PROGRAM, "--first", "--model-file", str(tmp_path / "m.npz"))
    assert "expected --first alone, which asks no model, got --model-file too; leave" in message


@pytest.mark.parametrize(
    ("options", "given", "advice"),
    [
        (("--arg", "f32[8]"), "--arg", "leave it out"),
        (("--dim", "batch=1,8"), "--dim", "leave it out"),
        (("--arg", "f32[b]", "--dim", "b=8"), "--arg and --dim", "leave them out"),
    ],
    ids=["types", "sizes", "both"],
)
def test_a_folder_of_modules_has_its_types_in_it(
    options: tuple[str, ...], given: str, advice: str, tmp_path: Path
) -> None:
    (tmp_path / "module_1.a.before_optimizations.txt").touch()
    message = refused("run", str(tmp_path), "--trials", "1", *options)
    assert f"the types of their arguments in them, got {given} too; {advice}" in message


def test_a_command_of_one_program_refuses_several_sizes() -> None:
    message = refused("kernels", "model.onnx", "--dim", "batch=1,8")
    assert "expected one size of each dimension for this command, got batch=1,8; name" in message


def test_equal_sizes_are_refused() -> None:
    message = refused("run", "model.onnx", "--dim", "batch=8,8", "--trials", "1")
    assert "expected different sizes of the dimension batch, got [8, 8]; give each" in message


def test_sizes_of_dimensions_are_of_files_alone() -> None:
    message = refused("kernels", PROGRAM, "--dim", "batch=8")
    assert "expected sizes of symbolic dimensions alone, got batch" in message


def test_an_error_that_is_the_same_for_all_sizes_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def absent(*, dim: list[str]) -> None:
        raise ProgramError("expected a dimension of the program, got c")

    def different(*, dim: list[str]) -> None:
        raise ProgramError(f"expected another size, got {dim[0]}")

    with pytest.raises(ProgramError, match="got c"):
        for_each([["c=1"], ["c=8"], ["c=9"]], absent)
    assert "tune:" not in capsys.readouterr().err
    with pytest.raises(ProgramError, match="got c=1"):
        for_each([["c=1"], ["c=8"]], different)
    assert "tune: expected another size, got c=8" in capsys.readouterr().err
