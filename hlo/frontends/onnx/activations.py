"""Activations: elementwise functions with parameters, and the softmax family."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of


def _relu(node: Node, x: Value) -> Value:
    return jnp.maximum(jnp.asarray(x), 0)


def _leaky_relu(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.where(x < 0, x * node.get("alpha", 0.01), x)


def _prelu(node: Node, x: Value, slope: Value) -> Value:
    x, slope = jnp.asarray(x), jnp.asarray(slope)
    if node.opset < 7 and slope.size > 1:  # one for each channel
        slope = slope.reshape(-1, *[1] * (x.ndim - 2))
    return jnp.where(x < 0, x * slope, x)


def _elu(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.where(x < 0, node.get("alpha", 1.0) * jnp.expm1(x), x)


def _celu(node: Node, x: Value) -> Value:
    x, alpha = jnp.asarray(x), node.get("alpha", 1.0)
    return jnp.maximum(x, 0) + jnp.minimum(alpha * jnp.expm1(x / alpha), 0)


def _selu(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    alpha = node.get("alpha", 1.67326319217681884765625)
    gamma = node.get("gamma", 1.05070102214813232421875)
    return gamma * jnp.where(x > 0, x, alpha * jnp.expm1(x))


def _thresholded_relu(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.where(x > node.get("alpha", 1.0), x, 0)


def _sigmoid(node: Node, x: Value) -> Value:
    return jax.nn.sigmoid(jnp.asarray(x))


def _hard_sigmoid(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.clip(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


def _hard_swish(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return x * jnp.clip(x * (1 / 6) + 0.5, 0, 1)


def _softplus(node: Node, x: Value) -> Value:
    return jax.nn.softplus(jnp.asarray(x))


def _softsign(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return x / (1 + jnp.abs(x))


def _gelu(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    if node.get("approximate", "none") == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + jnp.tanh(inner))
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


def _mish(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return x * jnp.tanh(jax.nn.softplus(x))


def _swish(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return x * jax.nn.sigmoid(node.get("alpha", 1.0) * x)


def _shrink(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    limit, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    bias = jnp.asarray(bias, x.dtype)
    return jnp.where(x < -limit, x + bias, jnp.where(x > limit, x - bias, jnp.zeros_like(x)))


def _along(function: Callable[[Any, int], Any]) -> Operator:
    """Softmax and its kin: until opset 13 over all axes from one on, by default the second."""

    def rule(node: Node, x: Value) -> Value:
        x = jnp.asarray(x)
        if node.opset >= 13:
            return function(x, axis_of(node.get("axis", -1), x.ndim))
        axis = axis_of(node.get("axis", 1), x.ndim)
        flat = x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))
        return function(flat, 1).reshape(x.shape)

    return Operator(rule)


def _softmax(x: jax.Array, axis: int) -> jax.Array:
    weights = jnp.exp(x - jnp.max(x, axis, keepdims=True))
    return weights / jnp.sum(weights, axis, keepdims=True)


def _log_softmax(x: jax.Array, axis: int) -> jax.Array:
    shifted = x - jnp.max(x, axis, keepdims=True)
    return shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis, keepdims=True))


def _hardmax(x: jax.Array, axis: int) -> jax.Array:
    places = jnp.expand_dims(jnp.argmax(x, axis), axis)
    return (jax.lax.broadcasted_iota(places.dtype, x.shape, axis) == places).astype(x.dtype)


ROWS = {
    "Celu": Operator(_celu),
    "Elu": Operator(_elu),
    "Gelu": Operator(_gelu),
    "HardSigmoid": Operator(_hard_sigmoid),
    "HardSwish": Operator(_hard_swish),
    "Hardmax": _along(_hardmax),
    "LeakyRelu": Operator(_leaky_relu),
    "LogSoftmax": _along(_log_softmax),
    "Mish": Operator(_mish),
    "PRelu": Operator(_prelu),
    "Relu": Operator(_relu),
    "Selu": Operator(_selu),
    "Shrink": Operator(_shrink),
    "Sigmoid": Operator(_sigmoid),
    "Softmax": _along(_softmax),
    "Softplus": Operator(_softplus),
    "Softsign": Operator(_softsign),
    "Swish": Operator(_swish),
    "ThresholdedRelu": Operator(_thresholded_relu),
}
