"""Whole numbers with scales: quantizing, and products and convolutions of quantized values."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_dtypes import iinfo
from onnx import helper

from hlotune.hlo.frontends.onnx.convolutions import convolved
from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of, is_known
from hlotune.hlo.frontends.onnx.types import converted


def _spread(node: Node, values: Value, x: Value) -> Value:
    """Scales or zero points, broadcast to the shape of what they belong to.

    There is one of all, one for each place of an axis, or one for a block of places of an axis.
    """
    values = jnp.asarray(values)
    if values.size == 1 and values.ndim < 2:
        return values.reshape(())
    axis = axis_of(node.get("axis", 1), x.ndim)
    if values.ndim == 1:
        return values.reshape([-1 if n == axis else 1 for n in range(x.ndim)])
    block = node.get("block_size", 0) or -(-x.shape[axis] // values.shape[axis])
    repeated = jnp.repeat(values, block, axis=axis)
    return jax.lax.slice_in_dim(repeated, 0, x.shape[axis], axis=axis)


def _is_float(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, jnp.floating))


def _limits(dtype: Any) -> tuple[int, int]:
    facts = iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(facts.min), int(facts.max)


def rounded(x: jax.Array, zero: Any, dtype: Any) -> jax.Array:
    """Scaled values as whole numbers of a type; those beyond its range become its limits."""
    whole = jnp.round(x)
    if zero is not None:
        whole = whole + zero.astype(np.int32).astype(x.dtype)
    return jnp.clip(whole, *_limits(dtype)).astype(dtype)


def _quantize(node: Node, x: Value, scale: Value, zero: Value = None) -> Value:
    x = jnp.asarray(x)
    kind = node.get("output_dtype", 0)
    stated = helper.tensor_dtype_to_np_dtype(kind) if kind else np.dtype(np.uint8)
    dtype = stated if zero is None else zero.dtype
    inside = node.get("precision", 0)
    working = helper.tensor_dtype_to_np_dtype(inside) if inside else scale.dtype
    scaled = x.astype(working) / _spread(node, scale, x).astype(working)
    if _is_float(dtype):
        return converted(node, scaled, dtype)
    return rounded(scaled, None if zero is None else _spread(node, zero, x), dtype)


def _dequantize(node: Node, x: Value, scale: Value, zero: Value = None) -> Value:
    x = jnp.asarray(x)
    kind = node.get("output_dtype", 0)
    dtype = helper.tensor_dtype_to_np_dtype(kind) if kind else scale.dtype
    if not _is_float(x.dtype):
        x = x.astype(np.int32)
        if zero is not None:
            x = x - _spread(node, zero, x).astype(np.int32)
    return (x.astype(scale.dtype) * _spread(node, scale, x)).astype(dtype)


def _from_zero(x: Value, zero: Value, axis: int | None = None) -> Value:
    """The values as i32 without their zero point, which may differ along an axis."""
    x = jnp.asarray(x)
    if zero is None or (is_known(zero) and not np.asarray(zero, np.int32).any()):
        return x.astype(np.int32)
    zero = jnp.asarray(zero).astype(np.int32)
    if zero.size == 1:
        zero = zero.reshape(())
    elif zero.ndim == 1 and axis is not None:
        zero = zero.reshape([-1 if n == axis % x.ndim else 1 for n in range(x.ndim)])
    return x.astype(np.int32) - zero


def _matmul_integer(
    node: Node, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None
) -> Value:
    return jnp.matmul(_from_zero(a, a_zero, -2), _from_zero(b, b_zero, -1))


def _conv_integer(
    node: Node, x: Value, weights: Value, x_zero: Value = None, weights_zero: Value = None
) -> Value:
    return convolved(node, _from_zero(x, x_zero), _from_zero(weights, weights_zero, 0))


def _qlinear_matmul(
    node: Node, a: Value, a_scale: Value, a_zero: Value, b: Value, b_scale: Value, b_zero: Value,
    scale: Value, zero: Value,
) -> Value:  # fmt: skip
    if _is_float(a.dtype):
        raise node.refusal("of f8 values", "dequantize them before the product")
    sums = jnp.matmul(_from_zero(a, a_zero, -2), _from_zero(b, b_zero, -1))
    rows, columns = (jnp.asarray(s) for s in (a_scale, b_scale))
    rows = rows[..., None] if rows.ndim == 1 and rows.size > 1 else rows
    factor = (rows * columns / jnp.asarray(scale)).astype(np.float32)
    return rounded(sums.astype(np.float32) * factor, jnp.asarray(zero), zero.dtype)


def _qlinear_conv(
    node: Node, x: Value, x_scale: Value, x_zero: Value, weights: Value, weights_scale: Value,
    weights_zero: Value, scale: Value, zero: Value, bias: Value = None,
) -> Value:  # fmt: skip
    sums = convolved(node, _from_zero(x, x_zero), _from_zero(weights, weights_zero, 0))
    view = (-1, *[1] * (sums.ndim - 2))
    if bias is not None:
        sums = sums + jnp.asarray(bias).reshape(view)
    factor = jnp.asarray(x_scale) * jnp.asarray(weights_scale) / jnp.asarray(scale)
    factor = factor.reshape(view if factor.size > 1 else ())
    return rounded(sums.astype(np.float32) * factor, jnp.asarray(zero).reshape(()), zero.dtype)


ROWS = {
    "ConvInteger": Operator(_conv_integer),
    "DequantizeLinear": Operator(_dequantize),
    "MatMulInteger": Operator(_matmul_integer),
    "QLinearConv": Operator(_qlinear_conv),
    "QLinearMatMul": Operator(_qlinear_matmul),
    "QuantizeLinear": Operator(_quantize),
}
