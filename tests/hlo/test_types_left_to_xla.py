"""Values of types that no kernel of ours has stay with XLA, and all else of a program is tuned."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.deploy.accuracy import Judge
from hlotune.deploy.inputs import example_inputs, random_inputs
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.oracle import Gap, gaps
from tests.hlo.test_program import load_text
from tests.support.computes import whole
from tests.support.cut import contractions

X, W = whole(16, 32), whole(32, 8)


def beside(other: Any) -> Program:
    """A product in f32, and one of another type."""
    return load(lambda x, w, z: (jnp.tanh(x @ w), z @ z), X, W, other)


@pytest.mark.parametrize("dtype", ["complex64", "int4", "float8_e4m3fn", "float8_e5m2"])
def test_a_product_of_such_a_type_is_no_site_and_the_one_beside_it_is(dtype: str) -> None:
    z = jnp.asarray(whole(4, 4, largest=1), jnp.dtype(dtype))
    program = beside(z)
    assert [s.label for s in contractions(program)] == ["dot 16x32x8 +tanh", "dot 16x32x8"]
    tanh, product = jitted(program)(X, W, z)
    np.testing.assert_allclose(tanh, np.tanh(X @ W), rtol=1e-6)
    np.testing.assert_array_equal(product, jax.jit(lambda z: z @ z)(z))


def test_what_touches_such_a_type_is_in_no_kernel() -> None:
    """A product ends where its results become complex, and begins behind what was."""

    def model(x: Any, z: Any) -> Any:
        before = jnp.real(z) * 2
        return jax.lax.complex(before @ x + 1, x @ x)

    program = load(model, whole(8, 8), jnp.asarray(whole(8, 8), jnp.complex64))
    assert [s.label for s in contractions(program)] == [
        "dot 8x8x8 scale+ +bias", "dot 8x8x8 +bias", "dot 8x8x8", "dot 8x8x8",
    ]  # fmt: skip
    kernels = [s.kernel.text for s in contractions(program)]
    assert not any("complex" in text or "real" in text for text in kernels)


CONSTANT = """func.func @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<2x2xcomplex<f32>>) {
  %c = stablehlo.constant dense<[[(1.0, 2.0), (0.0, 1.0)], [(3.0, 0.0), (0.0, 0.0)]]>
    : tensor<2x2xcomplex<f32>>
  %i = stablehlo.constant dense<[[1, -2], [3, -8]]> : tensor<2x2xi4>
  %f = stablehlo.convert %i : (tensor<2x2xi4>) -> tensor<2x2xf32>
  %y = stablehlo.dot %x, %f : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %z = stablehlo.add %c, %c : tensor<2x2xcomplex<f32>>
  return %y, %z : tensor<2x2xf32>, tensor<2x2xcomplex<f32>>
}"""


def test_constants_of_such_types_are_part_of_the_program(tmp_path: Path) -> None:
    program = load_text(tmp_path, CONSTANT)
    assert [s.label for s in contractions(program)] == ["dot 2x2x2"]
    y, z = jitted(program)(np.eye(2, dtype=np.float32))
    np.testing.assert_array_equal(y, [[1, -2], [3, -8]])
    np.testing.assert_array_equal(z, [[2 + 4j, 2j], [6, 0]])
    other = load_text(tmp_path, CONSTANT.replace("(3.0, 0.0)", "(3.0, 0.5)"))
    assert other.key != program.key


def test_results_of_other_types_are_held_against_the_oracle_beside_them() -> None:
    z = jnp.asarray(whole(4, 4), jnp.complex64)
    program = beside(z)
    plain, strange = gaps(program.graph)
    assert plain is None
    assert strange is not None
    assert "of a type that the oracle knows, got complex<f32>" in strange.reason
    judge = Judge.of(program, jitted(program), random_inputs(program))
    right = judge.judge(jitted(program), "standard")
    assert [a.wrong for a in right] == [None, None]
    assert right[0].default_error is not None
    assert (right[1].default_error, right[1].unchecked) == (None, strange.reason)
    wrong = judge.judge(lambda x, w, z: (jnp.tanh(x @ w), z @ z * 1j), "standard")
    assert [a.wrong is None for a in wrong] == [True, False]


def test_a_loop_over_a_type_that_the_oracle_does_not_know_is_a_gap() -> None:
    def model(x: Any) -> Any:
        turned = jax.lax.fori_loop(0, 3, lambda _, z: z * 1j, x.astype(jnp.complex64))
        return jnp.real(turned), x * 2

    reason, known = gaps(load(model, X).graph)
    assert isinstance(reason, Gap)
    assert known is None


def test_numbers_that_are_drawn_anew_are_held_against_nothing(tmp_path: Path) -> None:
    program = load_text(tmp_path, RANDOM)
    judge = Judge.of(program, jitted(program), example_inputs(program))
    drawn, product = judge.judge(jitted(program), "standard")
    assert (drawn.is_checked, drawn.wrong) == (False, None)
    assert drawn.unchecked == "its values are drawn anew in each call (stablehlo.rng)"
    assert (product.is_checked, product.wrong, product.unchecked) == (True, None, None)
    wrong = judge.judge(lambda x: (np.ones((8, 8)), np.ones((8, 8), np.float32)), "standard")
    assert [a.wrong is None for a in wrong] == [True, False]


RANDOM = """func.func @main(%x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %a = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %s = stablehlo.constant dense<[8, 8]> : tensor<2xi64>
  %g = stablehlo.rng %a, %b, %s, distribution = UNIFORM :
    (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<8x8xf32>
  %d = stablehlo.dot %g, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = stablehlo.dot %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %d, %e : tensor<8x8xf32>, tensor<8x8xf32>
}"""
