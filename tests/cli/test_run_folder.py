"""`tune run FOLDER` lists the modules that XLA dumped, and tunes those that take the time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlotune.cli import run, run_folder
from hlotune.cli.main import run_command
from hlotune.cli.run_folder import Timed, run_modules, worth_tuning
from hlotune.cli.run_program import Request
from hlotune.hlo.frontends.dump_folder import DumpedModule, dumped_modules
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import NoRecord, ProgramError

PROGRAM = """
import jax, jax.numpy as jnp
x = jnp.ones((128, 128))
jax.block_until_ready(jax.jit(lambda x: jnp.tanh(x @ x) @ x)(x))
jax.block_until_ready(jax.jit(lambda x: jax.nn.softmax(x @ x) @ (x @ x + 1))(x))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process of JAX dumps, as protocol buffers and as text."""
    folder = tmp_path_factory.mktemp("dump")
    dump(PROGRAM, folder, "--xla_dump_hlo_as_proto", "--xla_dump_hlo_as_text")
    return folder


def dump(program: str, folder: Path, *options: str) -> None:
    flags = " ".join([f"--xla_dump_to={folder}", *options])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program]
    subprocess.run(command, env=environment, check=True, capture_output=True)


LAYER = """
import jax, jax.numpy as jnp, numpy as np
w = np.arange(4096, dtype=np.float32).reshape(64, 64)
jax.block_until_ready(jax.jit(lambda x: jnp.tanh(x @ w))(np.ones((64, 64), np.float32)))
"""
EVERYTHING = [
    "--xla_dump_hlo_as_proto", "--xla_dump_hlo_as_text", "--xla_dump_hlo_as_dot",
    "--xla_dump_hlo_as_html", "--xla_dump_hlo_snapshots", "--xla_dump_hlo_pass_re=.*",
    "--xla_dump_module_metadata", "--xla_dump_hlo_as_long_text", "--xla_dump_full_hlo_config",
    "--xla_dump_fusion_visualization", "--xla_dump_large_constants", "--xla_dump_include_timestamp",
    "--xla_dump_latency_hiding_schedule", "--xla_dump_emitter_re=.*",
]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "form"),
    [
        (EVERYTHING, ".before_optimizations.hlo.pb"),
        (["--xla_dump_hlo_as_proto", "--xla_dump_compress_protos"], "module.mlir"),
        (["--xla_dump_hlo_as_proto", "--xla_dump_hlo_to_subfolder"], "module.mlir"),
        ([], "module.mlir"),
    ],
    ids=["everything", "compressed", "folders", "nothing else"],
)
def test_a_dump_with_any_options_has_each_module_once_with_its_constants(
    options: list[str], form: str, tmp_path: Path
) -> None:
    dump(LAYER, tmp_path, *options)
    (found,) = [m for m in dumped_modules(tmp_path) if m.name.endswith("jit__lambda")]
    assert found.file.name.endswith(form)
    program = load(found.file)
    assert [op.name for op in program.graph.ops if "dot" in op.name] and not program.remarks


def module(name: str) -> DumpedModule:
    return DumpedModule(name, Path(f"{name}.before_optimizations.txt"))


def test_each_module_is_read_from_its_best_file(folder: Path, tmp_path: Path) -> None:
    modules = dumped_modules(folder)
    assert len(modules) >= 2
    assert all(m.file.name == f"{m.name}.before_optimizations.hlo.pb" for m in modules)
    for name in ("module_1.a.cpu_after_optimizations.txt", "module_1.a.before_optimizations.txt"):
        (tmp_path / name).touch()
    (found,) = dumped_modules(tmp_path)
    assert found.file.name == "module_1.a.before_optimizations.txt"


def test_a_folder_of_something_else_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert dumped_modules(tmp_path) == dumped_modules(tmp_path / "absent") == ()
    with pytest.raises(ProgramError, match="`tune run` also takes a folder that XLA has dumped"):
        load(tmp_path)


def test_the_slowest_modules_share_the_budget_by_their_times() -> None:
    timed = [
        Timed(module("a"), "1", 6e-3, True), Timed(module("b"), "2", 5e-3), 
        Timed(module("c"), "3", 3e-3, True), Timed(module("d"), "4", 1e-5, True),
        Timed(module("e"), "", refused="damaged"),
    ]  # fmt: skip
    by_time = worth_tuning(timed, 90.0)
    assert [(c.module.name, c.budget_s) for c in by_time] == [("a", 60.0), ("c", 30.0)]
    assert [c.module.name for c in worth_tuning(timed, 30.0)] == ["a"]
    assert [c.budget_s for c in worth_tuning(timed, None)] == [None, None]


def test_modules_are_listed_and_tuned_one_after_another(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float | None]] = []

    def tune(file: str, budget_s: float | None) -> None:
        asked.append((file, budget_s))
        if len(asked) == 1:
            raise NoRecord("program a: expected kernels")

    run_modules(dumped_modules(folder), 200.0, tune)
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "to tune for" in line]) == len(asked) == 2
    assert any("left to XLA: no kernels" in line for line in lines)
    assert any(line.endswith("program a: expected kernels") for line in lines)
    assert sum(budget or 0 for _, budget in asked) == pytest.approx(200)


@pytest.mark.parametrize(
    ("given", "budgets"),
    [(["--budget", "80s"], [40, 40]), (["--trials", "4"], [None] * 2), (["--first"], [None] * 2)],
)
def test_each_module_of_a_folder_is_tuned_with_the_options_of_the_command(
    given: list[str], budgets: list[float | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("module_1.a", "module_2.b"):
        (tmp_path / f"{name}.before_optimizations.txt").touch()
    asked: list[Request] = []
    monkeypatch.setattr(run_folder, "look", lambda m: Timed(m, m.name, 1e-3, has_kernels=True))
    monkeypatch.setattr(run, "run_program", asked.append)
    assert run_command(["run", str(tmp_path), "--numerics", "strict", *given]) == 0
    assert [request.budget_s for request in asked] == budgets
    assert {Path(request.program).name[:10] for request in asked} == {"module_1.a", "module_2.b"}
    assert {request.numerics for request in asked} == {"strict"}
    assert {request.first for request in asked} == {"--first" in given}
    assert all(request.is_module for request in asked)


def test_a_folder_without_work_is_nothing_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_folder, "look", lambda m: Timed(m, m.name, refused="damaged"))
    assert run_command(["run", str(folder), "--trials", "1"]) == 1
    assert "expected modules to tune, found none: no module has kernels" in capsys.readouterr().err


@pytest.mark.slow
def test_a_dumped_module_is_tuned(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = str(tmp_path / "tuning.db")
    assert run_command(["run", str(folder), "--trials", "2", "--database", database, "-q"]) == 0
    assert capsys.readouterr().out.count("trials of candidates") == 2
