"""Other runtimes run a program's ONNX model in processes of their own, and are told from ours."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.apply import TunedFunction, applied
from hlotune.deploy.bench import prepared
from hlotune.deploy.exported import exported
from hlotune.deploy.rivals import contest
from hlotune.deploy.rivals.contest import contested
from hlotune.deploy.rivals.process import LIMIT_S, RivalError, RivalProcess
from hlotune.deploy.rivals.runtimes import RUNTIMES, Runtime
from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import WrongResult
from hlotune.tuning_logs.database import Database
from tests.support.stand_in_runtime import install

ONNX_RUNTIME = RUNTIMES["onnxruntime"]
NOWHERE = Runtime("Nowhere", "a_package_that_nobody_has", ONNX_RUNTIME.prepare)


@pytest.fixture
def program() -> Program:
    x = np.random.default_rng(0).standard_normal((4, 4), np.float32)
    return load(lambda x: jnp.tanh(x @ x.T), x)


def untuned(program: Program, folder: Path) -> TunedFunction:
    """The default, as what an empty database makes of a program."""
    Database(folder / "empty.db").close()
    return applied(program, database=folder / "empty.db")


def test_a_runtime_is_timed_in_turns_with_xla_and_ours(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    monkeypatch.setattr(contest, "ROUNDS", 6)
    monkeypatch.setattr(contest, "SAMPLE_S", 1e-4)
    tuned = untuned(program, tmp_path)
    found = contested(prepared(program), tuned, runtimes=(ONNX_RUNTIME, NOWHERE))
    assert [s.name for s in found] == ["XLA", "hlotune", "ONNX Runtime", "Nowhere"]
    assert [len(s.samples_s) for s in found] == [6, 6, 6, 0]
    assert found[2].version == "0.0.1" and found[2].accuracy[0].wrong is None
    assert found[3].absent == "not installed: pip install a_package_that_nobody_has"
    told = [s.to_json(found[0].samples_s) for s in found]
    assert told[0]["speedup"] == 1 and told[2]["time_s"] > 0 and told[3]["speedup"] is None


def test_a_runtime_with_other_results_is_not_timed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "is wrong")
    monkeypatch.setattr(contest, "ROUNDS", 1)
    tuned = untuned(program, tmp_path)
    *_, last = contested(prepared(program), tuned, runtimes=(ONNX_RUNTIME,))
    assert last.absent and last.absent.startswith("wrong results: ") and not last.samples_s


def test_no_model_is_written_that_the_runtime_computes_otherwise(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "is wrong")
    path = tmp_path / "model.onnx"
    with pytest.raises(WrongResult, match=r"expected result 0 of .* from ONNX Runtime as the"):
        exported(program, path)
    assert not path.exists()


@pytest.mark.parametrize(
    "fault, limit_s, message",
    [
        ("ends", LIMIT_S, "the process of ONNX Runtime ended with 9; it said last: the last words"),
        ("refuses", LIMIT_S, "does not take the model: NotImplementedError: no kernel of Exotic"),
        ("hangs", 1.0, "ONNX Runtime gave no answer within 1 s"),
    ],
)
def test_a_runtime_that_fails_leaves_the_model_unchecked_and_says_why(
    fault: str,
    limit_s: float,
    message: str,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(tmp_path, monkeypatch, fault)
    monkeypatch.setattr(RivalProcess.__init__, "__defaults__", (limit_s,))
    done = exported(program, tmp_path / "model.onnx")
    assert done.not_checked and message in done.not_checked
    assert (tmp_path / "model.onnx").stat().st_size == done.bytes


def test_what_is_not_installed_names_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(RivalError, match="Nowhere is not installed: pip install a_package"):
        RivalProcess(NOWHERE, tmp_path / "model.onnx", {}, 1)
