"""Kernels become computes that mean the same, and whose texts are as expected."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.typing import NDArray

from hlotune.hlo.frontends.program import load
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.ir.compute import Compute
from tests.support.interpreter import interpret

Array = NDArray[Any]
NHWC = ("NHWC", "HWIO", "NHWC")


def integers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Small integers: every sum is exact, so a lost or doubled term cannot hide."""
    return np.random.default_rng([seed, *shape]).integers(-4, 5, shape).astype(dtype)


def compute(function: Callable[..., Any], *arguments: Array) -> Compute:
    return compute_of(load(function, *arguments).graph)


def check(function: Callable[..., Any], *arguments: Array, tolerance: float = 0.0) -> Compute:
    """The compute, after its results have been compared with JAX's."""
    result = compute(function, *arguments)
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    for want, got in zip(wanted, interpret(result, arguments), strict=True):
        want, got = np.asarray(want, np.float64), got.astype(np.float64).reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return result


def shuffled(rng: np.random.Generator, letters: str) -> str:
    return "".join(rng.permutation(list(letters)))


@pytest.mark.parametrize("seed", range(12))
def test_a_dot_of_any_dimension_numbers_means_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    extents = dict(zip("abmnkl", rng.integers(1, 5, 6), strict=True))
    batch, free = "ab"[: rng.integers(0, 3)], "kl"[: rng.integers(0, 3)]
    lhs, rhs = shuffled(rng, batch + free + "m"), shuffled(rng, batch + free + "n")
    output = batch + "mn"
    x, w = (integers(*(int(extents[c]) for c in side)) for side in (lhs, rhs))
    check(lambda x, w: jnp.einsum(f"{lhs},{rhs}->{output}", x, w), x, w)


def arranged(spec: str, sizes: dict[str, int]) -> Array:
    return integers(*(sizes[c] for c in spec))


@pytest.mark.parametrize("seed", range(40))
def test_a_convolution_of_any_form_means_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spatial = "XYZ"[: rng.integers(1, 4)]
    groups, batch_groups = [(1, 1), (2, 1), (3, 1), (1, 2)][rng.integers(4)]
    per_group, features = rng.integers(1, 4, 2)
    sizes = {
        "N": int(rng.integers(1, 3)) * batch_groups,
        "C": int(per_group) * groups,
        "I": int(per_group),
        "O": int(features) * groups * batch_groups,
    }
    image = sizes | {c: int(rng.integers(7, 9)) for c in spatial}
    window = sizes | {c: int(rng.integers(1, 4)) for c in spatial}
    specs = [shuffled(rng, letters + spatial) for letters in ("NC", "OI", "NC")]
    many = len(spatial)
    options: dict[str, Any] = {
        "window_strides": tuple(map(int, rng.integers(1, 4, many))),
        "padding": [tuple(map(int, p)) for p in rng.integers(-1, 4, (many, 2))],
        "lhs_dilation": tuple(map(int, rng.integers(1, 3, many))),
        "rhs_dilation": tuple(map(int, rng.integers(1, 3, many))),
        "dimension_numbers": tuple(specs),
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
    }

    def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(jax.nn.relu(x), w, **options)

    check(convolution, arranged(specs[0], image), arranged(specs[1], window))


def test_a_reversed_window_is_read_backwards() -> None:
    program = """
      func.func @main(%x: tensor<1x5x1xf32>, %w: tensor<3x1x1xf32>) -> tensor<1x3x1xf32> {
        %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
          window = {reverse = [true]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
          : (tensor<1x5x1xf32>, tensor<3x1x1xf32>) -> tensor<1x3x1xf32>
        return %0 : tensor<1x3x1xf32>
      }"""
    x, w = integers(1, 5, 1), integers(3, 1, 1)
    (got,) = interpret(compute_of(graph_of_text(program)), (x, w))
    np.testing.assert_array_equal(got, np.convolve(x.ravel(), w.ravel(), "valid"))


def graph_of_text(text: str) -> Any:
    from hlotune.hlo.mlir import module as mlir

    return mlir.graph(mlir.parse(text))


def batch_normalised(
    x: Any, w: Any, mean: Any, variance: Any, scale: Any, shift: Any, residual: Any
) -> Any:
    y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
    y = (y - mean) * (lax.rsqrt(variance + 1e-5) * scale) + shift
    return jax.nn.relu(y + residual), y


def test_a_convolution_with_normalisation_residual_and_relu_reads_as_expected(golden: str) -> None:
    channels = [abs(integers(8, seed=k)) + 1 for k in range(4)]
    image, window, residual = integers(1, 6, 6, 4), integers(3, 3, 4, 8), integers(1, 6, 6, 8)
    got = check(batch_normalised, image, window, *channels, residual, tolerance=1e-5)
    assert str(got) == golden


def test_a_pointwise_convolution_collapses_to_a_matrix_product(golden: str) -> None:
    def pointwise(x: Any, w: Any, bias: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
        return jax.nn.relu(y + bias)

    got = check(pointwise, integers(2, 6, 6, 4), integers(1, 1, 4, 8), integers(8))
    assert str(got) == golden


NOTHING: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "a product": (jnp.matmul, [(5, 0), (0, 7)]),
    "products of a batch": (jnp.matmul, [(3, 5, 0), (3, 0, 7)]),
    "no channels": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC),
        [(2, 5, 6, 0), (3, 3, 0, 7)],
    ),
    "an image of padding": (
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), [(2, 1), (1, 1)], dimension_numbers=NHWC
        ),
        [(2, 0, 6, 4), (3, 3, 4, 7)],
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_sum_of_no_products_is_zero(name: str) -> None:
    function, (image, window) = NOTHING[name]
    got = check(
        lambda x, w, b: jnp.exp(function(jnp.tanh(x), w)) + b,
        integers(*image), integers(*window), integers(7), tolerance=1e-6,
    )  # fmt: skip
    assert got.stage("contract").points == got.stage("out").points
    assert not got.stage("contract").loads


def test_a_strided_pointwise_convolution_keeps_its_spatial_axes() -> None:
    def pointwise(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (2, 2), "VALID", dimension_numbers=NHWC)

    got = check(pointwise, integers(1, 6, 6, 4), integers(1, 1, 4, 8))
    assert [a.extent for a in got.stage("contract").parallel] == [3, 3, 8]


def test_a_window_as_large_as_the_image_collapses_to_a_matrix_product() -> None:
    def whole(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC)

    got = check(whole, integers(2, 3, 3, 4), integers(3, 3, 4, 5))
    assert [a.extent for a in got.stage("contract").axes] == [2, 5, 36]


def test_a_depthwise_convolution_has_one_channel_axis() -> None:
    def depthwise(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=NHWC, feature_group_count=8
        )

    got = check(depthwise, integers(1, 5, 5, 8), integers(3, 3, 1, 8))
    assert [a.extent for a in got.stage("contract").axes] == [5, 5, 8, 3, 3]


def padded(prologue: Callable[[Any], Any]) -> Compute:
    def convolution(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(prologue(x), w, (1, 1), "SAME", dimension_numbers=NHWC)
        return jnp.negative(y)

    return check(convolution, integers(1, 5, 5, 2), integers(3, 3, 2, 4), tolerance=1e-3)


PROLOGUES: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "relu": (jax.nn.relu, True),
    "scale": (lambda x: x * np.array([2, 3], np.float32), True),
    "clip": (lambda x: jnp.clip(x, -1, 2), True),
    "tanh": (jnp.tanh, True),
    "difference": (lambda x: jnp.abs(x) - x / 2, True),
    "shift": (lambda x: x + 1, False),
    "clip above zero": (lambda x: jnp.clip(x, 1, 2), False),
    "exponential": (jnp.exp, False),
    "shifted channels": (lambda x: x + np.array([2, 3], np.float32), False),
    "reshape of a padded dimension": (lambda x: x.reshape(1, 25, 2).reshape(1, 5, 5, 2), True),
    "transposition": (lambda x: x.transpose(0, 2, 1, 3), True),
    "reversal": (lambda x: x[:, ::-1], False),
    "rows": (lambda x: x[:, :, :1] + jnp.zeros_like(x), False),
}


@pytest.mark.parametrize("name", PROLOGUES)
def test_padding_applies_after_the_prologue(name: str) -> None:
    prologue, inlined = PROLOGUES[name]
    got = padded(prologue)
    own = [s for s in got.stages if s.name.startswith("pre") and s.points == 50]
    assert len(own) == (0 if inlined else 1)


def test_a_dimension_of_one_that_is_padded_stays() -> None:
    def convolution(x: Any, w: Any) -> Any:
        x = x.reshape(2, 1, 6, 3)
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)

    check(convolution, integers(2, 6, 3), integers(3, 3, 3, 4))
    check(lambda x, w: convolution(x, w) * 2, integers(2, 1, 6, 3), integers(3, 3, 3, 4))


def test_a_reshape_in_the_epilogue_splits_axes() -> None:
    got = check(
        lambda x, w, b: jnp.maximum((x @ w).reshape(3, 2, 3) + b, 0).transpose(1, 0, 2),
        integers(3, 8),
        integers(8, 6),
        integers(2, 3),
    )
    assert [a.extent for a in got.stage("out").parallel] == [3, 2, 3]


def test_a_reshape_in_the_prologue_splits_reduce_axes() -> None:
    got = check(
        lambda x, w: x.transpose(0, 2, 1, 3).reshape(2, 4, 15) @ w,
        integers(2, 3, 4, 5),
        integers(15, 6),
    )
    assert [a.extent for a in got.stage("contract").reduce] == [3, 5]


def test_attention_scores_with_scale_and_causal_mask_mean_the_same() -> None:
    def scores(q: Any, k: Any) -> Any:
        seen = jnp.arange(40)[:, None] >= jnp.arange(40)[None, :]
        return jnp.where(seen, jnp.einsum("bqhd,bkhd->bhqk", q, k) * 0.5, -1e9)

    check(scores, integers(2, 40, 2, 3), integers(2, 40, 2, 3, seed=1))


def test_small_constants_become_tables() -> None:
    table = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = check(lambda x, w: x @ w + table, integers(3, 5), integers(5, 4))
    assert len(got.stages[0].stores) == 12


def test_a_part_shared_by_two_results_is_computed_once() -> None:
    def two(x: Any, w: Any, v: Any) -> Any:
        y = (x @ w) * lax.rsqrt(v + 1)
        return jnp.maximum(y, 0), y

    got = check(two, integers(3, 5), integers(5, 4), abs(integers(4)), tolerance=1e-6)
    assert [s.name for s in got.stages] == ["pre0", "contract", "out"]


def test_a_result_beside_the_contraction_has_a_stage_of_its_own() -> None:
    def two(x: Any, w: Any) -> Any:
        y = jnp.maximum(x, 0)
        return y @ w, y

    got = check(two, integers(3, 5), integers(5, 4))
    assert [s.stores[0].tensor for s in got.stages] == ["y1", "acc", "y0"]


def test_scalars_stay_inline() -> None:
    got = check(lambda x, w, a: (x @ w) * (a + 1), integers(3, 5), integers(5, 4), integers())
    assert [s.name for s in got.stages] == ["contract", "out"]


def test_a_dot_of_vectors_keeps_an_axis() -> None:
    got = check(lambda x, w: x @ w + 1, integers(5), integers(5))
    assert [str(a.extent) for a in got.stage("out").parallel] == ["1"]


def test_an_outer_product_keeps_a_reduce_axis() -> None:
    got = check(lambda x, w: jnp.einsum("i,j->ij", x, w), integers(5), integers(4))
    assert [a.extent for a in got.stage("contract").reduce] == [1]


def test_a_kernel_without_a_contraction_is_one_stage() -> None:
    got = check(lambda x, b: jnp.maximum(x + b, 0), integers(3, 4, 5), integers(5))
    assert [(s.name, len(s.parallel)) for s in got.stages] == [("out", 2)]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_narrow_floats_accumulate_in_f32(dtype: Any) -> None:
    operands = integers(3, 5, dtype=dtype), integers(5, 4, dtype=dtype), integers(4, dtype=dtype)
    got = check(lambda x, w, b: jnp.tanh(x @ w + b), *operands, tolerance=1e-2)
    assert got.tensor("acc").dtype == "f32"


def test_a_convert_of_the_program_is_kept_and_a_rounding_between_narrow_operations_is_not() -> None:
    def kernel(x: Any, w: Any) -> Any:
        y = jnp.dot(x, w, preferred_element_type=jnp.float32)
        return y.astype(jnp.bfloat16) + jnp.bfloat16(1)

    x, w = integers(3, 5, dtype=jnp.bfloat16), integers(5, 4, dtype=jnp.bfloat16)
    (value,) = check(kernel, x, w, tolerance=1e-2).stage("out").values
    assert str(value) == "convert(add(convert(convert(acc[i0, i1])), 1.0))"


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.uint8])
def test_integers_multiply_in_the_type_of_the_result(dtype: Any) -> None:
    def kernel(x: Any, w: Any) -> Any:
        return jnp.dot(x, w, preferred_element_type=jnp.int32)

    check(kernel, abs(integers(3, 5)).astype(dtype), abs(integers(5, 4)).astype(dtype))


def test_constants_of_a_program_keep_their_role() -> None:
    text = """
      func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32> {hlotune.constant})
          -> tensor<3x5xf32> {
        %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
        return %0 : tensor<3x5xf32>
      }"""
    assert [t.role for t in compute_of(graph_of_text(text)).arguments] == ["argument", "constant"]
