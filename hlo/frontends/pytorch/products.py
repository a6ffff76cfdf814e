"""Products of matrices, convolutions and attention."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.onnx.convolutions import layout, with_bias
from hlotune.hlo.frontends.pytorch.types import Refusal, Value, rows


def _linear(input: Value, weight: Value, bias: Value = None) -> Any:
    made = jnp.matmul(input, jnp.asarray(weight).T)
    return made if bias is None else made + jnp.asarray(bias)


def _product(self: Value, mat2: Value = None, other: Value = None, vec: Value = None) -> Any:
    return jnp.matmul(self, next(v for v in (mat2, other, vec) if v is not None))


def _dot(self: Value, tensor: Value) -> Any:
    return jnp.dot(self, tensor)


def _added(self: Value, made: Any, beta: Value, alpha: Value) -> Any:
    made = made if alpha == 1 else made * jnp.asarray(alpha, made.dtype)
    start = jnp.asarray(self)
    return made + (start if beta == 1 else start * jnp.asarray(beta, start.dtype))


def _addmm(self: Value, mat1: Value, mat2: Value, beta: Value = 1, alpha: Value = 1) -> Any:
    return _added(self, jnp.matmul(mat1, mat2), beta, alpha)


def _baddbmm(self: Value, batch1: Value, batch2: Value, beta: Value = 1, alpha: Value = 1) -> Any:
    return _added(self, jnp.matmul(batch1, batch2), beta, alpha)


def _einsum(equation: str, tensors: Any, path: Any = None) -> Any:
    return jnp.einsum(equation, *tensors)


def _bilinear(input1: Value, input2: Value, weight: Value, bias: Value = None) -> Any:
    made = jnp.einsum("...i,oij,...j->...o", input1, weight, input2)
    return made if bias is None else made + jnp.asarray(bias)


def _each(value: Any, rank: int) -> list[int]:
    """A number an axis; one number, alone or in a list, stands for all of them."""
    listed = value if isinstance(value, list | tuple) else [value]
    return list(listed) * rank if len(listed) == 1 else list(listed)


def _padding(padding: Any, reach: list[int]) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(reach)
    if padding == "same":
        return [((r - 1) // 2, r - 1 - (r - 1) // 2) for r in reach]
    return [(p, p) for p in _each(padding, len(reach))]


def _convolution(
    input: Value, weight: Value, bias: Value = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, transposed: bool = False, output_padding: Any = 0, groups: int = 1,
) -> Any:  # fmt: skip
    x, weight = jnp.asarray(input), jnp.asarray(weight)
    rank = weight.ndim - 2
    if x.ndim == rank + 1:
        return _convolution(
            x[None], weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )[0]
    if transposed:
        return _transposed(x, weight, bias, stride, padding, output_padding, groups, dilation)
    steps = _each(dilation, rank)
    reach = [d * (k - 1) + 1 for k, d in zip(weight.shape[2:], steps, strict=True)]
    made = lax.conv_general_dilated(
        x,
        weight,
        _each(stride, rank),
        _padding(padding, reach),
        rhs_dilation=steps,
        dimension_numbers=layout(x.ndim),
        feature_group_count=groups,
    )
    return with_bias(made, bias)


def _transposed(
    input: Value, weight: Value, bias: Value = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Any:  # fmt: skip
    """The gradient of a convolution: a convolution of a dilated input by mirrored weights."""
    x, weight = jnp.asarray(input), jnp.asarray(weight)
    rank, sizes, (channels, features) = weight.ndim - 2, weight.shape[2:], weight.shape[:2]
    steps, before = _each(dilation, rank), _each(padding, rank)
    reach = [d * (k - 1) for k, d in zip(sizes, steps, strict=True)]
    facts = zip(reach, before, _each(output_padding, rank), strict=True)
    weight = weight.reshape(groups, channels // groups, features, *sizes)
    weight = jnp.swapaxes(weight, 1, 2).reshape(groups * features, channels // groups, *sizes)
    made = lax.conv_general_dilated(
        x,
        jnp.flip(weight, range(2, 2 + rank)),
        [1] * rank,
        [(r - p, r - p + more) for r, p, more in facts],
        lhs_dilation=_each(stride, rank),
        rhs_dilation=steps,
        dimension_numbers=layout(x.ndim),
        feature_group_count=groups,
    )
    return with_bias(made, bias)


def _attention(
    query: Value, key: Value, value: Value, attn_mask: Value = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    if dropout_p > 0:
        raise Refusal("attention with dropout: call module.eval() before the export")
    query, key, value = (jnp.asarray(x) for x in (query, key, value))
    if enable_gqa:
        many = query.shape[-3] // key.shape[-3]
        key, value = (jnp.repeat(x, many, -3) for x in (key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = jnp.matmul(query * jnp.asarray(factor, query.dtype), jnp.swapaxes(key, -1, -2))
    low = jnp.asarray(-jnp.inf, scores.dtype)
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, low)
    if attn_mask is not None:
        mask = jnp.asarray(attn_mask)
        scores = jnp.where(mask, scores, low) if mask.dtype == bool else scores + mask
    shares = jax.nn.softmax(scores, -1)
    if attn_mask is not None:  # a row that is masked out gives zeros
        shares = jnp.where(jnp.all(scores == low, -1, keepdims=True), 0, shares)
    return jnp.matmul(shares, value)


def _distances(x1: Value, x2: Value, p: float = 2.0, compute_mode: Value = None) -> Any:
    """The distance of each row of one to each row of the other, by the p-norm."""
    apart = jnp.abs(jnp.asarray(x1)[..., :, None, :] - jnp.asarray(x2)[..., None, :, :])
    return jnp.linalg.norm(apart, float(p), -1)


ROWS = rows(
    linear=_linear, mm=_product, bmm=_product, matmul=_product, mv=_product, dot=_dot,
    addmm=_addmm, baddbmm=_baddbmm, einsum=_einsum, convolution=_convolution,
    conv1d=_convolution, conv2d=_convolution, conv3d=_convolution, conv_transpose1d=_transposed,
    conv_transpose2d=_transposed, conv_transpose3d=_transposed,
    scaled_dot_product_attention=_attention, cdist=_distances, _cdist_forward=_distances,
    bilinear=_bilinear,
)  # fmt: skip
