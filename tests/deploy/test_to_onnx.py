"""Programs as ONNX models: ONNX's reference implementation gives the same results as XLA."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from jax import lax
from onnx.reference import ReferenceEvaluator

from hlotune.deploy.inputs import example_inputs
from hlotune.deploy.to_onnx import model as written
from hlotune.deploy.to_onnx.model import input_names, model_of, save
from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import Program, load
from hlotune.schedules.errors import ProgramError
from tests.support.tree import ROOT

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def whole(high: int, *shape: int, dtype: Any = np.int32) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def require_right(program: Program, rtol: float = 2e-5, atol: float = 2e-6) -> onnx.ModelProto:
    model = model_of(program)
    onnx.checker.check_model(model, full_check=True)
    values = example_inputs(program).values
    given = dict(zip(input_names(program), map(np.asarray, values), strict=True))
    got = ReferenceEvaluator(model).run(None, given)
    arguments, named = values, {}
    if program.in_tree is not None:
        arguments, named = jax.tree.unflatten(program.in_tree, values)
    wanted = jax.tree.leaves(jitted(program)(*arguments, **named))
    for k, (one, other) in enumerate(zip(got, wanted, strict=True)):
        assert one.dtype == other.dtype and one.shape == other.shape, k
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=f"result {k}")
    return model


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def functions_of_floats(x: jax.Array) -> list[jax.Array]:
    near = x * 1e-3
    return [
        *(f(x) for f in (jnp.abs, jnp.exp, jnp.sin, jnp.tanh, jnp.floor, jnp.ceil, jnp.round)),
        *(f(jnp.abs(x)) for f in (jnp.sqrt, jnp.log, jnp.cbrt, lax.rsqrt, jnp.arccosh)),
        *(f(near) for f in (jnp.expm1, jnp.log1p, jax.nn.sigmoid, jnp.arcsin, jnp.arctanh)),
        *(f(x) for f in (jnp.expm1, jnp.sign, jnp.isfinite, lax.erf, jax.nn.gelu, jnp.square)),
        lax.round(x * 2, lax.RoundingMethod.AWAY_FROM_ZERO),
        lax.reduce_precision(x, 5, 10),
        jnp.clip(x, -0.5, 0.5),
        jnp.where(x > 0, x, 0.1 * x),
        x % 0.7,
        jnp.arctan2(x, x[:, ::-1]),
        jnp.arctan2(0 * x, x),
        jnp.maximum(x, x[:, :1]) / (1 + x[0] ** 2),
        lax.optimization_barrier(x),  # type: ignore[no-untyped-call]
    ]


def arithmetic_of_integers(x: jax.Array, y: jax.Array, bits: jax.Array) -> list[jax.Array]:
    small, truths = x.astype(jnp.int8), x > y
    return [
        x * y - x // (y + 1),
        x % (y + 3),
        x & y | 4 ^ y,
        ~x,
        small * small + jnp.int8(100),
        jnp.where(truths, small, -small),
        (bits << 3) ^ (bits >> 5),
        lax.shift_left(bits, bits % 40),
        bits * bits,
        jnp.minimum(bits, jnp.uint32(9)),
        truths & (x == y) | ~truths,
        truths ^ (x != y),
        jnp.where(truths, truths, x > 3),
        x.astype(jnp.float32),
        small.astype(bool),
    ]


def movements(x: jax.Array, at: jax.Array) -> list[jax.Array]:
    """Movements of elements of x, of shape (4, 6, 5), with three places `at`."""
    return [
        x.transpose(2, 0, 1).reshape(5, 24),
        x[1:3, ::2, -2:],
        x[:, ::-1],
        jnp.concatenate([x, x[:, :2]], 1),
        jnp.pad(x, ((1, 0), (0, 2), (0, 0)), constant_values=2),
        lax.pad(x, jnp.float32(1), ((-1, 0, 0), (0, -2, 0), (1, 2, 3))),
        jnp.broadcast_to(x[:, :, :1], x.shape),
        jnp.arange(24).reshape(4, 6) * at[0],
        jnp.take(x, at, axis=1, mode="clip"),
        x[at, at],
        jax.vmap(lambda row, k: row[k])(x[:3], at),
        lax.dynamic_slice(x, (at[0], at[1], 0), (2, 3, 5)),
        lax.dynamic_update_slice(x, x[:2, :3, :2], (at[0] + 9, at[1], 1)),
        x.at[at, 1].add(x[:3, 0]),
        x.at[:, at].set(x[:, 3:]),
        x.at[at - 2].max(2.0, mode="drop"),
        jnp.sort(x, axis=1),
        -jnp.sort(-x[0, 0]),
        jnp.argsort(x, axis=-1),
        *lax.top_k(x, 2),
    ]


def products(x: jax.Array, y: jax.Array, bytes_: jax.Array) -> list[jax.Array]:
    """Products of x, of shape (2, 3, 4), and y, of shape (4, 5)."""
    return [
        x @ y,
        jnp.einsum("abc,abd->acd", x, x),
        jnp.einsum("abc,abc->", x, x),
        jnp.einsum("abc,dbc->ad", x, x),
        jnp.outer(y[0], y[1]),
        lax.dot(bytes_, bytes_.T, preferred_element_type=jnp.int32),
        (10 * y).astype(jnp.int32) @ (10 * y).astype(jnp.int32).T,
        lax.dot(y.astype(jnp.float16), y.T.astype(jnp.float16), preferred_element_type=jnp.float32),
    ]


def reductions(x: jax.Array) -> list[jax.Array]:
    """Reductions of images x, of shape (2, 6, 8, 3), with channels last."""
    pool = (1, 2, 3, 1)
    whole = (x * 10).astype(jnp.int32)
    return [
        x.sum((1, 2)),
        x.max(-1),
        x.min(),
        jnp.prod(x, 3),
        (x > 0).all(1),
        (x > 0).any((0, 2)),
        whole.sum(0),
        whole.astype(jnp.int8).max(2),
        jax.nn.softmax(x),
        x.argmax(2),
        x.argmin(-1),
        lax.reduce(x, jnp.float32(0.5), lax.max, (1,)),
        jnp.cumsum(x, 1),
        lax.cumsum(whole, 2, reverse=True),
        lax.reduce_window(x, -jnp.inf, lax.max, pool, (1, 2, 2, 1), "SAME"),
        lax.reduce_window(x, jnp.inf, lax.min, pool, (1, 1, 1, 1), "VALID"),
        lax.reduce_window(x, 0.0, lax.max, pool, pool, "VALID"),
        lax.reduce_window(x, 0.0, lax.add, pool, (1, 2, 2, 1), "SAME"),
        lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 1, 1), ((0, 0),) * 3 + ((3, 0),)),
        jax.grad(lambda v: (max_pool(v) ** 2).sum())(x),
    ]


def max_pool(x: jax.Array) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")


def loops(x: jax.Array, k: jax.Array) -> list[jax.Array]:
    half = x * 0.5

    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jnp.tanh(carry + row * half[0])
        return new, new.sum()

    branches: list[Callable[[jax.Array], jax.Array]] = [jnp.sin, lambda v: v + half, lambda v: -v]
    return [
        *lax.scan(step, x[0], x),
        lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 2 + 1, jnp.abs(x)),
        lax.cond(k > 1, jnp.exp, lambda v: v - half, x),
        lax.switch(k, branches, x),
    ]


FAMILIES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (functions_of_floats, (normal(3, 4),)),
    (arithmetic_of_integers, (whole(50, 8) - 25, whole(50, 8), whole(2**31, 8, dtype=np.uint32))),
    (movements, (normal(4, 6, 5), np.array([2, 0, 3], np.int32))),
    (products, (normal(2, 3, 4), normal(4, 5), whole(99, 3, 4, dtype=np.int8))),
    (reductions, (normal(2, 6, 8, 3),)),
    (loops, (normal(3, 4), np.array(2, np.int32))),
]


@pytest.mark.parametrize("function, arguments", FAMILIES)
def test_every_family_of_operations_gives_what_xla_gives(
    function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    require_right(load(function, *arguments))


def edges(x: jax.Array, wide: jax.Array, bits: jax.Array, by: jax.Array) -> list[jax.Array]:
    """Results of arrays of shape (3, 4): floats, large floats, signed numbers and shifts."""
    amounts = [((-5, 4), (0, 0)), ((4, -5), (2, -6)), ((-3, 0), (1, -2)), ((-1, 2), (-4, 1))]
    return [
        *(lax.pad(x, jnp.float32(9), [(*pair, 0) for pair in pairs]) for pairs in amounts),
        *(
            wide.astype(kind)
            for kind in (jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.int32, jnp.uint32)
        ),
        wide.astype(jnp.bfloat16).astype(jnp.int32),
        *(
            lax.shift_right_arithmetic(bits.astype(kind), by.astype(kind))
            for kind in (jnp.int8, jnp.uint8, jnp.int32, jnp.uint32)
        ),
    ]


def narrow_floats(x: jax.Array) -> list[jax.Array]:
    """Operators that ONNX has of f32 alone among their number."""
    functions = (jnp.isfinite, jnp.sin, jnp.round, jnp.arctan, jnp.log1p, jnp.exp)
    each = [x.astype(kind) for kind in (jnp.bfloat16, jnp.float16)]
    images = [y.reshape(1, 1, 4, 5) for y in each]
    found = [f(jnp.abs(y)) for y in each for f in functions]
    found += [lax.conv(y, y[..., :2, :2], (1, 1), "VALID") for y in images]
    return [f.astype(jnp.float32) for f in found]


def test_edges_of_pads_shifts_and_conversions_are_as_of_xla() -> None:
    bits, by = whole(256, 9) - 128, np.array([0, 1, 3, 7, 8, 31, 32, 40, 2], np.int32)
    require_right(load(edges, normal(3, 4), np.array(WIDE, np.float32), bits, by))


WIDE = [-1.7, -300, 300, 70000, 2**31, -(2**31), 2**32, 2**63, 1e20, -1e20, np.inf, -np.inf, np.nan]


def test_conversions_to_64_bits_saturate_as_those_of_xla() -> None:
    with jax.enable_x64(True):
        for kind in (np.float32, np.float64):
            x = np.array([*WIDE, 2**31 - 1], kind)
            require_right(load(lambda x: [x.astype(jnp.int64), x.astype(jnp.int32)], x))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_complement_of_erf_is_right_far_out(kind: Any) -> None:
    x = np.array([-40, -9, -3, -1, 0, 1, 2, 4, 7.9, 8.1, 9, 40], kind)
    with jax.enable_x64(True):
        require_right(
            load(lambda x: lax.erfc(x), x), rtol=1e-5 if kind == np.float32 else 1e-13, atol=0
        )


def test_narrow_floats_are_of_operators_that_take_them() -> None:
    require_right(load(narrow_floats, normal(4, 5)), rtol=2e-2, atol=1e-2)


CONVOLUTIONS: list[dict[str, Any]] = [
    {"padding": "SAME"},
    {"window_strides": (2, 1), "padding": ((1, 2), (0, 1)), "rhs_dilation": (1, 2)},
    {"padding": ((2, 1), (1, 0)), "lhs_dilation": (2, 3)},
    {"padding": ((9, 9), (0, 0)), "lhs_dilation": (2, 1)},  # wider than ConvTranspose can cut
    {"padding": ((-1, 0), (0, -2))},
    {"padding": "VALID", "feature_group_count": 2},
    {"padding": "VALID", "batch_group_count": 2},
]


def test_convolutions_are_of_channels_first_whatever_the_layout() -> None:
    def function(x: jax.Array, weights: jax.Array) -> list[jax.Array]:
        found = []
        for options in CONVOLUTIONS:
            inputs = 4 // options.get("feature_group_count", 1)
            options = {"window_strides": (1, 1), **options}
            kernel = weights[:, :, :inputs]
            found.append(
                lax.conv_general_dilated(
                    x, kernel, **options, dimension_numbers=("NHWC", "HWIO", "NHWC")
                )
            )
        line = lax.conv_general_dilated(
            x[:, 0], weights[0], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NCW")
        )
        return [*found, line]

    model = require_right(load(function, normal(2, 7, 8, 4), normal(3, 2, 4, 6)), atol=2e-5)
    assert operators(model).count("Conv") == 7
    assert operators(model).count("ConvTranspose") == 1


def test_weights_are_transposed_as_they_are_written_and_biases_broadcast_by_themselves() -> None:
    weights, bias = jnp.asarray(normal(3, 3, 2, 5)), jnp.asarray(normal(5))

    def function(x: jax.Array) -> jax.Array:
        y = lax.conv_general_dilated(
            x, weights, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.nn.relu(y + bias)

    model = require_right(load(function, normal(1, 4, 4, 2)))
    assert operators(model) == ["Transpose", "Conv", "Transpose", "Add", "Max", "Identity"]
    assert (5, 2, 3, 3) in {tuple(x.dims) for x in model.graph.initializer}


def test_inputs_have_the_names_of_the_arguments_where_each_has_one() -> None:
    named = model_of(load(lambda x, y: x + y, normal(3), normal(3)))
    assert [x.name for x in named.graph.input] == ["x", "y"]
    nested = model_of(load(lambda pair, z: pair[0] * z, (normal(3), normal(3)), normal(3)))
    assert [x.name for x in nested.graph.input] == ["argument_0", "argument_1", "argument_2"]


def test_a_file_of_stablehlo_and_a_model_of_onnx_are_written_too(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir"
    path.write_text(
        "func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {\n"
        "  %y = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>\n"
        "  return %y : tensor<3x2xf32>\n}\n"
    )
    save(require_right(load(path)), tmp_path / "model.onnx")
    require_right(load(tmp_path / "model.onnx"))


def test_large_constants_lie_in_a_file_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "MOST_BYTES_IN_ONE_FILE", 1000)
    weights = jnp.asarray(normal(40, 40))
    program = load(lambda x: x @ weights, normal(2, 40))
    for _ in range(2):  # the second time over the first
        save(model_of(program), tmp_path / "model.onnx")
        assert (tmp_path / "model.onnx.data").stat().st_size == 6400
    (got,) = ReferenceEvaluator(str(tmp_path / "model.onnx")).run(None, {"x": normal(2, 40)})
    assert got.shape == (2, 40)


def test_an_example_gives_what_xla_gives() -> None:
    require_right(load(f"{ROOT}/examples/gpt2.py:small_decode"), rtol=1e-3, atol=1e-4)


REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (jnp.fft.rfft, (normal(8),), "got stablehlo.complex, stablehlo.fft, |got stablehlo.fft; leave"),
    (lambda x: x + 1, (np.ones(3, np.complex64),), r"element types .* got complex<f32>"),
    (lambda x: x // 3, (whole(9, 3, dtype=np.uint64),), "stablehlo.divide .* got ui64"),
    (lambda x: lax.cumprod(x), (normal(6),), "reduce_window .* got multiply"),
]


@pytest.mark.parametrize("function, arguments, message", REFUSED)
def test_what_onnx_does_not_have_is_named(
    function: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    with jax.enable_x64(True), pytest.raises(ProgramError, match=message):
        model_of(load(function, *arguments))
