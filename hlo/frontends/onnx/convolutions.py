"""Convolutions.  Images come as ONNX and PyTorch have them: batch, channels, spatial axes."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value
from hlotune.hlo.frontends.onnx.windows import window_of


def convolved(node: Node, x: jax.Array, weights: jax.Array, result: Any = None) -> jax.Array:
    """The convolution that the node's attributes describe, without a bias.

    Args:
        result: element type of the result; by default that of `x`.
    """
    window = window_of(node, x.shape[2:], node.get("kernel_shape", weights.shape[2:]))
    return lax.conv_general_dilated(
        x,
        weights,
        window.strides,
        window.padding,
        rhs_dilation=window.dilations,
        dimension_numbers=layout(x.ndim),
        feature_group_count=node.get("group", 1),
        preferred_element_type=result,
    )


def layout(rank: int) -> tuple[str, str, str]:
    """Batch, channels and spatial axes, as JAX writes them."""
    spatial = "".join(chr(ord("0") + axis) for axis in range(rank - 2))
    return f"NC{spatial}", f"OI{spatial}", f"NC{spatial}"


def with_bias(x: jax.Array, bias: Value) -> jax.Array:
    """Adds a value to each channel, None for none."""
    return x if bias is None else x + jnp.asarray(bias).reshape(-1, *[1] * (x.ndim - 2))


def _convolution(node: Node, x: Value, weights: Value, bias: Value = None) -> Value:
    return with_bias(convolved(node, jnp.asarray(x), jnp.asarray(weights)), bias)


def _transposed(node: Node, x: Value, weights: Value, bias: Value = None) -> Value:
    """The gradient of a convolution: a convolution of a dilated input by mirrored weights."""
    x, weights = jnp.asarray(x), jnp.asarray(weights)
    rank, groups = x.ndim - 2, node.get("group", 1)
    sizes = node.get("kernel_shape", list(weights.shape[2:]))
    strides = node.get("strides", [1] * rank)
    dilations = node.get("dilations", [1] * rank)
    more = node.get("output_padding", [0] * rank)
    reach = [d * (k - 1) + 1 for k, d in zip(sizes, dilations, strict=True)]
    pads = _pads_of_transposed(node, x.shape[2:], strides, reach, more)
    channels, features = weights.shape[:2]
    weights = weights.reshape(groups, channels // groups, features, *sizes)
    weights = jnp.swapaxes(weights, 1, 2).reshape(groups * features, channels // groups, *sizes)
    facts = zip(reach, pads, more, strict=True)
    made = lax.conv_general_dilated(
        x,
        jnp.flip(weights, range(2, 2 + rank)),
        [1] * rank,
        [(r - 1 - before, r - 1 - behind + m) for r, (before, behind), m in facts],
        lhs_dilation=strides,
        rhs_dilation=dilations,
        dimension_numbers=layout(x.ndim),
        feature_group_count=groups,
    )
    return with_bias(made, bias)


def _pads_of_transposed(
    node: Node, extents: Any, strides: Any, reach: Any, more: Any
) -> list[tuple[int, int]]:
    rank, how = len(extents), node.get("auto_pad", "NOTSET")
    wanted = node.get("output_shape")
    if wanted is None and how in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [e * s for e, s in zip(extents, strides, strict=True)]
    if wanted is None:
        pads = node.get("pads", [0] * (2 * rank)) if how == "NOTSET" else [0] * (2 * rank)
        return list(zip(pads[:rank], pads[rank:], strict=True))
    facts = zip(extents, strides, reach, more, wanted[-rank:], strict=True)
    total = [s * (e - 1) + m + r - w for e, s, r, m, w in facts]
    if how == "SAME_UPPER":
        return [(t // 2, t - t // 2) for t in total]
    return [(t - t // 2, t // 2) for t in total]


ROWS = {
    "Conv": Operator(_convolution),
    "ConvTranspose": Operator(_transposed),
}
