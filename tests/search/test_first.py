"""`tune run --first`: the first candidates of all kernels, without a search."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest

import hlotune
from hlotune.cli.main import run_command
from hlotune.costmodel.roofline import Roofline
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Candidate, Failure, Trial
from hlotune.measure.workers.builder import ProcessBuilder
from hlotune.measure.workers.runner import ProcessRunner
from hlotune.schedules.errors import ScheduleError
from hlotune.search.finals.finals import Object, decided
from hlotune.search.finals.quick import liked
from hlotune.search.first import (
    CANDIDATES,
    FORMS_S,
    ONE_FORM_FROM_S,
    ONE_FORM_SHARE,
    WHOLE_S,
    _forms,
    _has_one_form,
    first,
    model_of,
)
from hlotune.search.progress import KernelSkipped
from hlotune.search.tasks import Task
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.render import render
from hlotune.tuning_logs.report import report
from tests.support.applied import normal
from tests.support.tree import ROOT


def test_first_candidates_are_compared_recorded_and_applied(tmp_path: Path) -> None:
    database = tmp_path / "first.db"
    program = hlotune.load(f"{ROOT}/examples/mlp.py:model")
    result = first(program, database=database)
    assert len(result.kernels) >= 3
    assert all(k.schedule is not None and not k.failures for k in result.kernels)
    assert result.trials == len(result.kernels) * CANDIDATES
    tuned = hlotune.apply(program, database=database)
    assert len(tuned.replacements) <= 3
    params, x = program.example_args or ()
    assert np.isfinite(np.asarray(tuned(params, x))).all()
    with Database(database, read_only=True) as records:
        assert records.query("select finished from runs")[0]["finished"]
        said = render(report(records, result.run), color=False)
    assert f"no search: {result.trials} first candidates built, verified and compared, " in said


@pytest.fixture(scope="module")
def workers() -> Iterator[tuple[ProcessBuilder, ProcessRunner]]:
    target = host_target()
    with (
        ProcessBuilder(target) as builder,
        ProcessRunner(target, "standard", "model") as runner,
    ):
        yield builder, runner


@pytest.fixture
def begun(
    workers: tuple[ProcessBuilder, ProcessRunner], monkeypatch: pytest.MonkeyPatch
) -> tuple[ProcessBuilder, ProcessRunner]:
    """Runs have workers that have imported all that they need; the test above begins its own."""
    monkeypatch.setattr("hlotune.search.first.begun_workers", lambda *_: nullcontext(workers))
    return workers


@pytest.mark.usefixtures("begun")
def test_smaller_groups_are_compared_where_the_largest_keeps_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def liked_but_the_first(task: Task, *options: Any) -> list[Candidate]:
        asked.append(task.label)
        if len(asked) == 1:
            raise ScheduleError("no first candidate")
        return liked(task, *options)

    monkeypatch.setattr("hlotune.search.first.liked", liked_but_the_first)
    x, w, b = normal(64, 300), normal(300, 400), normal(400)
    program = hlotune.load(lambda x, w, b: jnp.tanh(x @ w + b), x, w, b)
    result = first(program, database=tmp_path / "smaller.db")
    assert asked[0] == "dot 64x300x400 +bias+tanh" and "dot 64x300x400" in asked[1:]
    assert {k.label for k in result.kernels} == set(asked[1:])
    assert len(asked) == len(set(asked))


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize(("share", "tried_again"), [(1.1, False), (0.0, True)])
def test_kernels_that_take_little_are_not_tried_in_smaller_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, tried_again: bool
) -> None:
    monkeypatch.setattr("hlotune.search.first.WORTH_OTHERS", share)
    monkeypatch.setattr("hlotune.search.first.decided", lost)
    program = hlotune.load(lambda x, w: jnp.tanh(x @ w), normal(256, 300), normal(300, 400))
    result = first(program, database=tmp_path / "little.db")
    assert result.kernels[0].label == "dot 256x300x400 +tanh"
    assert (len(result.kernels) > 1) is tried_again


def lost(*arguments: Any) -> Final:
    return replace(decided(*arguments), outcome="kept default")


@pytest.mark.usefixtures("begun")
def test_first_candidates_that_all_fail_are_told_with_their_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(_: Kernel, objects: Sequence[Object], *__: object) -> list[Trial]:
        return [Trial(candidate, Failure("wrong_result", "off by one")) for candidate, _ in objects]

    monkeypatch.setattr("hlotune.search.first.meetings", failed)
    told: list[object] = []
    program = hlotune.load(lambda x, w: jnp.tanh(x @ w), normal(256, 300), normal(300, 400))
    result = first(program, database=tmp_path / "failed.db", progress=told.append)
    assert all(k.schedule is None for k in result.kernels)
    skipped = [x for x in told if isinstance(x, KernelSkipped)]
    assert [x.label for x in skipped] == [k.label for k in result.kernels]
    assert skipped[0].label == "dot 256x300x400 +tanh"
    assert all("wrong_result: off by one" in x.reason for x in skipped)
    with Database(tmp_path / "failed.db") as records:
        alone = report(records, result.run).skipped
    assert [(x.label, x.reason) for x in alone] == [(x.label, x.reason) for x in skipped]


@pytest.mark.usefixtures("begun")
def test_a_kernel_for_which_no_candidate_can_be_chosen_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failed(*_: object) -> list[Candidate]:
        raise ScheduleError("no first candidate")

    monkeypatch.setattr("hlotune.search.first.liked", failed)
    told: list[object] = []
    program = hlotune.load(lambda x, w: jnp.tanh(x @ w), normal(256, 300), normal(300, 400))
    result = first(program, database=tmp_path / "failed.db", progress=told.append)
    assert not result.kernels
    skipped = [x for x in told if isinstance(x, KernelSkipped)]
    assert skipped[0].label == "dot 256x300x400 +tanh"
    assert all("no first candidate" in x.reason for x in skipped)


@dataclass
class Forms:
    """A program with calls of so many seconds, which notes what comparing its forms is given."""

    call_s: float
    now_s: float
    given_s: list[float] = field(default_factory=list)

    def ready_in(self, oracle_limit_s: float) -> Any:
        return SimpleNamespace(call_s=self.call_s)

    def is_faster(self, base: Any, more: Any, confidence: float, limit_s: float, _: float) -> None:
        self.given_s.append(limit_s)
        self.now_s += limit_s


def given(call_s: float, took_s: float, asked: int) -> list[float]:
    """The seconds for each form of a program, behind a run that took so long."""
    whole = Forms(call_s, took_s)
    compare = _forms(cast(Any, whole), lambda: whole.now_s, 0.0)
    for _ in range(asked):
        compare({}, {}, 0.95)
    return whole.given_s


def test_forms_of_a_program_are_compared_until_they_have_taken_their_seconds() -> None:
    assert given(0.01, 40.0, 3) == [WHOLE_S, WHOLE_S, FORMS_S - 2 * WHOLE_S]


def test_long_calls_have_one_form_which_may_take_its_share_of_what_the_run_took() -> None:
    just = ONE_FORM_FROM_S
    assert [_has_one_form(cast(Any, Forms(s, 0.0))) for s in (0.9 * just, just)] == [False, True]
    assert given(just, 100.0, 1) == [ONE_FORM_SHARE * 100.0]
    assert given(just, 4.0, 1) == [WHOLE_S]
    assert given(0.9 * just, 100.0, 1) == [WHOLE_S]


def test_without_xgboost_a_roofline_chooses_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_of(host_target())[0] == "trees"
    monkeypatch.setitem(sys.modules, "xgboost", None)  # importing it fails now
    monkeypatch.delitem(sys.modules, "hlotune.costmodel.trees")
    name, begun = model_of(host_target())
    assert name == "roofline"
    assert isinstance(begun.model, Roofline)


def test_it_has_no_limits(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["run", f"{ROOT}/examples/mlp.py:model", "--first", "--trials", "3"])
    assert code == 2
    assert "expected --first alone, got --trials too" in " ".join(capsys.readouterr().err.split())
    code = run_command(["run", f"{ROOT}/examples/mlp.py:model", "--first", "--devices", "2"])
    assert code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "expected --first on one device, got --devices too" in said


@pytest.mark.usefixtures("begun")
def test_a_jitted_function_without_records_gets_first_candidates_at_its_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = normal(256, 300), normal(300, 400)
    path = tmp_path / "miss.db"
    fast = hlotune.jit(lambda x, w: jnp.tanh(x @ w), database=path, on_miss="first")
    np.testing.assert_allclose(fast(x, w), np.tanh(x @ w), atol=1e-4)
    with Database(path, read_only=True) as records:
        assert [run["finished"] is not None for run in records.query("select * from runs")] == [
            True
        ]
        assert records.query("select * from finals")
    # In the next process it is known, whatever became of its kernels.
    monkeypatch.setattr("hlotune.search.first.first", asked_again)
    again = hlotune.jit(lambda x, w: jnp.tanh(x @ w), database=path, on_miss="first")
    np.testing.assert_allclose(again(x, w), np.tanh(x @ w), atol=1e-4)


def asked_again(*_: object, **__: object) -> None:
    raise AssertionError("expected no second run of the same program")


def test_ctrl_c_at_a_miss_is_the_callers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> object:
        return SimpleNamespace(interrupted=True)

    monkeypatch.setattr("hlotune.search.first.first", interrupted)
    fast = hlotune.jit(lambda x: jnp.tanh(x), database=tmp_path / "a.db", on_miss="first")
    with pytest.raises(KeyboardInterrupt):
        fast(normal(64, 64))


def test_what_becomes_of_a_miss_is_one_of_two() -> None:
    with pytest.raises(
        ValueError, match="expected a setting of on_miss among first, xla, got 'tune'"
    ):
        hlotune.jit(lambda x: x, on_miss="tune")  # type: ignore[arg-type]
