"""Conversions between element types."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from ml_dtypes import finfo
from onnx import helper

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value

_PARTS_OF_BYTES = ("int4", "uint4", "int2", "uint2")
_FINITE = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e5m2")


def converted(node: Node, x: jax.Array, dtype: Any) -> jax.Array:
    """A value in another type.  Numbers beyond the range of an f8 type become its largest,
    unless the attribute `saturate` is 0."""
    dtype = np.dtype(dtype)
    if dtype.kind in "OSU":
        raise node.refusal("to texts", "hlotune computes with numbers alone")
    if dtype.name == "float8_e8m0fnu" and x.dtype != dtype:
        raise node.refusal("to float8_e8m0fnu", "hlotune rounds to no powers of two: leave it out")
    if dtype.name in _FINITE and jnp.issubdtype(x.dtype, jnp.floating):
        if node.get("saturate", 1):
            most = float(finfo(dtype).max)  # type: ignore[no-untyped-call]
            x = jnp.clip(x, -most, most) if x.dtype.itemsize > 1 else x
        elif dtype.name == "float8_e4m3fnuz" or dtype.name == "float8_e5m2fnuz":
            x = jnp.where(jnp.isinf(x), jnp.nan, x)
    if dtype.name in _PARTS_OF_BYTES and jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(np.int32)  # whole numbers keep their last bits
    return x.astype(dtype)


def _cast(node: Node, x: Value) -> Value:
    return converted(node, jnp.asarray(x), helper.tensor_dtype_to_np_dtype(node.require("to")))


def _cast_like(node: Node, x: Value, like: Value) -> Value:
    return converted(node, jnp.asarray(x), like.dtype)


def _bits(node: Node, x: Value) -> Value:
    x, dtype = jnp.asarray(x), helper.tensor_dtype_to_np_dtype(node.require("to"))
    if x.dtype == bool:
        x = x.astype(np.uint8)
    if np.dtype(dtype).kind == "b":
        return lax.bitcast_convert_type(x, np.uint8) != 0
    return lax.bitcast_convert_type(x, dtype)


ROWS = {
    "BitCast": Operator(_bits),
    "Cast": Operator(_cast),
    "CastLike": Operator(_cast_like),
}
