"""Tuned programs are right, fast where records say so, and honest where they are not."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest

from hlotune.deploy.apply import apply
from hlotune.deploy.freeze import freeze
from hlotune.deploy.replacement import constant
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.sites.sites import sites
from hlotune.measure.machine.targets import TARGETS, host_target, toolchain
from hlotune.schedules.errors import (
    DatabaseError,
    ProgramError,
    TargetError,
)
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Pack
from hlotune.tuning_logs.database import Database
from hlotune.tuning_logs.revoke import WRONG
from tests.support.applied import (
    DIRECT,
    PARAMETERS,
    final,
    first_sites,
    mlp,
    normal,
    recorded,
    vouched,
)

pytestmark = pytest.mark.smoke


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


def test_a_champion_that_was_taken_back_stays_out_and_an_alternative_comes_in(
    program: Program, tmp_path: Path
) -> None:
    """Also where records call it tuned all the same, as two versions of one final once were."""
    found = first_sites(program)
    records = {
        found["dot0"]: replace(final(DIRECT), withdrawn=WRONG),
        found["dot0.bare"]: final(DIRECT, tuned_s=1.9e-5),
    }
    tuned = apply(program, database=recorded(tmp_path / "a.db", records))
    assert [s.name for s in tuned.sites] == ["dot0.bare"]
    taken_back = tuned.explain()[0]
    assert (taken_back.status, taken_back.reason) == ("kept default", f"kept default: {WRONG}")


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
        database.record_final(run, site.kernel, vouched(site.kernel))
        assert not apply(program, database=database).sites
        assert apply(program, database=database, cache="warm").sites == (site,)


def test_a_missing_database_is_an_error(program: Program, tmp_path: Path) -> None:
    with pytest.raises(DatabaseError):
        apply(program, database=tmp_path / "missing.db")


def test_what_is_not_loaded_is_not_applied(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="expected a program, got str; give what"):
        apply(cast(Any, "a.py:f"), database=tmp_path / "a.db")


def test_settings_that_there_are_not_are_refused(program: Program, tmp_path: Path) -> None:
    path, wrong = recorded(tmp_path / "a.db", {}), cast(Any, "none")
    with pytest.raises(ValueError, match=r"expected a setting of numerics among .*, got 'none'"):
        apply(program, database=path, numerics=wrong)
    with pytest.raises(ValueError, match="expected a cache mode among model, warm, got 'none'"):
        apply(program, database=path, cache=wrong)


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
