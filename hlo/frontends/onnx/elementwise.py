"""Elementwise operators: arithmetic, comparisons, logic, bits, and mathematical functions."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of, cast, is_known


def _one(function: Callable[[Any], Any]) -> Operator:
    return Operator(lambda node, x: function(jnp.asarray(x)))


def _two(function: Callable[[Any, Any], Any]) -> Operator:
    return Operator(lambda node, a, b: function(jnp.asarray(a), _along_axis(node, a, b)))


def _along_axis(node: Node, a: Value, b: Value) -> Value:
    """The second operand.  Until opset 7 it could lie along inner axes of the first."""
    b = jnp.asarray(b)
    if node.opset >= 7 or "axis" not in node.attributes:
        return b
    axis = axis_of(node.get("axis"), a.ndim)
    return b.reshape(*b.shape, *[1] * (a.ndim - axis - b.ndim))


def _several(function: Callable[[Any, Any], Any]) -> Operator:
    return Operator(lambda node, *x: functools.reduce(function, map(jnp.asarray, x)))


def _mean(node: Node, *x: Value) -> Value:
    return functools.reduce(operator.add, map(jnp.asarray, x)) / len(x)


def _divide(a: Any, b: Any) -> Any:
    """Quotients of whole numbers are cut off, not rounded down."""
    if jnp.issubdtype(a.dtype, jnp.integer):
        return lax.div(*jnp.broadcast_arrays(a, b))
    return a / b


def _remainder(node: Node, a: Value, b: Value) -> Value:
    if node.get("fmod", 0):
        return lax.rem(*jnp.broadcast_arrays(jnp.asarray(a), jnp.asarray(b)))
    return jnp.mod(jnp.asarray(a), jnp.asarray(b))


def _power(node: Node, base: Value, exponent: Value) -> Value:
    """A power in the type of the base.  Squares and roots become products and roots."""
    base = jnp.asarray(base)
    is_float = jnp.issubdtype(base.dtype, jnp.floating)
    if is_float and is_known(exponent) and exponent.size == 1 and exponent.ndim <= base.ndim:
        known = float(exponent.reshape(()))
        if known in (1.0, 2.0, 3.0):
            return lax.integer_pow(base, int(known))
        if known == 0.5:
            return jnp.sqrt(base)
    exponent = jnp.asarray(exponent)
    if is_float:
        exponent = exponent.astype(base.dtype)
    return jnp.power(base, exponent).astype(base.dtype)


def _shift(node: Node, x: Value, by: Value) -> Value:
    left = node.require("direction") == "LEFT"
    x, by = jnp.broadcast_arrays(jnp.asarray(x), jnp.asarray(by))
    return x << by if left else x >> by


def _is_infinite(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    if node.get("detect_negative", 1) and node.get("detect_positive", 1):
        return jnp.isinf(x)
    if node.get("detect_negative", 1):
        return jnp.isneginf(x)
    return jnp.isposinf(x) if node.get("detect_positive", 1) else jnp.zeros(x.shape, bool)


def _where(node: Node, condition: Value, a: Value, b: Value) -> Value:
    return jnp.where(jnp.asarray(condition), jnp.asarray(a), jnp.asarray(b))


def _clip(node: Node, x: Value, least: Value = None, most: Value = None) -> Value:
    """Limits were attributes until opset 11; where they cross, the upper one holds."""
    x = jnp.asarray(x)
    least = node.get("min") if least is None else least
    most = node.get("max") if most is None else most
    x = x if least is None else jnp.maximum(x, cast(least, x.dtype))
    return x if most is None else jnp.minimum(x, cast(most, x.dtype))


def _sign(x: jax.Array) -> jax.Array:
    return (x > 0).astype(x.dtype) if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else jnp.sign(x)


def _absolute(x: jax.Array) -> jax.Array:
    return jnp.abs(x)


def _erf(x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.erf(x.astype(np.float32)).astype(x.dtype)
    return lax.erf(x)


ROWS = {
    "Abs": _one(_absolute),
    "Acos": _one(jnp.arccos),
    "Acosh": _one(jnp.arccosh),
    "Add": _two(operator.add),
    "And": _two(operator.and_),
    "Asin": _one(jnp.arcsin),
    "Asinh": _one(jnp.arcsinh),
    "Atan": _one(jnp.arctan),
    "Atanh": _one(jnp.arctanh),
    "BitShift": Operator(_shift),
    "BitwiseAnd": _two(operator.and_),
    "BitwiseNot": _one(operator.invert),
    "BitwiseOr": _two(operator.or_),
    "BitwiseXor": _two(operator.xor),
    "Ceil": _one(jnp.ceil),
    "Clip": Operator(_clip),
    "Cos": _one(jnp.cos),
    "Cosh": _one(jnp.cosh),
    "Div": _two(_divide),
    "Equal": _two(operator.eq),
    "Erf": _one(_erf),
    "Exp": _one(jnp.exp),
    "Floor": _one(jnp.floor),
    "Greater": _two(operator.gt),
    "GreaterOrEqual": _two(operator.ge),
    "IsInf": Operator(_is_infinite),
    "IsNaN": _one(jnp.isnan),
    "Less": _two(operator.lt),
    "LessOrEqual": _two(operator.le),
    "Log": _one(jnp.log),
    "Max": _several(jnp.maximum),
    "Mean": Operator(_mean),
    "Min": _several(jnp.minimum),
    "Mod": Operator(_remainder),
    "Mul": _two(operator.mul),
    "Neg": _one(operator.neg),
    "Not": _one(jnp.logical_not),
    "Or": _two(operator.or_),
    "Pow": Operator(_power),
    "Reciprocal": _one(lambda x: 1 / x),
    "Round": _one(jnp.round),
    "Sign": _one(_sign),
    "Sin": _one(jnp.sin),
    "Sinh": _one(jnp.sinh),
    "Sqrt": _one(jnp.sqrt),
    "Sub": _two(operator.sub),
    "Sum": _several(operator.add),
    "Tan": _one(jnp.tan),
    "Tanh": _one(jnp.tanh),
    "Where": Operator(_where),
    "Xor": _two(operator.xor),
}
