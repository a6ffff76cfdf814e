"""Whole models on a device, played by the interpreter: tuned, put in and timed."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.device import models, whole
from benchmarks.device.child import ChildFailed
from benchmarks.device.models import Models
from benchmarks.device.records import Results
from benchmarks.device.whole import MODELS, TINY_MODELS, WholeModel, models_table
from hlotune.deploy.replacement import built_here
from tests.support import interpreted_gpu
from tests.support.interpreted_gpu import INTERPRETED

(TINY,) = TINY_MODELS


class Played:
    """A child that answers in this process; `fails` are questions that it dies of."""

    def __init__(self, fails: tuple[dict[str, Any], ...] = ()) -> None:
        self.models, self.fails = Models(lambda: INTERPRETED), fails
        self.asked: list[str] = []

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        self.asked.append(question["do"])
        if any(f.items() <= question.items() for f in self.fails):
            raise ChildFailed("an illegal address")
        return self.models.answer(dict(question))


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    interpreted_gpu.enter(monkeypatch.setitem)
    monkeypatch.setattr(whole, "MOST_S", 0.1)


def run_of(tmp_path: Path, child: Played, seconds: float = 90.0) -> Results:
    results = Results(tmp_path / "device.jsonl")
    until = time.monotonic() + seconds
    WholeModel(child, results, "an A100", TINY, until, lambda line: None).run()
    return results


def test_the_kernels_of_a_model_are_tuned_and_the_whole_is_timed_beside_the_default(
    tmp_path: Path,
) -> None:
    results = run_of(tmp_path, Played())
    kernels = [r for r in results.rows if r["what"] == "model_kernel"]
    assert all(r["right"] and r["tried"] > 0 for r in kernels)
    assert {"dot 512x64x512 +bias+relu"} < {r["kernel"] for r in kernels}
    (default, ours) = (r for r in results.rows if r["what"] == "model")
    assert (default["how"], ours["how"], ours["right"]) == ("xla_default", "hlotune", True)
    assert ours["put_in"] == sum(r["seconds"] < r["default_s"] for r in kernels)
    assert f"| {TINY.name} | " in models_table(results.rows)


class Slower(Played):
    """A child whose whole programs take twice the default's time, but for the default itself."""

    def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        if question["do"] != "whole":
            self.asked.append(question["do"])
            return {"kernels": ["a", "b"]} if question["do"] == "model" else self._kernel(question)
        self.asked.append(f"whole of {len(question['winners'])}")
        found = {"right": True, "seconds": 2e-3 if question["winners"] else 1e-3}
        return {**found, "default_s": 1e-3, "put_in": len(question["winners"]), "sites": 2}

    @staticmethod
    def _kernel(question: Mapping[str, Any]) -> dict[str, Any]:
        gain = (1.05, 2.0)[question["number"]]
        return {"right": True, "seconds": 1e-4, "default_s": gain * 1e-4, "schedule": "{}"}


def test_a_program_that_is_slower_with_its_kernels_keeps_the_default(tmp_path: Path) -> None:
    child = Slower()
    results = run_of(tmp_path, child)
    assert [a for a in child.asked if a.startswith("whole")] == ["whole of 2", "whole of 1"]
    (ours,) = (r for r in results.rows if (r["what"], r["how"]) == ("model", "hlotune"))
    assert (ours["seconds"], ours["default_s"], ours["put_in"]) == (1e-3, 1e-3, 0)
    assert sum(r["what"] == "model_slower" for r in results.rows) == 2


def test_no_answer_is_waited_for_behind_the_end_of_the_run(tmp_path: Path) -> None:
    waits = list[float]()

    class Timed(Slower):
        def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
            waits.append(timeout_s)
            return super().ask(question, timeout_s)

    now, results = time.monotonic(), Results(tmp_path / "device.jsonl")
    WholeModel(Timed(), results, "an A100", TINY, now + 90, lambda line: None, now + 3).run()
    assert len(waits) == 5  # the model, two kernels, and the whole twice
    assert all(0 < wait_s <= 3 for wait_s in waits)


def test_a_kernel_that_ends_the_child_is_left_to_the_default(tmp_path: Path) -> None:
    child = Played(({"do": "kernel", "number": 0},))
    results = run_of(tmp_path, child)
    first = next(r for r in results.rows if r["what"] == "model_kernel")
    assert (first["right"], first["error"]) == (False, "an illegal address")
    assert child.asked[:3] == ["model", "kernel", "model"]
    assert results.rows[-1]["right"]


def test_a_model_that_cannot_be_loaded_is_an_error_in_the_results(tmp_path: Path) -> None:
    (only,) = run_of(tmp_path, Played(({"do": "model"},))).rows
    assert (only["what"], only["right"], only["error"]) == ("model", False, "an illegal address")


def test_time_that_is_over_leaves_kernels_out_and_the_whole_is_timed_all_the_same(
    tmp_path: Path,
) -> None:
    child = Played()
    run_of(tmp_path, child, seconds=0.0)
    assert child.asked == ["model", "whole"]


def test_the_costliest_kernels_are_tried_where_there_is_no_time_for_all(tmp_path: Path) -> None:
    seconds = list[float]()

    class Many(Slower):
        def ask(self, question: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
            if question["do"] == "model":
                return {"kernels": [f"kernel {n}" for n in range(50)]}
            seconds.extend([question["seconds"]] if question["do"] == "kernel" else [])
            return super().ask({**question, "number": 1}, timeout_s)

    results = Results(tmp_path / "device.jsonl")
    kept_s = whole.KEPT_SHARE * TINY.seconds
    until = time.monotonic() + kept_s + 2 * whole.FEWEST_S
    WholeModel(Many(), results, "an A100", TINY, until, lambda line: None).run()
    assert len(seconds) == 50  # none of these takes its time
    assert seconds[0] == 0.1  # the most that the fixture allows
    WholeModel(Many(), results, "an A100", TINY, 0.0, lambda line: None).run()
    assert len(seconds) == 50


def test_candidates_that_are_refused_leave_the_others_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply has no entry `error`, which a child's own failures have."""
    tried, build = list[Any](), built_here

    def second_built(kernel: Any, schedule: Any, target: Any) -> Any:
        tried.append(kernel)
        if tried.count(kernel) == 1:
            raise ValueError("Shared memory size limit exceeded")
        return build(kernel, schedule, target)

    monkeypatch.setattr(models, "built_here", second_built)
    monkeypatch.setattr(models, "TOGETHER", 2)
    monkeypatch.setattr(whole, "MOST_S", 5.0)
    played = Models(lambda: INTERPRETED)
    played.answer({"do": "model", "factory": TINY.factory, "element": "f32", "batch": 1})
    found = played.answer({"do": "kernel", "number": 0, "seconds": 2.0})
    assert (found["right"], found["refused"], found["tried"] > 1) == (True, 1, True)
    assert "error" not in found
    assert found["refusal"] == "Shared memory size limit exceeded"


def test_results_that_are_no_numbers_are_right_where_the_default_has_the_same() -> None:
    wanted = jnp.array([1.0, np.nan, -np.inf, 2.0])
    error = models.error_of
    assert error([wanted], [wanted]) == 0.0
    assert error([wanted.at[1].set(0.0)], [wanted]) == np.inf
    assert error([wanted.at[2].set(np.inf)], [wanted]) == np.inf
    assert not error([wanted.at[0].set(np.nan)], [wanted]) < models.LIMIT
    assert error([wanted.at[0].set(1.1)], [wanted]) > models.LIMIT
    assert not error([jnp.full(4, np.nan)], [jnp.full(4, np.nan)]) < models.LIMIT


def test_a_result_that_is_no_number_is_wrong_behind_one_that_is_right() -> None:
    wanted = jnp.array([1.0, 2.0])
    assert models.error_of([wanted, wanted.at[0].set(np.nan)], [wanted, wanted]) == np.inf
    nothing = jnp.full(2, np.nan)
    assert not models.error_of([wanted, nothing], [wanted, nothing]) < models.LIMIT


def test_models_have_programs() -> None:
    for model in MODELS:
        module, name = model.factory.split(":")
        assert module == models.__name__
        assert callable(getattr(models, name))
