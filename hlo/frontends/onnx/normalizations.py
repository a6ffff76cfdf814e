"""Normalizations of batches, layers, groups, instances and neighbouring channels."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of, is_known


def _by_channel(values: Value, rank: int, dtype: object) -> jax.Array:
    return jnp.asarray(values).reshape(-1, *[1] * (rank - 2)).astype(dtype)  # type: ignore[arg-type]


def _batch(node: Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    x = jnp.asarray(x)
    epsilon = node.get("epsilon", 1e-5)
    if node.opset < 7 and not node.get("is_test", 0):
        raise node.refusal("in training mode", "export the model for inference")
    if not node.get("training_mode", 0):
        if node.opset < 9 and not node.get("spatial", 1):
            raise node.refusal("with spatial=0", "convert the model to opset 9 or later")
        return _batch_by(x, scale, bias, mean, variance, epsilon)
    axes = (0, *range(2, x.ndim))
    now, spread = jnp.mean(x, axes), jnp.var(x, axes)
    momentum = node.get("momentum", 0.9)
    running = [
        (jnp.asarray(old) * momentum + new * (1 - momentum)).astype(old.dtype)
        for old, new in ((mean, now), (variance, spread))
    ]
    return (_batch_by(x, scale, bias, now, spread, epsilon), *running)


def _batch_by(
    x: jax.Array, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> jax.Array:
    """Factors and summands come first: of a trained model they are constants."""
    known = all(map(is_known, (scale, bias, mean, variance)))
    root = np.sqrt if known else jnp.sqrt
    factor = (scale / root(variance + epsilon)).astype(scale.dtype)
    summand = (bias - mean * factor).astype(scale.dtype)
    both = [_by_channel(v, x.ndim, x.dtype) for v in (factor, summand)]
    return x * both[0] + both[1]


def _centred(x: jax.Array, axes: Sequence[int], epsilon: float) -> tuple[jax.Array, ...]:
    """Scales to mean 0 and variance 1 over some axes; returns the mean and the factor too."""
    mean = jnp.mean(x, axes, keepdims=True)
    apart = x - mean
    factor = lax.rsqrt(jnp.mean(apart * apart, axes, keepdims=True) + epsilon)
    return apart * factor, mean, factor


def _layer(node: Node, x: Value, scale: Value, bias: Value = None) -> Value:
    """Layer norm, computed in f32 where values are narrower, as `stash_type` says by default."""
    x = jnp.asarray(x)
    axes = range(axis_of(node.get("axis", -1), x.ndim), x.ndim)
    inside = _inside(node, x)
    made, mean, factor = _centred(inside, tuple(axes), node.get("epsilon", 1e-5))
    made = made.astype(x.dtype) * jnp.asarray(scale)
    return (made if bias is None else made + jnp.asarray(bias), mean, factor)


def _inside(node: Node, x: jax.Array) -> jax.Array:
    narrow = np.dtype(x.dtype).itemsize < 4 and node.get("stash_type", 1) == 1
    return x.astype(np.float32) if narrow else x


def _root_mean_square(node: Node, x: Value, scale: Value) -> Value:
    x = jnp.asarray(x)
    axes = tuple(range(axis_of(node.get("axis", -1), x.ndim), x.ndim))
    inside = _inside(node, x)
    mean = jnp.mean(inside * inside, axes, keepdims=True)
    made = inside * lax.rsqrt(mean + node.get("epsilon", 1e-5))
    return made.astype(x.dtype) * jnp.asarray(scale)


def _instance(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    x = jnp.asarray(x)
    made, _, _ = _centred(x, tuple(range(2, x.ndim)), node.get("epsilon", 1e-5))
    return made * _by_channel(scale, x.ndim, x.dtype) + _by_channel(bias, x.ndim, x.dtype)


def _group(node: Node, x: Value, scale: Value, bias: Value) -> Value:
    """Scale and bias are of groups until opset 21, of channels from then on."""
    x = jnp.asarray(x)
    groups = node.require("num_groups")
    parts = _inside(node, x).reshape(x.shape[0], groups, -1)
    made = _centred(parts, (2,), node.get("epsilon", 1e-5))[0].reshape(x.shape).astype(x.dtype)
    each = x.shape[1] // groups if node.opset < 21 else 1
    scale, bias = (jnp.repeat(jnp.asarray(v), each) for v in (scale, bias))
    return made * _by_channel(scale, x.ndim, x.dtype) + _by_channel(bias, x.ndim, x.dtype)


def _neighbours(node: Node, x: Value) -> Value:
    """Divides by a power of the squares' sum over neighbouring channels."""
    x, size = jnp.asarray(x), node.require("size")
    before = (size - 1) // 2
    sums = lax.reduce_window(
        x * x,
        np.asarray(0, x.dtype),
        lax.add,
        (1, size, *[1] * (x.ndim - 2)),
        (1,) * x.ndim,
        ((0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)),
    )
    scaled = node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * sums
    return x / scaled ** node.get("beta", 0.75)


def _norm(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    axis = axis_of(node.get("axis", -1), x.ndim)
    if node.get("p", 2) == 1:
        norm = jnp.sum(jnp.abs(x), axis, keepdims=True)
    else:
        norm = jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(norm == 0, jnp.zeros_like(x), x / jnp.where(norm == 0, 1, norm))


def _mean_variance(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    axes = tuple(axis_of(a, x.ndim) for a in node.get("axes", [0, 2, 3]))
    apart = x - jnp.mean(x, axes, keepdims=True)
    return apart / (jnp.sqrt(jnp.mean(apart * apart, axes, keepdims=True)) + 1e-9)


ROWS = {
    "BatchNormalization": Operator(_batch),
    "GroupNormalization": Operator(_group),
    "InstanceNormalization": Operator(_instance),
    "LRN": Operator(_neighbours),
    "LayerNormalization": Operator(_layer),
    "LpNormalization": Operator(_norm),
    "MeanVarianceNormalization": Operator(_mean_variance),
    "RMSNormalization": Operator(_root_mean_square),
}
