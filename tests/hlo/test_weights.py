"""Large constants lie beside the module of a program, each value once in memory."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.accuracy import Judge
from hlotune.deploy.freeze import freeze
from hlotune.deploy.inputs import tame_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import Literal
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir import weights
from hlotune.hlo.mlir.stored_values import with_weights
from hlotune.hlo.sites.sites import sites
from hlotune.schedules.errors import ProgramError

RNG = np.random.default_rng(0)
FIRST = RNG.standard_normal((64, 96), np.float32)
SECOND = RNG.standard_normal((96, 48), np.float32)
X = RNG.standard_normal((3, 64), np.float32)


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of a small program."""
    monkeypatch.setattr(weights, "LARGE_BYTES", 1 << 14)
    monkeypatch.setattr(weights, "LARGEST_INSIDE_BYTES", 1 << 10)


def network(x: Any) -> Any:
    return jnp.maximum(x @ FIRST, 0) @ SECOND + SECOND[0]


@pytest.mark.usefixtures("few_bytes")
def test_a_program_with_weights_beside_it_is_the_same_program() -> None:
    outside = load(network, X)
    assert len(outside.weights) >= 2
    assert len(outside.bytecode) < FIRST.nbytes
    [remark] = outside.remarks
    assert "are arguments of the default and of the tuned program" in remark
    assert np.allclose(jitted(outside)(X), network(X), rtol=1e-5)


def test_keys_of_programs_and_kernels_do_not_depend_on_where_weights_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inside = load(network, X)
    monkeypatch.setattr(weights, "LARGE_BYTES", 1 << 14)
    monkeypatch.setattr(weights, "LARGEST_INSIDE_BYTES", 1 << 10)
    outside = load(network, X)
    assert inside.weights == ()
    assert outside.weights
    assert outside.key == inside.key
    assert [s.kernel.key for s in sites(outside)] == [s.kernel.key for s in sites(inside)]


@pytest.mark.usefixtures("few_bytes")
def test_weights_share_the_memory_of_frozen_parameters() -> None:
    aligned = weights.aligned(FIRST)
    aligned.flags.writeable = False

    def first(w: Any, x: Any) -> Any:
        return x @ w

    program = load(freeze(first, aligned), X)
    [weight] = program.weights
    values = [op["value"] for op in program.graph.ops if op.name == "stablehlo.constant"]
    [literal] = [v for v in values if isinstance(v, Literal) and not v.splat]
    assert np.shares_memory(weight, literal.array())
    assert hash(literal) == hash(literal)


@pytest.mark.usefixtures("few_bytes")
def test_frozen_arrays_of_numpy_are_indexed_by_what_is_traced() -> None:
    """As an embedding is; an array of NumPy itself takes no traced index."""

    def embedded(table: Any, w: Any, ids: Any) -> Any:
        return table[ids] @ w

    ids = np.array([3, 1, 63])
    program = load(freeze(embedded, FIRST, SECOND), ids)
    assert len(program.weights) == 2
    np.testing.assert_allclose(jitted(program)(ids), FIRST[ids] @ SECOND, rtol=1e-4, atol=1e-4)
    with pytest.raises(ProgramError, match="TracerArrayConversionError"):
        load(freeze(lambda x: FIRST[x]), ids)


@pytest.mark.usefixtures("few_bytes")
def test_weights_of_a_jitted_function_are_never_in_the_text_that_jax_makes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `hlotune.jit` gives it a function, and where that was jitted already."""
    texts: list[str] = []
    copied = mlir.copied

    def noting(module: Any) -> mlir.Module:
        texts.append(str(module))
        return copied(module)

    monkeypatch.setattr(mlir, "copied", noting)
    for function in (network, jax.jit(network), jax.jit(jax.jit(network))):
        program = load(function, X)
        assert len(program.weights) >= 2
        assert np.allclose(jitted(program)(X), network(X), rtol=1e-5)
    assert len(texts) == 3
    assert all(len(text) < FIRST.nbytes for text in texts)


@pytest.mark.usefixtures("few_bytes")
def test_constants_of_a_file_are_taken_out_of_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("weights") / "network.mlir"
    path.write_text(jax.jit(network).lower(X).as_text(), encoding="utf-8")
    program = load(path)
    assert len(program.weights) >= 2
    (result,) = jitted(program)(X)
    assert np.allclose(result, network(X), rtol=1e-5)


@pytest.mark.usefixtures("few_bytes")
def test_a_module_that_is_written_has_its_weights_again() -> None:
    program = load(network, X)
    module = with_weights(mlir.parse(program.bytecode), program.weights)
    assert weights.TARGET not in module.text()
    assert len(module.bytecode()) > FIRST.nbytes + SECOND.nbytes
    assert np.allclose(jitted(program, module.bytecode())(X), network(X), rtol=1e-5)


@pytest.mark.usefixtures("few_bytes")
def test_a_program_with_weights_beside_it_is_checked_with_one_set_of_inputs() -> None:
    program = load(network, X)
    [inputs] = tame_inputs(program, jitted(program))
    np.testing.assert_array_equal(inputs.values[0], X)
    [verdict] = Judge.of(program, jitted(program), inputs).judge(jitted(program), "standard")
    assert verdict.is_checked and verdict.wrong is None
