"""GPUs and TPUs on the tuner's road: recognised, searched, built, verified, timed and applied.

None is here: Pallas interprets the kernels, so that times say nothing and all else holds.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.cli.main import run_command
from hlotune.codegen.built import Built
from hlotune.codegen.pallas.backend import module_of
from hlotune.deploy.apply import apply
from hlotune.deploy.candidates import Proposed, here, measured, read_candidates, write_lines
from hlotune.deploy.replacement import assembled, built_here, replacement
from hlotune.hlo.calling.splice import splice
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.mlir import compiled as compiling
from hlotune.hlo.mlir import versions
from hlotune.hlo.mlir.module import parse
from hlotune.hlo.sites.sites import sites
from hlotune.measure.timing.jax_bench import JaxBench, compile_together
from hlotune.measure.trial import Failure
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.measure.workers.several_devices import SeveralDevices
from hlotune.schedules.errors import ProgramError, TargetError
from hlotune.schedules.spaces.gpu.searched import SearchedSpace, blocks_name
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.kinds import named_target
from hlotune.schedules.targets.target import Target
from hlotune.search import tune as tuning
from hlotune.search.carrying import proposed, write_candidates
from hlotune.search.tasks import tasks
from hlotune.search.tune import tune
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.records import import_records
from tests.support import interpreted_gpu
from tests.support.interpreted_gpu import INTERPRETED, INTERPRETED_TPU, worker_command
from tests.support.tree import ROOT

X = (np.arange(64 * 32, dtype=np.float32).reshape(64, 32) % 7) - 3
W = (np.arange(32 * 48, dtype=np.float32).reshape(32, 48) % 5) - 2
B = np.arange(48, dtype=np.float32) - 20


def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.maximum(x @ w + b, 0.0)


def normalised(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two results, of axes that a compute merges."""
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers.sum(-1), powers


ROWS = np.sin(np.arange(4 * 32 * 1024, dtype=np.float32)).reshape(4, 32, 1024)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)


@pytest.fixture
def program() -> Program:
    return load(layer, X, W, B)


@contextmanager
def workers(
    *_: Any, target: Target = INTERPRETED, **__: Any
) -> Iterator[tuple[ProcessBuilder, ProcessRunner]]:
    with (
        ProcessBuilder(target, processes=1, command=worker_command("build")) as builder,
        ProcessRunner(target, command=worker_command("device")) as runner,
    ):
        yield builder, runner


Workers = tuple[ProcessBuilder, ProcessRunner]


@pytest.fixture(scope="module")
def of_the_gpu() -> Iterator[Workers]:
    """Workers that have imported JAX and Pallas once for all tests."""
    with workers() as both:
        yield both


def test_a_program_is_tuned_as_for_any_device(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_the_gpu: Workers
) -> None:
    monkeypatch.setattr(tuning, "begun_workers", lambda *_, **__: nullcontext(of_the_gpu))
    path = tmp_path / "gpu.db"
    result = tune(program, trials=2, database=path, target=INTERPRETED)
    (kernel,) = (k for k in result.kernels if k.label == "dot 64x32x48 +bias+relu")
    assert (kernel.trials, kernel.failures) == (2, 0)
    with Database(path, read_only=True) as database:
        rows = database.query(
            "select schedule from trials where kernel = :key and schedule not like '%xla%'",
            {"key": kernel.key},
        )
    assert len(rows) == 2
    assert all("blocks(triton_product," in row["schedule"] for row in rows)
    applied = apply(program, database=path, target=INTERPRETED)
    np.testing.assert_array_equal(applied(X, W, B), np.maximum(X @ W + B, 0.0))


def test_a_search_measures_on_two_devices_at_the_same_time(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = list[int]()

    class Noting(SeveralDevices):
        def measure(self, kernel: Any, objects: Any, **others: Any) -> Any:
            together.append(len(objects))
            return super().measure(kernel, objects, **others)

    builder = partial(ProcessBuilder, processes=1, command=worker_command("build"))
    monkeypatch.setattr(tuning, "ProcessBuilder", builder)
    monkeypatch.setattr(tuning, "SeveralDevices", partial(Noting, command=worker_command("device")))
    monkeypatch.setattr(tuning, "devices_like", lambda target, count: tuple(range(count)))
    result = tune(program, trials=4, database=tmp_path / "a.db", target=INTERPRETED, devices=2)
    (kernel,) = (k for k in result.kernels if k.label == "dot 64x32x48 +bias+relu")
    assert (kernel.trials, kernel.failures) == (4, 0)
    assert 2 in together
    with pytest.raises(ValueError, match="expected one device or more, got devices=0"):
        tune(program, trials=4, database=tmp_path / "a.db", target=INTERPRETED, devices=0)


@pytest.mark.parametrize("target", [INTERPRETED, INTERPRETED_TPU], ids=lambda t: t.name)
def test_rows_of_a_program_stand_in_their_site_whatever_axes_are_merged(target: Target) -> None:
    program = load(normalised, ROWS)
    (task, *_), _ = tasks(sites(program), target)
    assert task.space.pattern == "rows"
    assert task.compute.results[0].shape != ROWS.shape
    site = next(s for s in sites(program) if s.kernel == task.kernel)
    built = built_here(task.kernel, task.space.schedule(task.space.heuristic()), target)
    function = assembled(program, [replacement(program, site, built)], target)
    for made, right in zip(function(ROWS), normalised(jnp.asarray(ROWS)), strict=True):
        np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-5)


def test_a_program_is_tuned_for_a_tpu(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "begun_workers", partial(workers, target=INTERPRETED_TPU))
    path = tmp_path / "tpu.db"
    result = tune(program, trials=1, database=path, target=INTERPRETED_TPU)
    (kernel,) = (k for k in result.kernels if k.label == "dot 64x32x48 +bias+relu")
    assert (kernel.trials, kernel.failures) == (1, 0)
    applied = apply(program, database=path, target=INTERPRETED_TPU)
    np.testing.assert_array_equal(applied(X, W, B), np.maximum(X @ W + B, 0.0))


def test_a_kernel_by_pallas_stands_in_its_site(program: Program) -> None:
    (task,), _ = tasks(sites(program), INTERPRETED)
    site = next(s for s in sites(program) if s.kernel == task.kernel)
    built = built_here(task.kernel, task.space.schedule(task.space.heuristic()), INTERPRETED)
    function = assembled(program, [replacement(program, site, built)], INTERPRETED)
    np.testing.assert_array_equal(function(X, W, B), np.maximum(X @ W + B, 0.0))


def test_a_search_is_carried_to_the_device_and_back(
    program: Program, tmp_path: Path, of_the_gpu: Workers
) -> None:
    file, lines, path = (tmp_path / n for n in ("candidates.jsonl", "measured.jsonl", "gpu.db"))
    first, _ = proposed(program, INTERPRETED, None, count=3)
    write_candidates(file, first)

    carried = read_candidates(file)
    assert carried == first
    builder, runner = of_the_gpu
    records = measured(carried, here(carried), builder.build, runner)
    assert write_lines(lines, records) == 5  # the default, 3 candidates, and the decision

    with Database(path) as database:
        taken = import_records(database, lines)
        assert (taken.records, taken.broken, taken.problems) == (5, 0, ())
        found = database.query("select count(*) as n from trials where time_s > 0")
        assert found[0]["n"] == 4
        again, _ = proposed(program, INTERPRETED, database, count=3)
    known = {s.to_json() for p in first for s in p.schedules}
    assert all(s.to_json() not in known for p in again for s in p.schedules)
    applied = apply(program, database=path, target=INTERPRETED)
    assert {e.status for e in applied.explain()} & {"tuned", "kept default"}
    np.testing.assert_array_equal(applied(X, W, B), np.maximum(X @ W + B, 0.0))


def test_commands_carry_a_search_to_a_machine_that_can_only_measure(tmp_path: Path) -> None:
    """The measuring side runs without xgboost, torch and sqlite-utils."""
    source = tmp_path / "layer.py"
    source.write_text(
        "import numpy as np\n"
        "def model():\n"
        "    return lambda x, w: x @ w, (np.ones((16, 32), 'f4'), np.ones((32, 48), 'f4'))\n"
    )
    file, lines, path = (tmp_path / n for n in ("candidates.jsonl", "measured.jsonl", "gpu.db"))
    exported = ["export-candidates", f"{source}:model", str(file), "--count", "2"]
    assert run_command([*exported, "--target", INTERPRETED.name]) == 0
    assert _elsewhere(["measure", str(file), "--output", str(lines)]) == 0
    assert run_command(["db", "import", str(lines), "--database", str(path)]) == 0
    with Database(path, read_only=True) as database:
        (trials,) = database.query("select count(*) as n from trials where time_s > 0")
        (finals,) = database.query("select count(*) as n from finals")
    assert (trials["n"], finals["n"]) == (3, 1)


def _elsewhere(arguments: list[str]) -> int:
    command = [sys.executable, "-m", "tests.support.interpreted_gpu", "tune", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "got 0 targets"),
        ("nonsense\n", "line 1 of .* got JSONDecodeError"),
        ('{"hlotune_candidates": 2}\n', "it is of format 2, not 1"),
        ("[]\n", "got TypeError"),
    ],
)
def test_files_that_hold_no_candidates_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "candidates.jsonl"
    file.write_text(text)
    with pytest.raises(ProgramError, match=problem):
        read_candidates(file)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match=r"expected candidates in .*, got No such file"):
        read_candidates(tmp_path / "absent.jsonl")


def test_a_device_that_is_not_here_is_one_clear_error(program: Program) -> None:
    with pytest.raises(TargetError, match=r"expected cuda:h200, and JAX finds no such device here"):
        tune(program, trials=1, target=named_target("cuda:h200"))


def built_first(function: Any, *arguments: Any) -> tuple[Kernel, Built]:
    (task, *_), _ = tasks(sites(load(function, *arguments)), INTERPRETED)
    schedule = task.space.schedule(task.space.heuristic())
    return task.kernel, built_here(task.kernel, schedule, INTERPRETED)


def test_kernels_and_their_defaults_are_compiled_together(
    monkeypatch: pytest.MonkeyPatch, of_the_gpu: Workers
) -> None:
    loads, load_module = list[str](), versions.loaded

    def noted(text: str, platform: str) -> Any:
        loads.append(text)
        return load_module(text, platform)

    monkeypatch.setattr(compiling, "loaded", noted)
    compiling.compiled.cache_clear()
    two = built_first(layer, X, W, B), built_first(normalised, ROWS)
    candidates = [(JaxBench(kernel, INTERPRETED, "warm"), built) for kernel, built in two]
    compile_together(candidates)
    assert len(loads) == len(set(loads)) == 4
    for bench, built in candidates:
        bench.candidate(built)
        bench.default()
    assert len(loads) == 4
    replies = list[Any]()
    _, runner = of_the_gpu
    ask = runner._ask
    monkeypatch.setattr(runner, "_ask", lambda *a, **b: replies.append(ask(*a, **b)))
    runner.compile_together([*two, (two[0][0], Failure("build", "no room"))])
    assert [reply.header for reply in replies] == [{"is": "compiled"}]


def test_candidates_for_a_device_elsewhere_are_proposed_here(program: Program) -> None:
    (one,), skipped = proposed(program, named_target("cuda:h200"), None, count=5)
    assert len(one.schedules) == 5
    assert skipped == ()
    assert Proposed.from_json(one.to_json()) == one
    assert json.loads(one.to_json())["target"]["name"] == "cuda:h200"


def test_measuring_needs_no_model_and_no_database() -> None:
    code = "import hlotune.deploy.candidates, sys; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()).isdisjoint({"xgboost", "torch", "sqlite_utils"})


@pytest.mark.parametrize("name", ["cuda:a100", "cuda:h100"])
def test_a_program_takes_kernels_that_were_lowered_for_a_gpu(program: Program, name: str) -> None:
    target = named_target(name)
    (task,), _ = tasks(sites(program), target)
    space = task.space
    assert isinstance(space, SearchedSpace)
    config = next(iter(space.blocks.propose(1)))
    schedule = Schedule(blocks_name(*space.blocks.named(config), space.algorithm))
    built = built_here(task.kernel, schedule, target)
    (site,) = [s for s in sites(program) if s.kernel == task.kernel]
    module = parse(splice(program, {site: module_of(built)[1]}).bytecode)
    assert "custom_call" in str(module.op)
