"""Programs with channels first have them last inside, and give the same results."""

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load
from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.channels_last import with_channels_last

RNG = np.random.default_rng(0)
FIRST = ("NCHW", "OIHW", "NCHW")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


W = {
    "stem": normal(8, 3, 3, 3), "same": normal(8, 8, 3, 3), "depth": normal(8, 1, 3, 3),
    "one": normal(16, 8, 1, 1), "squeeze": normal(8, 8, 1, 1), "head": normal(16, 10),
    "scale": normal(8), "shift": normal(8), "slope": normal(8, 1, 1),
    "ones": np.ones((8, 8, 3, 3), np.float32),
}  # fmt: skip


def conv(x: Any, name: str, stride: int = 1, groups: int = 1) -> Any:
    return lax.conv_general_dilated(
        x, jnp.asarray(W[name]), (stride, stride), "SAME",
        dimension_numbers=FIRST, feature_group_count=groups,
    )  # fmt: skip


def max_pool(x: Any) -> Any:
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 0), (0, 1))
    )


def network(x: Any) -> Any:
    """Applies operations of all kinds to images, from (2, 3, 16, 12) on."""
    x = conv(x, "stem", 2)
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    x = (x - mean) * lax.rsqrt(variance + 1e-5) * W["scale"][:, None, None]
    x = jax.nn.relu(x + W["shift"][None, :, None, None])
    y = jnp.where(x > 0.5, x, W["slope"] * x)
    y = conv(jnp.clip(conv(y, "same"), -6, 6), "depth", 1, 8)
    x = x + y
    weights = jax.nn.sigmoid(conv(x.mean((2, 3), keepdims=True), "squeeze"))
    x = max_pool(jnp.concatenate([x * weights, y[:, :, ::-1]], 1)[:, 4:12])
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 1), (2, 1)), constant_values=-1)[:, :, 1:, :-1]
    x = conv(x, "one")
    return x.mean((2, 3)) @ W["head"], x.argmax(1), x.reshape(2, -1)[:, :7]


def turned(function: Any, *arguments: Any) -> tuple[Graph, Any]:
    """The program with channels last, and its results."""
    program = load(function, *arguments)
    module = with_channels_last(mlir.parse(program.bytecode))
    return mlir.graph(module), jitted(program, module.bytecode())(*arguments)


def names(graph: Graph) -> Counter[str]:
    return Counter(op.name.partition(".")[2] for op in graph.ops)


def convolutions(graph: Graph) -> list[Op]:
    return [op for op in graph.ops if op.name == "stablehlo.convolution"]


def test_a_network_has_channels_last_inside_and_gives_the_same() -> None:
    x = normal(2, 3, 16, 12)
    graph, got = turned(network, x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
        got, jax.jit(network)(x),
    )  # fmt: skip
    # the image as it comes is read in its own layout, the part that is a result is turned back
    assert names(graph)["transpose"] == 1
    assert [graph.types[op.results[0]].shape[-1] for op in convolutions(graph)] == [8, 8, 8, 8, 16]
    weights = [graph.types[op.operands[1]].shape for op in convolutions(graph)]
    assert weights == [(3, 3, 3, 8), (3, 3, 8, 8), (3, 3, 1, 8), (1, 1, 8, 8), (1, 1, 8, 16)]


def test_transposes_around_convolutions_go() -> None:
    """As in a model that was exported from one with channels last."""

    def exported(x: Any) -> Any:
        for name in ("squeeze", "same", "same"):
            y = conv(x.transpose(0, 3, 1, 2), name).transpose(0, 2, 3, 1)
            x = jax.nn.relu(y + W["scale"])
            x = max_pool(x.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
        return x

    x = normal(2, 16, 12, 8)
    graph, got = turned(exported, x)
    np.testing.assert_allclose(got, jax.jit(exported)(x), rtol=1e-4, atol=1e-4)
    assert names(graph)["transpose"] == 0


def with_an_operation_without_a_rule(x: Any) -> Any:
    for _ in range(3):
        x = jnp.sort(conv(x, "same"), 2)
    return x


def in_a_branch(x: Any) -> Any:
    x = conv(x, "same")
    return lax.cond(x.sum() > 0, lambda: conv(x, "same").sum((2, 3)), lambda: x.sum((2, 3)))


def in_a_loop(x: Any) -> Any:
    def step(x: Any, _: Any) -> Any:
        return jax.nn.relu(conv(conv(conv(x, "same"), "same"), "same")), x.sum(1)

    return lax.scan(step, x, None, length=2)


def with_bits_of_another_width(x: Any) -> Any:
    x = conv(jnp.round(x), "ones")  # whole numbers: their bits are exact
    return lax.bitcast_convert_type(conv(x, "ones"), jnp.uint8).astype(jnp.float32).sum((2, 3))


def without_constants(x: Any) -> Any:
    weights = x[:, :, :1, :1]
    return lax.conv_general_dilated(x, weights, (1, 1), "SAME", dimension_numbers=FIRST).sum((2, 3))


@pytest.mark.parametrize(
    "function",
    [
        with_an_operation_without_a_rule,
        in_a_branch,
        in_a_loop,
        without_constants,
        with_bits_of_another_width,
    ],
)
def test_other_programs_give_the_same(function: Any) -> None:
    x = normal(8, 8, 6, 5)
    _, got = turned(function, x)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3),
        got, jax.jit(function)(x),
    )  # fmt: skip


def test_a_program_that_would_be_transposed_too_often_is_left_alone() -> None:
    program = load(with_an_operation_without_a_rule, normal(8, 8, 6, 5))
    same = with_channels_last(mlir.parse(program.bytecode))
    assert mlir.graph(same) == program.graph


def test_constants_along_channels_are_written_as_jax_writes_them_with_channels_last() -> None:
    shift, scale = (W[name].reshape(1, 8, 1, 1) for name in ("shift", "scale"))

    def function(x: Any) -> Any:
        y = conv(jax.nn.relu(conv(x, "same") + shift), "same")
        return jnp.maximum(y + scale, np.full((1, 1, 1, 1), 0.5, np.float32))

    image = normal(1, 8, 6, 6)
    graph, got = turned(function, image)
    np.testing.assert_allclose(got, function(image), rtol=1e-4, atol=1e-4)
    constants = [graph.types[op.results[0]] for op in graph.ops if op.name == "stablehlo.constant"]
    assert {k.shape for k in constants if k.shape.count(1) != 1} == {(8,), (), (3, 3, 8, 8)}
    broadcasts = [op for op in graph.ops if op.name == "stablehlo.broadcast_in_dim"]
    pairs = [
        (graph.types[b.operands[0]].shape, graph.types[b.results[0]].shape) for b in broadcasts
    ]
    assert pairs.count(((8,), (1, 1, 1, 8))) == pairs.count(((), (1, 6, 6, 8))) == 2
