"""Sites: which operations stand together, how often they run, and what kernels take."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import Program, argument, load
from hlotune.hlo.graph import Literal
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.sites.sites import Site, sites
from tests.support.cut import contractions


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return argument(f"f32[{','.join(map(str, shape))}]")


def sites_of(function: Callable[..., Any], *arguments: Any) -> tuple[Site, ...]:
    """Those of contractions: `test_fused_sites.py` has the others."""
    return contractions(load(function, *arguments))


def first(function: Callable[..., Any], *arguments: Any) -> Site:
    return sites_of(function, *arguments)[0]


def operations(site: Site) -> list[str]:
    return [op.name.partition(".")[2] for op in graph_of(site.kernel).ops]


def convolve(x: jax.Array, w: jax.Array, stride: int = 1) -> jax.Array:
    rank = x.ndim - 2
    letters = "DHW"[3 - rank :]
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    return lax.conv_general_dilated(x, w, (stride,) * rank, "SAME", dimension_numbers=numbers)


def layer(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w + b)


def normalised(x: jax.Array, w: jax.Array, mean: jax.Array, var: jax.Array, y: jax.Array) -> Any:
    return jnp.maximum((convolve(x, w) - mean) * lax.rsqrt(var + 1e-5) + y, 0)


IMAGE, WINDOW, CHANNELS = f32(1, 56, 56, 64), f32(3, 3, 64, 64), f32(64)


def test_bias_and_activation_go_with_a_dot() -> None:
    found = sites_of(layer, f32(64, 784), f32(784, 512), f32(512))
    assert [s.name for s in found] == ["dot0", "dot0.bare"]
    assert [s.label for s in found] == ["dot 64x784x512 +bias+relu", "dot 64x784x512"]
    assert operations(found[1]) == ["dot_general"]
    assert found[0].root == found[1].root


def test_batch_norm_residual_and_activation_go_with_a_convolution() -> None:
    site = first(normalised, IMAGE, WINDOW, CHANNELS, CHANNELS, IMAGE)
    assert site.label == "conv2d 56x56x64->64 k3 s1 +scale+add+relu"
    assert "rsqrt" in operations(site)
    assert len(site.arguments) == 5
    assert len(site.results) == 1


def test_the_small_computations_of_channels_are_copied_not_replaced() -> None:
    program = load(normalised, IMAGE, WINDOW, CHANNELS, CHANNELS, IMAGE)
    replaced = {program.graph.ops[i].name for i in sites(program)[0].ops}
    assert "stablehlo.rsqrt" not in replaced
    assert "stablehlo.convolution" in replaced


def test_what_stands_before_an_anchor_goes_with_it_when_nothing_else_uses_it() -> None:
    found = sites_of(lambda x, w: jnp.tanh(x) @ w + 1, f32(256, 128), f32(128, 32))
    assert [s.label for s in found] == [
        "dot 256x128x32 tanh+ +bias",
        "dot 256x128x32 +bias",
        "dot 256x128x32",
    ]


def test_transposed_weights_are_read_as_they_lie() -> None:
    """However many products read them: each kernel has other strides, and no copy is made."""

    def twice(x: jax.Array, w: jax.Array, b: jax.Array) -> Any:
        return jax.nn.relu(x @ w.T + b), (x + 1) @ w.T

    found = sites_of(twice, f32(64, 784), f32(512, 784), f32(512))
    assert [s.label for s in found if s.name in ("dot0", "dot1")] == [
        "dot 64x784x512 +bias+relu",
        "dot 64x784x512 bias+",
    ]
    for site in found:
        assert "transpose" in operations(site)
        assert f32(512, 784).shape in [t.shape for t in graph_of(site.kernel).argument_types]


def test_frozen_weights_are_marked_and_turned_by_the_kernel() -> None:
    w = jnp.asarray(np.arange(64 * 32, dtype=np.float32).reshape(32, 64))
    site = first(lambda x: x @ w.T, f32(16, 64))
    assert operations(site) == ["transpose", "dot_general"]
    assert [i for i, _ in site.constants] == [1]
    assert site.ops == {site.root}


def test_reversed_windows_are_read_backwards() -> None:
    """As gradients with respect to the input have them, whatever turns them besides."""

    def gradient(x: jax.Array, w: jax.Array) -> Any:
        return convolve(x, jnp.swapaxes(jnp.flip(w, (0, 1)), 2, 3))

    site = first(gradient, IMAGE, WINDOW)
    assert operations(site) == ["reverse", "transpose", "convolution"]
    assert site.ops == {site.root}
    w = jnp.asarray(np.arange(9 * 16, dtype=np.float32).reshape(3, 3, 4, 4))
    frozen = first(lambda x: gradient(x, w), f32(1, 8, 8, 4))
    assert operations(frozen) == ["reverse", "transpose", "convolution"]
    assert [i for i, _ in frozen.constants] == [1]


def test_a_transpose_of_what_was_computed_goes_along_when_nothing_else_uses_it() -> None:
    def f(x: jax.Array, w: jax.Array) -> Any:
        return jnp.cumsum(x, axis=0).T @ w

    assert [s.label for s in sites_of(f, f32(64, 16), f32(64, 32))] == [
        "dot 16x64x32 transpose+",
        "dot 16x64x32",
    ]
    shared = sites_of(lambda x, w: (f(x, w), jnp.cumsum(x, axis=0).T), f32(64, 16), f32(64, 32))
    assert [s.label for s in shared] == ["dot 16x64x32"]


def test_the_step_of_an_optimizer_goes_with_the_gradient_of_its_weights() -> None:
    def step(w: jax.Array, m: jax.Array, v: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        g = jax.vjp(lambda w: x @ w, w)[1](y)[0]
        m, v = 0.9 * m + g, 0.99 * v + g * g
        return 0.999 * w - 0.1 * m / jnp.sqrt(v), m, v

    matrix = f32(32, 16)
    found = sites_of(step, matrix, matrix, matrix, f32(64, 32), f32(64, 16))
    assert len(found[0].arguments) == 5
    assert len(found[0].results) == 3
    assert [s.label for s in found] == [
        "dot 32x64x16 +scale+add+scale+mul+add+4 more", "dot 32x64x16",
    ]  # fmt: skip
    assert not operations(found[0]).count("transpose")


def test_what_stands_beside_and_is_made_of_two_tensors_stays_outside() -> None:
    def f(x: jax.Array, w: jax.Array, y: jax.Array, z: jax.Array) -> Any:
        return x @ w + 2 * (y + z)

    of_result = f32(64, 16)
    found = first(f, f32(64, 32), f32(32, 16), of_result, of_result)
    assert operations(found) == ["dot_general", "constant", "broadcast_in_dim", "multiply", "add"]


def test_what_stands_before_and_is_used_elsewhere_stays_outside() -> None:
    def f(x: jax.Array, w: jax.Array) -> Any:
        y = jnp.tanh(x)
        return y @ w, y

    assert operations(first(f, f32(256, 128), f32(128, 32))) == ["dot_general"]


def test_an_operation_between_two_anchors_belongs_to_the_producer() -> None:
    found = sites_of(lambda x, v, w: jnp.tanh(x @ v) @ w, f32(64, 32), f32(32, 48), f32(48, 16))
    assert [s.label for s in found] == ["dot 64x32x48 +tanh", "dot 64x32x48", "dot 64x48x16"]


def test_where_two_anchors_meet_the_deeper_one_takes_what_follows() -> None:
    def block(x: jax.Array, v: jax.Array, w: jax.Array, short: jax.Array) -> jax.Array:
        return jax.nn.relu(jax.nn.relu(x @ v) @ w + x @ short)

    found = sites_of(block, f32(64, 32), f32(32, 48), f32(48, 16), f32(32, 16))
    labels = [s.label for s in found if "." not in s.name]
    assert sorted(labels) == ["dot 64x32x16", "dot 64x32x48 +relu", "dot 64x48x16 +add+relu"]


def test_a_value_used_outside_becomes_another_result_behind_the_deeper_one() -> None:
    def f(x: jax.Array, w: jax.Array) -> Any:
        y = x @ w
        return y, jnp.tanh(y)

    site = first(f, f32(64, 32), f32(32, 16))
    ops = graph_of(site.kernel).ops
    assert [op.name for op in ops] == ["stablehlo.dot_general", "stablehlo.tanh"]
    assert graph_of(site.kernel).results == (ops[1].results[0], ops[0].results[0])


def test_a_group_does_not_wait_for_itself_through_other_operations() -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        y = x @ w
        return jnp.exp(y - y.max(-1, keepdims=True))

    assert first(f, f32(64, 32), f32(32, 16)).label == "dot 64x32x16"


def test_normalising_by_statistics_of_the_result_stays_outside() -> None:
    def f(x: jax.Array, w: jax.Array) -> jax.Array:
        y = convolve(x, w) * 2
        return (y - y.mean((0, 1, 2))) * lax.rsqrt(y.var((0, 1, 2)) + 1e-5)

    assert first(f, f32(2, 8, 8, 4), f32(3, 3, 4, 8)).label == "conv2d 2*8x8x4->8 k3 s1 +scale"


def test_pooling_padding_slicing_and_reducing_stay_outside() -> None:
    def f(x: jax.Array, w: jax.Array) -> Any:
        y = lax.pad(convolve(x, w), 0.0, ((0, 0, 0), (1, 1, 0), (1, 1, 0), (0, 0, 0)))
        return lax.reduce_window(y[:, 1:], 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    assert operations(first(f, f32(1, 8, 8, 4), f32(3, 3, 4, 8))) == ["convolution"]


def test_an_operation_that_enlarges_the_result_stays_outside() -> None:
    site = first(lambda x, w, y: x @ w + y, f32(64, 32), f32(32, 16), f32(8, 64, 16))
    assert site.label == "dot 64x32x16"


def test_conversions_at_the_end_go_along() -> None:
    site = first(lambda x, w: (x @ w).astype(jnp.bfloat16), f32(64, 32), f32(32, 16))
    assert site.label == "dot 64x32x16 +bf16"


def test_long_chains_have_short_labels() -> None:
    site = first(lambda x, w: jax.nn.gelu(x @ w), f32(64, 32), f32(32, 16))
    assert site.label.endswith("more")
    assert "tanh" in operations(site)


@pytest.mark.parametrize(
    ("shapes", "label"),
    [
        (((2, 9, 4), (3, 4, 8)), "conv1d 2*9x4->8 k3 s1"),
        (((1, 9, 7, 4), (3, 1, 4, 8)), "conv2d 9x7x4->8 k3x1 s1"),
        (((1, 5, 6, 7, 4), (3, 3, 3, 4, 8)), "conv3d 5x6x7x4->8 k3 s1"),
    ],
)
def test_convolutions_of_any_rank_have_labels(shapes: Any, label: str) -> None:
    assert first(convolve, *(f32(*s) for s in shapes)).label == label


def test_labels_say_batch_groups_dilations_and_element_type() -> None:
    x, w = argument("bf16[8,16,32]"), argument("bf16[8,32,4]")
    assert first(jnp.matmul, x, w).label == "dot 8*16x32x4 bf16"
    depthwise = first(
        lambda x, w: lax.conv_general_dilated(
            x, w, (2, 2), "SAME", (1, 1), (2, 2), feature_group_count=6
        ),
        f32(1, 6, 16, 16),
        f32(6, 1, 3, 3),
    )
    assert depthwise.label == "conv2d 16x16x6->6 k3 s2 d2 g6"


def test_labels_of_empty_products_have_the_extents_that_are_not_empty() -> None:
    assert first(jnp.matmul, f32(16, 0), f32(0, 8)).label == "dot 16x0x8"
    assert first(jnp.matmul, f32(0, 32), f32(32, 8)).label == "dot 0x32x8"


def test_gradients_of_a_convolution_are_sites() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return (convolve(x, w, 2) ** 2).sum()

    found = sites_of(jax.grad(loss, (0, 1)), f32(2, 9, 9, 4), f32(3, 3, 4, 8))
    anchors = [s for s in found if "." not in s.name]
    assert len(anchors) == 3
    assert any(" u2" in s.label for s in anchors)
    assert any(" d2" in s.label for s in anchors)


def test_gradients_of_a_depthwise_convolution_have_groups_of_the_batch() -> None:
    def loss(w: jax.Array, x: jax.Array) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=6)
        return (y * y).sum()

    found = sites_of(jax.grad(loss), f32(6, 1, 3, 3), f32(2, 6, 8, 8))
    assert any(" bg6" in s.label for s in found)


def test_a_dot_in_a_loop_weighs_as_often_as_it_runs() -> None:
    def f(w: jax.Array, x: jax.Array) -> Any:
        return lax.fori_loop(2, 9, lambda _, y: jnp.tanh(y @ w), x)

    site = first(f, f32(16, 16), f32(4, 16))
    assert site.weight == 7
    assert len(site.path) == 2
    assert site.label == "dot 4x16x16 +tanh"


def test_loops_in_loops_multiply() -> None:
    def step(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return lax.fori_loop(0, 3, lambda _, y: y @ w, x), None

    site = first(lambda x, ws: lax.scan(step, x, ws)[0], f32(8, 8), f32(5, 8, 8))
    assert site.weight == 15
    assert len(site.path) == 4


def test_loops_of_unknown_length_weigh_one() -> None:
    def f(w: jax.Array, x: jax.Array) -> Any:
        return lax.while_loop(lambda y: y.sum() < 1, lambda y: y @ w, x)

    assert first(f, f32(16, 16), f32(4, 16)).weight == 1


def test_branches_are_searched() -> None:
    def f(p: jax.Array, x: jax.Array, w: jax.Array) -> Any:
        return lax.cond(p, lambda: x @ w, lambda: x + 1)

    assert len(sites_of(f, True, f32(8, 8), f32(8, 8))) == 1


WEIGHTS = np.random.default_rng(0).normal(size=(128, 64)).astype(np.float32)
BIAS = WEIGHTS[0]


def test_large_constants_are_marked_arguments_and_small_ones_part_of_the_text() -> None:
    program = load(lambda x: x @ WEIGHTS + BIAS, f32(32, 128))
    site = sites(program)[0]
    assert len(site.arguments) == 2
    [(position, value)] = site.constants
    assert isinstance(value, Literal)
    assert np.array_equal(value.array(), WEIGHTS)
    graph = graph_of(site.kernel)
    assert graph.constants == {graph.arguments[position]}
    assert "tensor<64xf32>" in site.kernel.text


def test_a_constant_that_a_loop_carries_along_is_a_constant() -> None:
    def f(x: jax.Array) -> Any:
        return lax.fori_loop(0, 3, lambda _, y: (y @ WEIGHTS) @ WEIGHTS.T, x)

    found = sites_of(f, f32(32, 128))
    assert all(any(isinstance(v, Literal) for _, v in s.constants) for s in found)


def test_an_argument_marked_as_constant_stays_one() -> None:
    text = """func.func @main(%x: tensor<4x8xf32>, %w: tensor<8x2xf32> {hlotune.constant})
        -> tensor<4x2xf32> {
      %y = stablehlo.dot %x, %w : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
      return %y : tensor<4x2xf32> }"""
    module = mlir.parse(text)
    graph = mlir.graph(module)
    [site] = sites(Program("f", "f", module.bytecode(), graph))
    assert site.constants == ((1, graph.arguments[1]),)


def test_kernels_that_differ_in_place_alone_are_one_kernel() -> None:
    def f(x: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ v) @ w)

    found = [s for s in sites_of(f, f32(8, 8), f32(8, 8), f32(8, 8)) if "." not in s.name]
    assert len(found) == 2
    assert len({s.kernel for s in found}) == 1
