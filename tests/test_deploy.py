"""Tuned programs are right, fast where records say so, and honest where they are not."""

import functools
import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.accuracy import Judge, example_inputs, random_inputs, tame_inputs
from hlotune.deploy.apply import Explanation, TunedFunction, apply
from hlotune.deploy.bench import bench
from hlotune.deploy.bisection import culprits, shortfalls
from hlotune.deploy.freeze import freeze
from hlotune.deploy.replacing import Replacement, assembled, constant
from hlotune.hlo import mlir
from hlotune.hlo.callable import jitted
from hlotune.hlo.program import Program, load
from hlotune.hlo.sites import Site, sites
from hlotune.measure import affinity
from hlotune.measure.affinity import pinned
from hlotune.measure.targets import TARGETS, host_target, toolchain
from hlotune.schedules.errors import (
    DatabaseError,
    ProgramError,
    TargetError,
    WrongResult,
)
from hlotune.schedules.schedule import DEFAULT, Schedule
from hlotune.schedules.steps import Pack
from hlotune.tuning_logs.database import Database
from tests.applied import DIRECT, PARAMETERS, final, first_sites, mlp, normal, recorded


@pytest.fixture(scope="module")
def program() -> Program:
    return load(mlp, PARAMETERS, normal(8, 16))


def test_a_tuned_program_gives_the_defaults_results_in_its_pytrees(
    program: Program, tmp_path: Path
) -> None:
    found = first_sites(program)
    records = {found["dot0"]: final(DIRECT), found["dot1"]: final(DIRECT)}
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    assert [s.name for s in tuned.sites] == ["dot0", "dot1"]
    x = normal(8, 16)
    want, got = mlp(PARAMETERS, x), tuned(PARAMETERS, x)
    np.testing.assert_allclose(got["logits"], want["logits"], rtol=1e-5, atol=1e-5)


def test_an_explanation_says_of_every_site_what_was_done_and_why(
    program: Program, tmp_path: Path
) -> None:
    found = first_sites(program)
    records = {
        found["dot0"]: final(DIRECT),
        found["dot0.bare"]: final(DIRECT, tuned_s=1.9e-5),
    }
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    said = {e.site.name: (e.status, e.reason) for e in tuned.explain()}
    assert said["dot0"] == ("tuned", "tuned: 2.00x (2.00 to 2.00)")
    assert said["dot0.bare"] == (
        "covered",
        "dot0 saves more, and shares operations with it",
    )
    assert said["dot1"] == ("no record", "never tuned")
    assert "dot0" in str(tuned.explain()[0])


def test_alternatives_of_what_was_tuned_are_not_said_to_be_never_tuned(
    program: Program, tmp_path: Path
) -> None:
    reason = "{}, which shares operations with it, was tuned in its place"
    for decided, alternative in ("dot0", "dot0.bare"), ("dot0.bare", "dot0"):
        for schedule in DIRECT, DEFAULT:
            path = tmp_path / f"{decided}.{schedule.algorithm}.db"
            records = {first_sites(program)[decided]: final(schedule)}
            tuned = apply(program, database=recorded(path, records))
            said = {e.site.name: (e.status, e.reason) for e in tuned.explain()}
            assert said[alternative] == ("covered", reason.format(decided))


def test_a_kernel_whose_default_was_kept_stays(program: Program, tmp_path: Path) -> None:
    found = first_sites(program)
    tuned = apply(program, database=recorded(tmp_path / "a.db", {found["dot0"]: final(DEFAULT)}))
    assert tuned.sites == ()
    assert tuned.explain()[0].status == "kept default"
    tuned(PARAMETERS, normal(8, 16))


def test_a_schedule_that_does_not_apply_gives_way_to_an_alternative(
    program: Program, tmp_path: Path
) -> None:
    found = first_sites(program)
    records = {
        found["dot0"]: final(Schedule("no such algorithm")),
        found["dot0.bare"]: final(DIRECT, tuned_s=1.9e-5),
    }
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    assert [s.name for s in tuned.sites] == ["dot0.bare"]
    explanation = tuned.explain()[0]
    assert explanation.status == "failed"
    assert "Error" in explanation.reason


def test_what_was_proved_with_warm_caches_is_used_where_that_is_asked_for(
    program: Program, tmp_path: Path
) -> None:
    (site, *_) = sites(program)
    with Database(tmp_path / "a.db") as database:
        run = database.start_run(None, host_target(), toolchain(), cache="warm")
        database.record_final(run, site.kernel, final(DIRECT))
        assert not apply(program, database=database).sites
        assert apply(program, database=database, cache="warm").sites == (site,)


def test_a_missing_database_is_an_error(program: Program, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError):
        apply(program, database=tmp_path / "missing.db")


def test_another_machine_is_an_error(program: Program, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="measure on the machine"):
        apply(program, database=recorded(tmp_path / "a.db", {}), target=TARGETS["aarch64"])


def test_an_open_database_stays_open(program: Program, tmp_path: Path) -> None:
    with Database(recorded(tmp_path / "a.db", {})) as database:
        apply(program, database=database)
        database.query("select 1")


def test_frozen_parameters_are_constants_of_the_program() -> None:
    x = normal(8, 16)
    program = load(freeze(mlp, PARAMETERS), x)
    assert len(program.graph.arguments) == 1
    assert [len(s.constants) for s in sites(program) if s.name == "dot0"] == [1]
    np.testing.assert_array_equal(
        jitted(program)(x)["logits"], jax.jit(freeze(mlp, PARAMETERS))(x)["logits"]
    )


def test_packed_constants_are_computed_once_and_their_memory_is_reported(tmp_path: Path) -> None:
    x, weights, panels = normal(8, 16), normal(16, 32), ((1, 8), (0, 1), (1, 1))
    program = load(freeze(lambda w, x: jax.nn.relu(x @ w), weights), x)
    packed = Schedule("direct", (Pack("contract", "a1", "", "load", panels, 8),))
    records = {first_sites(program)["dot0"]: final(packed)}
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    assert tuned.packed_bytes == weights.nbytes
    np.testing.assert_allclose(tuned(x), np.maximum(x @ weights, 0), rtol=1e-5, atol=1e-5)


def test_a_small_frozen_bias_is_a_table_in_the_kernel(tmp_path: Path) -> None:
    x = normal(8, 16)
    program = load(freeze(mlp, PARAMETERS), x)
    records = {first_sites(program)["dot0"]: final(DIRECT)}
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    want = mlp(PARAMETERS, x)["logits"]
    np.testing.assert_allclose(tuned(x)["logits"], want, rtol=1e-5, atol=1e-5)


def marked(example_args: tuple[Any, ...] | None) -> Program:
    """A program that takes a marked constant, loaded with or without its value."""
    module = mlir.parse("""module { func.func @main(%x: tensor<8x16xf32>,
        %w: tensor<16x32xf32> {hlotune.constant}) -> tensor<8x32xf32> {
      %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
      return %0 : tensor<8x32xf32> } }""")
    return Program("m", "m", module.bytecode(), mlir.graph(module), example_args=example_args)


def test_a_constant_of_unknown_value_cannot_be_packed() -> None:
    program = marked(None)
    with pytest.raises(ProgramError, match="freeze the parameters"):
        constant(program, sites(program)[0], 1)


def test_a_marked_argument_has_the_value_the_program_was_loaded_with() -> None:
    weights = normal(16, 32)
    program = marked((normal(8, 16), weights))
    np.testing.assert_array_equal(constant(program, sites(program)[0], 1), weights)


def test_freezing_copies_arrays_that_may_change() -> None:
    weights = np.ones(3, np.float32)
    frozen = freeze(lambda w, x: w * x, weights)
    weights[:] = 7
    np.testing.assert_array_equal(frozen(np.float32(2)), [2, 2, 2])


def test_only_functions_can_be_frozen() -> None:
    with pytest.raises(ProgramError, match="got dict; give freeze"):
        freeze({}, 1)  # type: ignore[arg-type]


def scaled(site: Site, program: Program, factor: float) -> Replacement:
    """A replacement made by hand: the site's dot, scaled."""
    lhs, rhs = (program.graph.types[v] for v in site.arguments)
    out = program.graph.types[site.results[0]]
    text = f"""module {{ func.func public @main(%a: {lhs}, %b: {rhs}) -> {out} {{
      %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({lhs}, {rhs}) -> {out}
      %1 = stablehlo.constant dense<{factor:e}> : {out}
      %2 = stablehlo.multiply %0, %1 : {out}
      return %2 : {out} }} }}"""
    return Replacement(site, text)


def chain(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = jnp.sin(x @ w)[:, ::-1]
    return x


@pytest.fixture(scope="module")
def deep() -> Program:
    return load(chain, normal(4, 6), *(normal(6, 6) for _ in range(4)))


def by_hand(program: Program, *factors: float, promised_s: float = 0.0) -> TunedFunction:
    """A tuned program whose bare dots are replaced by scaled ones."""
    bare = [s for s in sites(program) if len(s.ops) == 1]
    made = tuple(scaled(s, program, f) for s, f in zip(bare, factors, strict=True))
    paired = final(DIRECT, default_s=1.0, tuned_s=1.0 - promised_s).paired
    explained = tuple(
        Explanation(site=s, status="tuned", reason="by hand", paired=paired) for s in bare
    )
    function = assembled(program, made)
    return TunedFunction(program, made, "standard", host_target(), explained, function)


def test_a_right_replacement_is_timed_in_pairs(deep: Program) -> None:
    result = bench(deep, by_hand(deep, 1, 1, 1, 1), pairs=6)
    assert len(result.default_s) == len(result.tuned_s) == 6
    assert [(a.inputs, a.wrong) for a in result.accuracy] == [("example", None), ("random", None)]
    assert 0 < result.speedup.low <= result.speedup.median <= result.speedup.high


@pytest.mark.parametrize("wrong", range(4))
def test_a_wrong_replacement_is_named_before_any_figure(deep: Program, wrong: int) -> None:
    factors = [1.0] * 4
    factors[wrong] = 1.01
    tuned = by_hand(deep, *factors)
    with pytest.raises(WrongResult, match=f"to blame: dot{wrong}[. ]") as error:
        bench(deep, tuned)
    assert error.value.kernels == (tuned.sites[wrong].kernel.key,)


def test_a_result_of_nothing_but_nan_is_wrong(deep: Program) -> None:
    with pytest.raises(WrongResult, match=r"to blame: dot2[. ]"):
        bench(deep, by_hand(deep, 1, 1, float("1e30") ** 2, 1))


def test_figures_in_json_have_units_in_their_names(deep: Program) -> None:
    data = json.loads(json.dumps(bench(deep, by_hand(deep, 1, 1, 1, 1), pairs=2).to_json()))
    assert data["speedup_high"] is None  # too few pairs to say
    numbers = {k for k, v in data.items() if isinstance(v, float)}
    assert all(k.endswith("_s") or k.startswith("speedup") for k in numbers)
    assert [k["site"] for k in data["kernels"]] == [s.name for s in sites(deep) if len(s.ops) == 1]


def test_a_whole_that_gains_less_than_promised_is_bisected(deep: Program) -> None:
    result = bench(deep, by_hand(deep, 1, 1, 1, 1, promised_s=0.5), pairs=2)
    assert {name for s in result.shortfalls for name in s.sites} == {
        s.name for s in sites(deep) if len(s.ops) == 1
    }
    assert all(s.promised_s == 0.5 for s in result.shortfalls)


def replacements(deep: Program) -> tuple[Replacement, ...]:
    return by_hand(deep, 1, 1, 1, 1).replacements


def test_bisection_finds_the_one_that_disappoints(deep: Program) -> None:
    parts = replacements(deep)
    gains = {id(r): 1.0 for r in parts} | {id(parts[2]): -3.0}
    found = shortfalls(parts, lambda r: 1.0, lambda some: sum(gains[id(r)] for r in some))
    assert [(s.sites, s.gained_s) for s in found] == [((parts[2].site.name,), -3.0)]


def test_bisection_stops_when_time_is_up(deep: Program) -> None:
    assert shortfalls(replacements(deep), lambda r: 1.0, lambda some: None) == ()


def test_replacements_that_are_wrong_only_together_are_all_blamed(deep: Program) -> None:
    parts = replacements(deep)
    assert culprits(parts, lambda some: len(some) == len(parts)) == parts


def shapes_of_a_deep_chain() -> Program:
    """Values of size 1 overflow in it, and it has no others of its own."""
    shape = jax.eval_shape(lambda: jnp.zeros((40, 40)))
    return load(lambda x, *ws: functools.reduce(jnp.matmul, ws, x), *[shape] * 60)


def test_random_values_are_drawn_so_small_that_results_are_finite() -> None:
    program = shapes_of_a_deep_chain()
    default = jitted(program)
    for inputs in tame_inputs(program, default):
        judge = Judge.of(program, default, inputs)
        (right,) = judge.judge(default, "standard")
        (wrong,) = judge.judge(lambda *v: (1.001 * np.asarray(default(*v)),), "standard")
        assert (right.compared, right.wrong) == (1.0, None)
        assert wrong.wrong is not None


def test_where_nothing_can_be_compared_nothing_is_said_to_be_right() -> None:
    program = shapes_of_a_deep_chain()
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (found,) = judge.judge(jitted(program), "standard")
    assert not found.is_checked
    assert (found.to_json()["tuned_error"], found.to_json()["compared"]) == (None, 0.0)


def test_infinities_where_the_default_has_none_are_wrong() -> None:
    program = load(lambda x: jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(3)), normal(3, 3))
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (found,) = judge.judge(lambda x: (np.full((3, 3), np.inf),), "standard")
    assert found.wrong is not None


def test_infinities_that_a_program_makes_on_purpose_are_to_be_kept() -> None:
    x = np.abs(normal(6, 6)) + 1
    program = load(lambda x: jnp.where(np.tri(6, dtype=bool), x * 2, -np.inf), x)
    judge = Judge.of(program, jitted(program), example_inputs(program))
    (right,) = judge.judge(jitted(program), "standard")
    (wrong,) = judge.judge(lambda x: (np.tril(x * 2),), "standard")
    assert (right.compared, right.wrong) == (21 / 36, None)
    assert wrong.wrong is not None and wrong.wrong.startswith("15 of 36 elements wrong")


def test_values_of_the_user_stay_as_they_are() -> None:
    x = np.full(3, 1e30, np.float32)
    program = load(lambda x: x * x, x)
    example, _ = tame_inputs(program, jitted(program))
    assert example.drawn == ()
    np.testing.assert_array_equal(example.values[0], x)


def test_fewer_threads_are_fewer_processors_for_the_time_of_the_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned(1):
        assert len(os.sched_getaffinity(0)) == 1
        assert host_target().threads == 1
    assert os.sched_getaffinity(0) == before


def test_threads_bound_to_a_processor_that_stays_remain_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = {7: {1}, 8: {0, 1, 2}, 9: {2}}
    monkeypatch.setattr(affinity, "_processors", lambda: [0, 1, 2])
    monkeypatch.setattr(affinity, "_threads", lambda: list(now))
    monkeypatch.setattr(affinity, "_bind", now.__setitem__)
    monkeypatch.setattr(os, "sched_getaffinity", now.__getitem__)
    with pinned(2):
        assert now == {7: {1}, 8: {0, 1}, 9: {0, 1}}
    assert now == {7: {1}, 8: {0, 1, 2}, 9: {2}}


def test_a_system_that_binds_no_threads_refuses_a_smaller_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affinity, "_THREADS", tmp_path / "none")
    with pinned(len(os.sched_getaffinity(0))):
        pass
    with pytest.raises(TargetError, match="use the target of all processors"), pinned(0):
        pass


def test_zeros_and_shapes_are_no_inputs_to_time() -> None:
    def add(a: Any, b: Any, i: Any) -> Any:
        return a + b + i

    shape = jax.eval_shape(lambda: jnp.zeros(3))
    program = load(add, np.zeros(3, np.float32), shape, np.zeros(3, np.int32))
    inputs = example_inputs(program)
    assert inputs.drawn == (0, 1)
    assert np.any(inputs.values[0])


def test_a_program_that_the_oracle_does_not_know_is_held_against_the_default() -> None:
    def decomposed(x: Any) -> Any:
        return jnp.linalg.cholesky(x @ x.T + 4 * jnp.eye(3))

    program = load(decomposed, normal(3, 3))
    judge = Judge.of(program, jitted(program), random_inputs(program))
    (same,) = judge.judge(jitted(program), "standard")
    (other,) = judge.judge(lambda x: decomposed(x) * 1.001, "standard")
    assert (same.default_error, same.wrong) == (None, None)
    assert same.unchecked is not None
    assert other.wrong is not None


def test_what_the_oracle_has_no_time_for_is_held_against_the_default_and_said_to_be() -> None:
    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 10**5, lambda _, y: y @ y, x)

    program = load(slow, np.eye(3, dtype=np.float32))
    judge = Judge.of(program, jitted(program), example_inputs(program), 0.2)
    (same,) = judge.judge(jitted(program), "standard")
    (other,) = judge.judge(lambda x: (2 * np.eye(3, dtype=np.float32),), "standard")
    assert (same.default_error, same.wrong) == (None, None)
    assert same.unchecked == "the oracle did not get through the program in 0.2 s"
    assert other.wrong is not None
