"""A program as a function inside JAX's transformations, and lowered as `jax.jit` lowers."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.artifact import load_artifact, save_artifact
from hlotune.deploy.freeze import freeze
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.schedules.errors import ProgramError
from tests.deploy.test_artifact import PACKED, X, tuned
from tests.support.applied import PARAMETERS, mlp, normal

V = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("transformed", [lambda f: f, jax.jit])
def test_derivatives_and_batches_are_refused_in_words_that_name_what_has_them(
    transformed: Any,
) -> None:
    run = transformed(jitted(load(jnp.sin, V)))
    with pytest.raises(ProgramError, match=r"got it inside grad, .*; take hlotune\.jit of the fun"):
        jax.grad(lambda x: run(x).sum())(V)
    with pytest.raises(ProgramError, match=r"got it inside vmap, .*; take hlotune\.jit of the fun"):
        jax.vmap(run)(np.stack([V, V]))


def test_what_depends_on_no_transformed_value_runs_inside_all_of_them() -> None:
    run = jitted(load(jnp.sin, V))
    np.testing.assert_allclose(jax.grad(lambda s: (s * run(V)).sum())(2.0), np.sin(V).sum())
    np.testing.assert_allclose(jax.vmap(lambda s: s * run(V))(V)[1], np.sin(V), rtol=1e-6)


def test_a_tuned_program_can_be_lowered_and_compiled_ahead(tmp_path: Path) -> None:
    fast = tuned(load(mlp, PARAMETERS, X), tmp_path)
    lowered = fast.lower(parameters=PARAMETERS, x=jax.typeof(X))
    assert "hlotune_call" in lowered.as_text()
    got = lowered.compile()(parameters=PARAMETERS, x=X)["logits"]
    np.testing.assert_allclose(got, mlp(PARAMETERS, X)["logits"], rtol=1e-5, atol=1e-5)


def test_packed_constants_are_in_what_is_compiled_ahead(tmp_path: Path) -> None:
    weights = normal(16, 32)
    fast = tuned(load(freeze(lambda w, x: x @ w, weights), X), tmp_path, PACKED)
    save_artifact(fast, tmp_path / "a.hlotune")
    for one in (fast, load_artifact(tmp_path / "a.hlotune")):
        np.testing.assert_allclose(one.lower(X).compile()(X), X @ weights, rtol=1e-5, atol=1e-5)


def test_a_program_of_64_bits_is_lowered_as_it_is() -> None:
    with jax.enable_x64(True):
        program = load(jnp.sin, V.astype(np.float64))
    assert "tensor<4xf64>" in jitted(program).lower(V.astype(np.float64)).as_text()


def test_what_is_lowered_may_have_arguments_of_any_name() -> None:
    run = jitted(load(lambda run, values, function: run + values * function, V, V, V))
    compiled = run.lower(run=V, values=V, function=V).compile()
    np.testing.assert_array_equal(compiled(run=V, values=V, function=V), V + V * V)
