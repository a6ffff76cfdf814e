"""Reductions over axes, running sums and products."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of
from hlotune.hlo.frontends.onnx.pools import least

_Reduction = Callable[[jax.Array, tuple[int, ...], bool], jax.Array]


def _over(function: _Reduction) -> Operator:
    """Axes are an attribute until opset 18, of sums until 13, and an input from then on."""

    def rule(node: Node, x: Value, axes: Any = None) -> Value:
        x = jnp.asarray(x)
        listed = node.get("axes", []) if axes is None else axes.reshape(-1).tolist()
        if not listed and node.get("noop_with_empty_axes", 0):
            return function(x, (), True)
        found = tuple(axis_of(int(a), x.ndim) for a in listed) or tuple(range(x.ndim))
        return function(x, found, bool(node.get("keepdims", 1))).astype(x.dtype)

    return Operator(rule, {1: "axes"})


def _largest(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    if x.dtype == bool:
        return jnp.any(x, axes, keepdims=keep)
    return jnp.max(x, axes, keepdims=keep, initial=least(x.dtype))


def _smallest(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    if x.dtype == bool:
        return jnp.all(x, axes, keepdims=keep)
    most = np.inf if jnp.issubdtype(x.dtype, jnp.floating) else np.iinfo(x.dtype).max
    return jnp.min(x, axes, keepdims=keep, initial=most)


def _sum(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.sum(x, axes, keepdims=keep, dtype=x.dtype)


def _product(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.prod(x, axes, keepdims=keep, dtype=x.dtype)


def _mean(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.mean(x, axes, keepdims=keep)


def _norm_1(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return _sum(jnp.abs(x), axes, keep)


def _squares(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return _sum(x * x, axes, keep)


def _norm_2(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.sqrt(_squares(x, axes, keep))


def _log_sum(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    return jnp.log(_sum(x, axes, keep))


def _log_sum_exp(x: jax.Array, axes: tuple[int, ...], keep: bool) -> jax.Array:
    """The largest term is taken out, so that none is infinite."""
    if not x.size:
        return _log_sum(x, axes, keep)
    most = jnp.max(x, axes, keepdims=True)
    most = jnp.where(jnp.isfinite(most), most, 0)
    made = jnp.log(_sum(jnp.exp(x - most), axes, True)) + most
    return made if keep else lax.squeeze(made, axes)


def _first(function: Callable[..., jax.Array]) -> Operator:
    """The index of an extreme value, the first or the last of several."""

    def rule(node: Node, x: Value) -> Value:
        x = jnp.asarray(x)
        axis, keep = axis_of(node.get("axis", 0), x.ndim), bool(node.get("keepdims", 1))
        if not node.get("select_last_index", 0):
            return function(x, axis, keepdims=keep).astype(np.int64)
        from_behind = function(jnp.flip(x, axis), axis, keepdims=keep).astype(np.int64)
        return x.shape[axis] - 1 - from_behind

    return Operator(rule)


def _running(function: Callable[..., jax.Array], start: int) -> Operator:
    def rule(node: Node, x: Value, axis: Any) -> Value:
        x = jnp.asarray(x)
        along = axis_of(int(axis.reshape(-1)[0]), x.ndim)
        backwards = bool(node.get("reverse", 0))
        made = function(x, along, reverse=backwards)
        if not node.get("exclusive", 0):
            return made
        size = x.shape[along]
        part = (1, size) if backwards else (0, size - 1)
        pads = [(0, 0, 0)] * x.ndim
        pads[along] = (0, 1, 0) if backwards else (1, 0, 0)
        kept = lax.slice_in_dim(made, *part, axis=along)
        return lax.pad(kept, jnp.asarray(start, x.dtype), pads)

    return Operator(rule, {1: "axis"})


ROWS = {
    "ArgMax": _first(jnp.argmax),
    "ArgMin": _first(jnp.argmin),
    "CumProd": _running(lax.cumprod, 1),
    "CumSum": _running(lax.cumsum, 0),
    "ReduceL1": _over(_norm_1),
    "ReduceL2": _over(_norm_2),
    "ReduceLogSum": _over(_log_sum),
    "ReduceLogSumExp": _over(_log_sum_exp),
    "ReduceMax": _over(_largest),
    "ReduceMean": _over(_mean),
    "ReduceMin": _over(_smallest),
    "ReduceProd": _over(_product),
    "ReduceSum": _over(_sum),
    "ReduceSumSquare": _over(_squares),
}
