"""Sums and other reductions, softmax, and normalizations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Refusal, Value, is_float, promoted, rows


def _axes(dim: Any) -> Any:
    return None if dim is None or dim == [] else tuple(dim) if isinstance(dim, list) else dim


def _converted(self: Value, dtype: Any) -> jax.Array:
    return jnp.asarray(self) if dtype is None else jnp.asarray(self).astype(dtype)


def _sum(self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = _converted(self, dtype)
    x = x if is_float(x.dtype) or dtype is not None else x.astype(np.int64)
    return jnp.sum(x, _axes(dim), keepdims=keepdim)


def _product(self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = _converted(self, dtype)
    x = x if is_float(x.dtype) or dtype is not None else x.astype(np.int64)
    return jnp.prod(x, _axes(dim), keepdims=keepdim)


def _mean(self: Value, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    return jnp.mean(_converted(self, dtype), _axes(dim), keepdims=keepdim)


def _over(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value, dim: Any = None, keepdim: bool = False) -> Any:
        return function(jnp.asarray(self), _axes(dim), keepdims=keepdim)

    return rule


def _extreme(values: Callable[..., Any], places: Callable[..., Any]) -> Callable[..., Any]:
    """The largest or smallest value, of all, or along one axis together with its place; with
    another tensor, element by element."""
    of_two = {jnp.max: jnp.maximum, jnp.min: jnp.minimum}[values]

    def rule(self: Value, dim: Any = None, keepdim: bool = False, other: Value = None) -> Any:
        if other is not None:
            return of_two(*promoted(self, other))
        if dim is None:
            return values(jnp.asarray(self))
        x = jnp.asarray(self)
        at = places(x, dim, keepdims=keepdim).astype(np.int64)
        return values(x, dim, keepdims=keepdim), at

    return rule


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value, dim: Any = None, keepdim: bool = False) -> Any:
        return function(jnp.asarray(self), dim, keepdims=keepdim).astype(np.int64)

    return rule


def _variance(
    self: Value, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    correction: Any = 1,
) -> Any:  # fmt: skip
    less = correction if unbiased else 0
    return jnp.var(jnp.asarray(self), _axes(dim), ddof=less, keepdims=keepdim)


def _deviation(**inputs: Any) -> Any:
    return jnp.sqrt(_variance(**inputs))


def _cumulative(self: Value, dim: int, dtype: Any = None) -> Any:
    x = _converted(self, dtype)
    x = x if is_float(x.dtype) or dtype is not None else x.astype(np.int64)
    return jnp.cumsum(x, dim) if x.ndim else x


def _cumulative_product(self: Value, dim: int, dtype: Any = None) -> Any:
    x = _converted(self, dtype)
    x = x if is_float(x.dtype) or dtype is not None else x.astype(np.int64)
    return jnp.cumprod(x, dim) if x.ndim else x


def _cumulative_logsumexp(self: Value, dim: int) -> Any:
    x = jnp.asarray(self)
    return lax.cumlogsumexp(x, dim % x.ndim) if x.ndim else x


def _cumulative_extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    """The largest or smallest of the values so far, and the last place that has it; what is no
    number stays. Where both zeros are among them, the sign is that of the last one."""

    def rule(self: Value, dim: int) -> Any:
        x = jnp.asarray(self)
        if not x.ndim:
            return x, jnp.zeros((), np.int64)
        axis = dim % x.ndim
        made = function(x, axis)
        marks = 2 * lax.broadcasted_iota(np.int64, x.shape, axis) + jnp.signbit(x)
        last = lax.cummax(jnp.where((x == made) | (x != x), marks, 0), axis)
        if is_float(x.dtype):
            made = jnp.where((last & 1) == 1, -jnp.abs(made), jnp.abs(made))
        return made, last >> 1

    return rule


def _norm(
    self: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Any:
    x = jnp.abs(_converted(self, dtype))
    if ord == 2:
        return jnp.sqrt(jnp.sum(x * x, _axes(dim), keepdims=keepdim))
    if ord == 1:
        return jnp.sum(x, _axes(dim), keepdims=keepdim)
    if abs(ord) == np.inf:
        return (jnp.max if ord > 0 else jnp.min)(x, _axes(dim), keepdims=keepdim)
    if ord == 0:
        return jnp.sum((x != 0).astype(x.dtype), _axes(dim), keepdims=keepdim)
    power = jnp.asarray(ord, x.dtype)
    return jnp.sum(x**power, _axes(dim), keepdims=keepdim) ** (1 / power)


def _softmax(self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Any:
    return jax.nn.softmax(_converted(self, dtype), dim)


def _log_softmax(self: Value, dim: int, dtype: Any = None, half_to_float: bool = False) -> Any:
    return jax.nn.log_softmax(_converted(self, dtype), dim)


def _per_channel(value: Value, rank: int) -> jax.Array:
    return jnp.asarray(value).reshape(-1, *[1] * (rank - 2))


def _batch_norm(
    input: Value, weight: Value, bias: Value, running_mean: Value, running_var: Value,
    momentum: float, eps: float, training: bool = False, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    if training or running_mean is None:
        raise Refusal("batch norm of the batch's own statistics: call module.eval() before export")
    x = jnp.asarray(input)
    variance = jnp.asarray(running_var)
    scale = lax.rsqrt(variance + jnp.asarray(eps, variance.dtype))
    scale = scale if weight is None else scale * jnp.asarray(weight)
    shift = -jnp.asarray(running_mean) * scale
    shift = shift if bias is None else shift + jnp.asarray(bias)
    made = x * _per_channel(scale, x.ndim) + _per_channel(shift, x.ndim)
    return made.astype(x.dtype)


def _batch_norm_alone(**inputs: Any) -> Any:
    """Also gives statistics of the batch, which nothing reads outside of training."""
    nothing = jnp.zeros(0, jnp.float32)
    return _batch_norm(**inputs), nothing, nothing


def _normalized(x: jax.Array, axes: Any, eps: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    wide = x.astype(jnp.promote_types(x.dtype, np.float32))
    mean = jnp.mean(wide, axes, keepdims=True)
    away = wide - mean
    variance = jnp.mean(away * away, axes, keepdims=True)
    scale = lax.rsqrt(variance + jnp.asarray(eps, wide.dtype))
    return away * scale, mean, scale


def _scaled(x: jax.Array, weight: Value, bias: Value) -> jax.Array:
    x = x if weight is None else x * jnp.asarray(weight)
    return x if bias is None else x + jnp.asarray(bias)


def _native_layer_norm(
    input: Value, normalized_shape: Any, weight: Value = None, bias: Value = None,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    x = jnp.asarray(input)
    axes = tuple(range(-len(normalized_shape), 0))
    made, mean, scale = _normalized(x, axes, eps)
    return _scaled(made, weight, bias).astype(x.dtype), mean, scale


def _layer_norm(cudnn_enable: bool = True, **inputs: Any) -> Any:
    return _native_layer_norm(**inputs)[0]


def _rms_norm(
    input: Value, normalized_shape: Any, weight: Value = None, eps: float | None = None
) -> Any:
    x = jnp.asarray(input)
    wide = x.astype(jnp.promote_types(x.dtype, np.float32))
    axes = tuple(range(-len(normalized_shape), 0))
    small = float(jnp.finfo(x.dtype).eps) if eps is None else eps  # type: ignore[no-untyped-call]
    mean = jnp.mean(wide * wide, axes, keepdims=True)
    made = wide * lax.rsqrt(mean + jnp.asarray(small, wide.dtype))
    return _scaled(made, weight, None).astype(x.dtype)


def _group_norm(
    input: Value, num_groups: int, weight: Value = None, bias: Value = None, eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:  # fmt: skip
    x = jnp.asarray(input)
    grouped = x.reshape(x.shape[0], num_groups, -1)
    made = _normalized(grouped, -1, eps)[0].reshape(x.shape)
    parts = (None if v is None else _per_channel(v, x.ndim) for v in (weight, bias))
    return _scaled(made, *parts).astype(x.dtype)


def _instance_norm(
    input: Value, weight: Value, bias: Value, running_mean: Value, running_var: Value,
    use_input_stats: bool, momentum: float, eps: float, cudnn_enabled: bool = False,
) -> Any:  # fmt: skip
    if use_input_stats and running_mean is not None:
        raise Refusal(
            "instance norm that updates its running statistics: call module.eval() before export"
        )
    if not use_input_stats:
        return _batch_norm(input, weight, bias, running_mean, running_var, momentum, eps)
    return _group_norm(input, jnp.asarray(input).shape[1], weight, bias, eps)


def _native_group_norm(
    input: Value, weight: Value, bias: Value, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    nothing = jnp.zeros((N, group), jnp.float32)
    return _group_norm(input, group, weight, bias, eps), nothing, nothing


ROWS = {
    **rows(
        sum=_sum, prod=_product, mean=_mean, var=_variance, std=_deviation, cumsum=_cumulative,
        linalg_vector_norm=_norm, softmax=_softmax, _softmax=_softmax, log_softmax=_log_softmax,
        _log_softmax=_log_softmax, batch_norm=_batch_norm,
        _native_batch_norm_legit_no_training=_batch_norm_alone, layer_norm=_layer_norm,
        native_layer_norm=_native_layer_norm, rms_norm=_rms_norm, group_norm=_group_norm,
        native_group_norm=_native_group_norm,
        instance_norm=_instance_norm, cumprod=_cumulative_product,
        logcumsumexp=_cumulative_logsumexp, cummax=_cumulative_extreme(lax.cummax),
        cummin=_cumulative_extreme(lax.cummin),
    ),
    **rows(
        amax=_over(jnp.max), amin=_over(jnp.min), any=_over(jnp.any), all=_over(jnp.all),
        max=_extreme(jnp.max, jnp.argmax), min=_extreme(jnp.min, jnp.argmin),
        argmax=_place(jnp.argmax), argmin=_place(jnp.argmin),
    ),
}  # fmt: skip
