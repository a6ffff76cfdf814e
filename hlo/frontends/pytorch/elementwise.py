"""Arithmetic, comparisons, functions of one number, and activations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from hlotune.hlo.frontends.pytorch.types import (
    Refusal,
    Value,
    common_dtype,
    floating,
    is_float,
    promoted,
    rows,
)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value, other: Value) -> Any:
        return function(*promoted(self, other))

    return rule


def _floating(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value, other: Value) -> Any:
        return function(*map(floating, promoted(self, other)))

    return rule


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value) -> Any:
        return function(floating(self))

    return rule


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(self: Value) -> Any:
        return function(jnp.asarray(self))

    return rule


def _add(self: Value, other: Value, alpha: Value = 1) -> Any:
    a, b = promoted(self, other)
    if a.dtype == np.bool_:
        return a | b
    return a + (b if alpha == 1 else b * jnp.asarray(alpha, b.dtype))


def _subtract(self: Value, other: Value, alpha: Value = 1) -> Any:
    a, b = promoted(self, other)
    return a - (b if alpha == 1 else b * jnp.asarray(alpha, b.dtype))


def _subtract_reversed(self: Value, other: Value, alpha: Value = 1) -> Any:
    a, b = promoted(self, other)
    return _subtract(b, a, alpha)


def _divide(self: Value, other: Value, rounding_mode: str | None = None) -> Any:
    a, b = promoted(self, other)
    if rounding_mode is None:
        return floating(a) / floating(b)
    if rounding_mode == "floor":
        return jnp.floor_divide(a, b)
    return lax.div(*jnp.broadcast_arrays(a, b)) if not is_float(a.dtype) else jnp.trunc(a / b)


def _power(self: Value, exponent: Value) -> Any:
    dtype = common_dtype([self, exponent])
    if isinstance(exponent, int | float) and float(exponent).is_integer() and abs(exponent) <= 64:
        base = jnp.asarray(self, dtype)
        if is_float(dtype) or exponent >= 0:
            return lax.integer_pow(base, int(exponent))
    return jnp.power(jnp.asarray(self, dtype), jnp.asarray(exponent, dtype))


def _clamp(self: Value, min: Value = None, max: Value = None) -> Any:
    dtype = common_dtype([v for v in (self, min, max) if v is not None])
    made = jnp.asarray(self, dtype)
    made = made if min is None else jnp.maximum(made, jnp.asarray(min, dtype))
    return made if max is None else jnp.minimum(made, jnp.asarray(max, dtype))


def _clamp_least(self: Value, min: Value) -> Any:
    return _clamp(self, min)


def _clamp_most(self: Value, max: Value) -> Any:
    return _clamp(self, None, max)


def _where(condition: Value, self: Value, other: Value) -> Any:
    return jnp.where(jnp.asarray(condition), *promoted(self, other))


def _masked_fill(self: Value, mask: Value, value: Value) -> Any:
    self = jnp.asarray(self)
    return jnp.where(jnp.asarray(mask), jnp.asarray(value, self.dtype), self)


def _gelu(self: Value, approximate: str = "none") -> Any:
    return jax.nn.gelu(jnp.asarray(self), approximate=approximate == "tanh")


def _leaky_relu(self: Value, negative_slope: float = 0.01) -> Any:
    return jnp.where(self > 0, self, self * jnp.asarray(negative_slope, self.dtype))


def _elu(self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    x = jnp.asarray(self)
    a, s, i = (jnp.asarray(v, x.dtype) for v in (alpha, scale, input_scale))
    return s * jnp.where(x > 0, x, a * jnp.expm1(jnp.minimum(x, 0) * i))


def _prelu(self: Value, weight: Value) -> Any:
    shape = [1, -1, *[1] * (self.ndim - 2)] if self.ndim > 1 else [-1]
    return jnp.where(self > 0, self, self * jnp.asarray(weight).reshape(shape))


def _hardtanh(self: Value, min_val: Value = -1, max_val: Value = 1) -> Any:
    return jnp.clip(self, jnp.asarray(min_val, self.dtype), jnp.asarray(max_val, self.dtype))


def _softplus(self: Value, beta: float = 1, threshold: float = 20) -> Any:
    b = jnp.asarray(beta, self.dtype)
    return jnp.where(self * b > threshold, self, jax.nn.softplus(self * b) / b)


def _six(x: Any) -> Any:
    return jnp.clip(x + 3, 0, 6) / 6


def _round(self: Value, decimals: int = 0) -> Any:
    return jnp.round(self, decimals)


def _addcmul(self: Value, tensor1: Value, tensor2: Value, value: Value = 1) -> Any:
    return _add(self, _binary(jnp.multiply)(tensor1, tensor2), value)


def _addcdiv(self: Value, tensor1: Value, tensor2: Value, value: Value = 1) -> Any:
    return _add(self, _divide(tensor1, tensor2), value)


def _lerp(self: Value, end: Value, weight: Value) -> Any:
    return self + (end - self) * jnp.asarray(weight, self.dtype)


def _glu(self: Value, dim: int = -1) -> Any:
    a, b = jnp.split(jnp.asarray(self), 2, dim)
    return a * jax.nn.sigmoid(b)


def _randomly_leaky_relu(
    self: Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    generator: Value = None, noise: Value = None,
) -> Any:  # fmt: skip
    if training:
        raise Refusal("rrelu in training: call module.eval() before the export")
    return _leaky_relu(jnp.asarray(self), (lower + upper) / 2)


def _digamma(x: Any) -> Any:
    """Infinite at 0, by its sign, where XLA has no number."""
    return jnp.where(x == 0, -jnp.copysign(jnp.asarray(np.inf, x.dtype), x), lax.digamma(x))


ROWS = {
    **rows(
        add=_add, sub=_subtract, subtract=_subtract, rsub=_subtract_reversed, div=_divide,
        divide=_divide, true_divide=_divide, pow=_power, clamp=_clamp, clip=_clamp,
        clamp_min=_clamp_least, clamp_max=_clamp_most, where=_where, masked_fill=_masked_fill,
        gelu=_gelu, leaky_relu=_leaky_relu, elu=_elu, prelu=_prelu, _prelu_kernel=_prelu,
        hardtanh=_hardtanh, softplus=_softplus, round=_round, addcmul=_addcmul, addcdiv=_addcdiv,
        lerp=_lerp, glu=_glu, rrelu=_randomly_leaky_relu, rrelu_with_noise=_randomly_leaky_relu,
    ),
    **rows(
        mul=_binary(jnp.multiply), multiply=_binary(jnp.multiply), maximum=_binary(jnp.maximum),
        minimum=_binary(jnp.minimum), floor_divide=_binary(jnp.floor_divide),
        remainder=_binary(jnp.remainder), fmod=_binary(jnp.fmod), eq=_binary(jnp.equal),
        ne=_binary(jnp.not_equal), lt=_binary(jnp.less), le=_binary(jnp.less_equal),
        gt=_binary(jnp.greater), ge=_binary(jnp.greater_equal),
        logical_and=_binary(jnp.logical_and), logical_or=_binary(jnp.logical_or),
        logical_xor=_binary(jnp.logical_xor), bitwise_and=_binary(jnp.bitwise_and),
        bitwise_or=_binary(jnp.bitwise_or), bitwise_xor=_binary(jnp.bitwise_xor),
        __and__=_binary(jnp.bitwise_and), __or__=_binary(jnp.bitwise_or),
        fmax=_binary(jnp.fmax), fmin=_binary(jnp.fmin), logaddexp=_binary(jnp.logaddexp),
        __lshift__=_binary(jnp.left_shift), __rshift__=_binary(jnp.right_shift),
        bitwise_left_shift=_binary(jnp.left_shift), bitwise_right_shift=_binary(jnp.right_shift),
        __xor__=_binary(jnp.bitwise_xor), gcd=_binary(jnp.gcd), lcm=_binary(jnp.lcm),
        atan2=_floating(jnp.arctan2), hypot=_floating(jnp.hypot),
        copysign=_floating(jnp.copysign),
    ),
    **rows(
        exp=_unary(jnp.exp), exp2=_unary(jnp.exp2), expm1=_unary(jnp.expm1), log=_unary(jnp.log),
        log2=_unary(jnp.log2), log1p=_unary(jnp.log1p), sqrt=_unary(jnp.sqrt),
        rsqrt=_unary(lax.rsqrt), sin=_unary(jnp.sin), cos=_unary(jnp.cos), tan=_unary(jnp.tan),
        tanh=_unary(jnp.tanh), sinh=_unary(jnp.sinh), cosh=_unary(jnp.cosh),
        atan=_unary(jnp.arctan), asin=_unary(jnp.arcsin), acos=_unary(jnp.arccos),
        erf=_unary(lax.erf), sigmoid=_unary(jax.nn.sigmoid), reciprocal=_unary(jnp.reciprocal),
        log_sigmoid=_unary(jax.nn.log_sigmoid), log10=_unary(jnp.log10),
        asinh=_unary(jnp.arcsinh), acosh=_unary(jnp.arccosh), atanh=_unary(jnp.arctanh),
        erfc=_unary(lax.erfc), erfinv=_unary(lax.erf_inv), lgamma=_unary(lax.lgamma),
        digamma=_unary(_digamma), i0=_unary(special.i0), special_i0=_unary(special.i0),
        special_i0e=_unary(special.i0e), special_i1=_unary(special.i1),
        special_i1e=_unary(special.i1e),
    ),
    **rows(
        relu=_same(lambda x: jnp.maximum(x, 0)), relu6=_same(lambda x: jnp.clip(x, 0, 6)),
        silu=_same(jax.nn.silu), mish=_same(lambda x: x * jnp.tanh(jax.nn.softplus(x))),
        hardsigmoid=_same(_six), hardswish=_same(lambda x: x * _six(x)), neg=_same(jnp.negative),
        abs=_same(jnp.abs), sign=_same(jnp.sign), square=_same(jnp.square), floor=_same(jnp.floor),
        ceil=_same(jnp.ceil), trunc=_same(jnp.trunc), isnan=_same(jnp.isnan),
        isinf=_same(jnp.isinf), logical_not=_same(jnp.logical_not),
        bitwise_not=_same(jnp.bitwise_not),
    ),
}  # fmt: skip
