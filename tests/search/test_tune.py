"""`hlotune.tune`: what it refuses, what it finds to tune, and one run on this machine."""

from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.apply import apply
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import TARGETS, toolchain
from hlotune.schedules.errors import ProgramError, TargetError, UnsupportedKernel
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.space import Space
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.search import tasks as tasks_module
from hlotune.search.budget.limits import Limits
from hlotune.search.first import first
from hlotune.search.tasks import tasks
from hlotune.search.tune import Choices, limits_of, tune
from hlotune.tuning_logs.database import Database
from tests.support.toy import ToySpace

TARGET = TARGETS["x86-64-v3"]


def program() -> Program:
    """Two equal products of matrices with what follows them, and one of another shape."""

    def model(x: jax.Array, a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        return jax.nn.relu(jax.nn.relu(x @ a) @ b) @ c

    shapes = [(16, 32), (32, 32), (32, 32), (32, 8)]
    rng = np.random.default_rng(0)
    return load(model, *(jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes))


@pytest.mark.parametrize(("name", "function"), [("tune", tune), ("first", first)])
def test_a_run_begins_once_nothing_of_an_earlier_one_goes_on(
    name: str, function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Waits(Exception): ...

    def waiting(turns: object) -> None:
        raise Waits

    monkeypatch.setattr(f"hlotune.search.{name}.wait_for_earlier_work", waiting)
    with pytest.raises(Waits):
        function(program(), database=tmp_path / "a.db")


def test_the_limit_is_one_of_three() -> None:
    assert limits_of("2m", None, None) == Limits(seconds=120)
    assert limits_of(None, 5, None) == Limits(seconds=5)
    assert limits_of(None, None, 7) == Limits(trials=7)
    assert limits_of(None, None, None) == Limits(seconds=300)


def test_several_limits_contradict_each_other() -> None:
    with pytest.raises(ValueError, match="expected one of budget, budget_s and trials, got 2"):
        limits_of("2m", None, 7)


@pytest.mark.parametrize("trials", [0, -1, 1.5, True, np.True_, np.float64(2)])
def test_no_trials_and_parts_of_one_are_no_limit(trials: Any) -> None:
    wanted = f"expected a number of trials a kernel from 1 on, got {trials}$"
    with pytest.raises(ValueError, match=wanted):
        limits_of(None, None, trials)


def test_whole_numbers_of_numpy_are_recorded_as_others_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Choices] = []
    monkeypatch.setattr(
        "hlotune.search.tune.searched",
        lambda _program, _records, choices, _pulse: seen.append(choices),
    )
    path = tmp_path / "tuning.db"
    for number in (3, np.int64(3), np.uint8(3)):
        tune(program(), trials=cast(int, number), seed=cast(int, number), database=path)
    with Database(path) as database:
        for choices in seen:
            database.start_run(
                None, TARGET, toolchain(), options=choices.options, seed=choices.seed
            )
        assert len(database.query("select seed, options from runs")) == 3
        assert len(database.query("select distinct seed, options from runs")) == 1


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, np.True_, np.float64(2), None])
def test_what_is_no_seed_is_refused(seed: Any, tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    with pytest.raises(ValueError, match=f"expected a seed from 0 to .*, got {seed}; give one"):
        tune(program(), trials=1, database=database, seed=seed)
    assert not database.exists()


def test_unknown_searchers_and_models_are_refused_by_name(tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    with pytest.raises(ValueError, match=r"expected a searcher among annealing, .*got 'magic'"):
        tune(program(), trials=1, database=database, searcher="magic")
    with pytest.raises(ValueError, match=r"expected a model among .*trees.*, got 'oracle'"):
        tune(program(), trials=1, database=database, model="oracle")
    assert not database.exists()


def test_settings_that_there_are_not_are_refused(tmp_path: Path) -> None:
    database, wrong = tmp_path / "tuning.db", cast(Any, "none")
    with pytest.raises(ValueError, match=r"expected a setting of numerics among .*, got 'none'"):
        tune(program(), trials=1, database=database, numerics=wrong)
    with pytest.raises(ValueError, match="expected a cache mode among model, warm, got 'none'"):
        tune(program(), trials=1, database=database, cache=wrong)
    assert not database.exists()


def test_what_is_not_loaded_is_not_tuned(tmp_path: Path) -> None:
    for source, kind in (("a.py:f", "str"), (program, "function")):
        with pytest.raises(ProgramError, match=f"expected a program, got {kind}; give what hlo"):
            tune(cast(Any, source), trials=1, database=tmp_path / "tuning.db")


def test_another_machine_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    database = tmp_path / "tuning.db"
    with pytest.raises(
        TargetError, match=r"got aarch64, fingerprint [0-9a-f]+; measure on the machine"
    ):
        tune(program(), trials=1, database=database, target=TARGETS["aarch64"])
    assert not database.exists()


def test_equal_kernels_are_one_task_with_their_weights_together() -> None:
    found, skipped = tasks(sites(program()), TARGET)
    assert skipped == ()
    assert [t.weight for t in found] == [2.0, 1.0]
    assert found[0].flops >= 2 * 16 * 32 * 32
    assert {t.dtype for t in found} == {"f32"}


def test_a_smaller_kernel_is_taken_where_the_largest_has_no_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bare_only(compute: Compute, target: CpuTarget, numerics: str) -> Space:
        if "maximum" in str(compute):
            raise UnsupportedKernel("no rule for relu")
        return ToySpace((2, 2))

    monkeypatch.setitem(tasks_module.SPACES, "cpu", bare_only)
    found, _ = tasks(sites(program()), TARGET)
    assert sum(t.weight for t in found) == 3
    assert not any("maximum" in t.kernel.text for t in found)


def test_a_kernel_without_any_space_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(compute: Compute, target: CpuTarget, numerics: str) -> Space:
        raise UnsupportedKernel("no rule for it")

    monkeypatch.setitem(tasks_module.SPACES, "cpu", nothing)
    found, skipped = tasks(sites(program()), TARGET)
    assert found == ()
    assert {s.reason for s in skipped} == {"no rule for it"}


def with_empty_products() -> Program:
    """A product of matrices, one whose sums have no terms, and one without rows."""

    def model(x: Any, w: Any, none: Any, nothing: Any, empty: Any) -> Any:
        return jnp.tanh(x @ w), none @ nothing + 1, empty @ w

    shapes = [(16, 32), (32, 8), (16, 0), (0, 8), (0, 32)]
    rng = np.random.default_rng(0)
    return load(model, *(jnp.asarray(rng.standard_normal(s), jnp.float32) for s in shapes))


def test_products_without_rows_are_skipped_with_the_reason() -> None:
    found, skipped = tasks(sites(with_empty_products()), TARGET)
    assert [t.label for t in found] == ["dot 16x32x8 +tanh", "dot 16x0x8 +bias"]
    assert [s.label for s in skipped] == ["dot 0x32x8"]
    wanted = "expected results with elements, got an empty one, which takes no time; the kernel"
    assert all(s.reason.startswith(wanted) for s in skipped)


@pytest.mark.slow
def test_a_program_with_empty_products_is_tuned(tmp_path: Path) -> None:
    model, path = with_empty_products(), tmp_path / "tuning.db"
    result = tune(model, trials=2, database=path)
    assert [k.label for k in result.kernels] == ["dot 16x32x8 +tanh", "dot 16x0x8 +bias"]
    assert [label for label, _ in result.skipped] == ["dot 0x32x8"]
    assert all(k.trials > k.failures for k in result.kernels)
    assert not result.wrong and not result.wrong_anyway
    assert model.example_args is not None
    x, w, *_ = model.example_args
    wanted = np.tanh(x @ w), np.ones((16, 8)), np.zeros((0, 8))
    for got, right in zip(apply(model, database=path)(*model.example_args), wanted, strict=True):
        assert got.shape == right.shape
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_program_of_nothing_but_an_empty_product_has_no_kernels(tmp_path: Path) -> None:
    model = load(lambda x, w: x @ w, *(jnp.zeros(s, jnp.float32) for s in ((0, 4), (4, 8))))
    assert model.example_args is not None
    path = tmp_path / "tuning.db"
    result = tune(model, trials=2, database=path)
    assert (result.kernels, [label for label, _ in result.skipped]) == ((), ["dot 0x4x8"])
    got = apply(model, database=path)(*model.example_args)
    np.testing.assert_array_equal(got, np.zeros((0, 8)))


@pytest.mark.slow
def test_a_program_is_tuned_on_this_machine(tmp_path: Path) -> None:
    result = tune(program(), trials=4, database=tmp_path / "tuning.db")
    assert result.trials == 8
    assert [k.weight for k in result.kernels] == [2.0, 1.0]
    assert all(k.best_s is not None for k in result.kernels)
    assert "dot" in result.report()
    again = tune(program(), trials=1, database=tmp_path / "tuning.db", seed=1)
    assert again.known_trials > 0
