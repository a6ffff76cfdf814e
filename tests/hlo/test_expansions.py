"""Operations that stand for others are written out, mean the same, and become kernels."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError
from tests.hlo.test_program import load_text
from tests.support.computes import whole
from tests.support.cut import contractions

DENSE = """HloModule dense
relu { s = f32[] parameter(0)  zero = f32[] constant(0)  ROOT r = f32[] maximum(s, zero) }
ENTRY main {
  x = f32[16,32] parameter(0)  w = f32[32,8] parameter(1)
  y = f32[16,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[16,8] map(y), dimensions={0,1}, to_apply=relu
}
"""
MAP = """func.func @main(
  %x: tensor<2x3xf32>, %y: tensor<2x3xf32>, %c: tensor<f32>
) -> tensor<2x3xi1> {
  %0 = "stablehlo.map"(%x, %y) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %two = stablehlo.constant dense<2.0> : tensor<f32>
    %scaled = stablehlo.multiply %a, %two : tensor<f32>
    %near = stablehlo.add %scaled, %c : tensor<f32>
    %erf = chlo.erf %near : tensor<f32> -> tensor<f32>
    %less = stablehlo.compare LT, %erf, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
  return %0 : tensor<2x3xi1>
}"""
LOOPING_MAP = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.map"(%x) ({
  ^bb0(%a: tensor<f32>):
    %b = "stablehlo.while"(%a) ({
    ^bb0(%c: tensor<f32>):
      %ten = stablehlo.constant dense<10.0> : tensor<f32>
      %p = stablehlo.compare LT, %c, %ten : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    }, {
    ^bb0(%c: tensor<f32>):
      %d = stablehlo.add %c, %c : tensor<f32>
      stablehlo.return %d : tensor<f32>
    }) : (tensor<f32>) -> tensor<f32>
    stablehlo.return %b : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def names(program: Program) -> list[str]:
    return [op.name.partition(".")[2] for op in program.graph.ops]


def load_hlo(folder: Path, text: str) -> Program:
    path = folder / "program.hlo"
    path.write_text(text)
    return load(path)


def test_a_map_after_a_product_is_part_of_its_kernel(tmp_path: Path) -> None:
    program = load_hlo(tmp_path, DENSE)
    assert "map" not in names(program)
    (site, *_) = contractions(program)
    assert site.label == "dot 16x32x8 +relu"
    x, w = whole(16, 32), whole(32, 8)
    np.testing.assert_array_equal(jitted(program)(x, w)[0], np.maximum(x @ w, 0))


def test_a_map_is_written_with_what_its_body_reads_from_outside(tmp_path: Path) -> None:
    program = load_text(tmp_path, MAP)
    assert set(names(program)) == {
        "constant", "multiply", "broadcast_in_dim", "add", "erf", "compare",
    }  # fmt: skip
    x, y = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 0.25, np.float32)
    (got,) = jitted(program)(x, y, np.float32(0.5))
    np.testing.assert_array_equal(got, jax.lax.erf(2 * x + 0.5) < y)


def test_a_map_that_loops_is_left_to_xla(tmp_path: Path) -> None:
    program = load_text(tmp_path, LOOPING_MAP)
    assert names(program) == ["constant", "map"]


def einsum(config: str, *shapes: tuple[int, ...]) -> str:
    lhs, rhs, result = (f"tensor<{''.join(f'{d}x' for d in shape)}f32>" for shape in shapes)
    return f"""func.func @main(%x: {lhs}, %y: {rhs}) -> {result} {{
      %0 = "stablehlo.einsum"(%x, %y) {{einsum_config = "{config}"}} : ({lhs}, {rhs}) -> {result}
      return %0 : {result} }}"""


@pytest.mark.parametrize(
    ("config", "shapes", "label"),
    [
        ("ij,jk->ik", ((8, 6), (6, 5), (8, 5)), "dot 8x6x5"),
        ("ij,jk->ki", ((8, 6), (6, 5), (5, 8)), "dot 5x6x8"),
        ("bij,bkj->bik", ((2, 8, 6), (2, 5, 6), (2, 8, 5)), "dot 2*8x6x5"),
        ("bij,bkj->bki", ((2, 8, 6), (2, 5, 6), (2, 5, 8)), "dot 2*5x6x8"),
        ("bij,kbj->ikb", ((2, 8, 6), (5, 2, 6), (8, 5, 2)), "dot 2*8x6x5"),
        ("i,j->ij", ((3,), (4,), (3, 4)), "dot 3x1x4"),
        ("ij,ij->", ((3, 4), (3, 4), ()), "dot 1x12x1"),
    ],
)
def test_an_einsum_is_a_contraction(
    tmp_path: Path, config: str, shapes: tuple[tuple[int, ...], ...], label: str
) -> None:
    program = load_text(tmp_path, einsum(config, *shapes))
    x, y = (whole(*shape) for shape in shapes[:2])
    np.testing.assert_array_equal(jitted(program)(x, y)[0], np.einsum(config, x, y))
    assert [s.label for s in contractions(program)] == [label]


def test_a_product_that_is_transposed_has_the_order_of_its_transpose() -> None:
    highest = (lax.Precision.DEFAULT, lax.Precision.HIGHEST)

    def of_weights(x: jax.Array, y: jax.Array) -> jax.Array:
        """As `jax.grad` has it."""
        return lax.dot_general(y, x, (((0,), (0,)), ((), ())), precision=highest).T

    x, y = whole(7, 5), whole(7, 3)
    program = load(of_weights, x, y)
    assert names(program) == ["dot_general"]
    (product,) = program.graph.ops
    assert product["precision_config"] == ("HIGHEST", "DEFAULT")
    np.testing.assert_array_equal(jitted(program)(x, y), x.T @ y)


def test_a_product_that_others_read_too_stays_as_it_is() -> None:
    def both(x: jax.Array, y: jax.Array) -> Any:
        product = x @ y
        return product, product.T

    assert names(load(both, whole(7, 5), whole(5, 3))) == ["dot_general", "transpose"]


@pytest.mark.parametrize(
    ("config", "shapes"),
    [("ii,ij->j", ((4, 4), (4, 5), (5,))), ("ij,k->k", ((3, 4), (5,), (5,)))],
)
def test_an_einsum_that_is_no_contraction_of_two_is_left_to_xla(
    tmp_path: Path, config: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    assert names(load_text(tmp_path, einsum(config, *shapes))) == ["einsum"]


def test_a_call_that_says_how_a_tensor_is_sharded_is_its_operand(tmp_path: Path) -> None:
    text = """func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
        : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %1 = stablehlo.custom_call @Sharding(%0) {mhlo.sharding = "{replicated}"}
        : (tensor<64x64xf32>) -> tensor<64x64xf32>
      %2 = stablehlo.tanh %1 : tensor<64x64xf32>
      return %2 : tensor<64x64xf32>
    }"""
    names = [op.name for op in load_text(tmp_path, text).graph.ops]
    assert names == ["stablehlo.dot_general", "stablehlo.tanh"]


def test_a_sharding_constraint_on_one_device_does_not_part_a_kernel() -> None:
    mesh = Mesh(np.array(jax.devices("cpu")[:1]), ("x",))
    placed = NamedSharding(mesh, PartitionSpec("x"))  # type: ignore[no-untyped-call]

    def model(x: Any) -> Any:
        product = jax.lax.with_sharding_constraint(x @ x, placed)  # type: ignore[no-untyped-call]
        return jnp.tanh(product)

    x = whole(4, 4)
    program = load(model, x)
    assert [s.label for s in contractions(program)] == ["dot 4x4x4 +tanh", "dot 4x4x4"]
    np.testing.assert_allclose(jitted(program)(x), np.tanh(x @ x), rtol=1e-6)


def test_numbers_drawn_anew_are_left_to_xla(tmp_path: Path) -> None:
    program = load_text(tmp_path, RANDOM)
    assert names(program)[-2:] == ["rng", "dot_general"]
    assert [s.label for s in contractions(program)] == ["dot 8x8x8"]
    (got,) = jitted(program)(np.eye(8, dtype=np.float32))
    assert ((np.asarray(got) >= 0) & (np.asarray(got) < 1)).all()


RANDOM = """func.func @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %a = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %s = stablehlo.constant dense<[8, 8]> : tensor<2xi64>
  %g = stablehlo.rng %a, %b, %s, distribution = UNIFORM :
    (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<8x8xf32>
  %d = stablehlo.dot %g, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %d : tensor<8x8xf32>
}"""


def test_a_pass_that_fails_is_one_error_with_the_operation() -> None:
    module = mlir.parse(LOOPING_MAP)
    wanted = r"passes \(func\.func\(stablehlo-legalize-deprecated-ops\)\).*'stablehlo\.map'"
    with pytest.raises(ProgramError, match=wanted) as refused:
        module.run("func.func(stablehlo-legalize-deprecated-ops)")
    assert "\n" not in str(refused.value)
