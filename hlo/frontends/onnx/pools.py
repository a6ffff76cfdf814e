"""Pools: the largest value, the mean or a norm of windows, and of whole images."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value
from hlotune.hlo.frontends.onnx.windows import Window, window_of, with_ceiling


def _window(node: Node, x: jax.Array) -> Window:
    window = window_of(node, x.shape[2:], node.require("kernel_shape"))
    return with_ceiling(window, x.shape[2:]) if node.get("ceil_mode", 0) else window


def reduced(x: jax.Array, window: Window, start: Any, combine: Any) -> Any:
    """Each window of `(n, c, *spatial)` combined to one element."""
    return lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        combine,
        (1, 1, *window.sizes),
        (1, 1, *window.strides),
        ((0, 0), (0, 0), *window.padding),
        window_dilation=(1, 1, *window.dilations),
    )


def least(dtype: Any) -> Any:
    """The value that no other is less than."""
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else np.iinfo(dtype).min


def _largest(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    window = _window(node, x)
    made = reduced(x, window, least(x.dtype), lax.max)
    return (made, _places_of_largest(node, x, window)) if node.wants(1) else made


def _places_of_largest(node: Node, x: jax.Array, window: Window) -> jax.Array:
    """Where the largest value of each window lies in the whole input."""
    extents = x.shape[2:]
    places, inside = _taps(window, extents)
    flat = x.reshape(*x.shape[:2], -1)
    values = jnp.where(inside, flat[..., places], jnp.asarray(least(x.dtype), x.dtype))
    first = jnp.argmax(values, -1, keepdims=True)
    everywhere = jnp.broadcast_to(jnp.asarray(places), values.shape)
    found = jnp.take_along_axis(everywhere, first, -1)[..., 0]
    if node.get("storage_order", 0):
        found = _by_columns(found, extents)
    image = math.prod(extents)
    offsets = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *[1] * len(extents)) * image
    return found + jnp.asarray(offsets)


def _by_columns(places: jax.Array, extents: tuple[int, ...]) -> jax.Array:
    """Places in an image that is stored with its first axis innermost."""
    made, stride = jnp.zeros_like(places), 1
    coordinates = jnp.unravel_index(places, extents)
    for coordinate, extent in zip(coordinates, extents, strict=True):
        made, stride = made + coordinate * stride, stride * extent
    return made


def _taps(window: Window, extents: tuple[int, ...]) -> tuple[Any, Any]:
    """For each position and tap, the place in the flat image, and whether it is inside of it."""
    counts = window.positions(extents)
    rank = len(extents)
    place, inside = np.zeros((1,) * (2 * rank), np.int64), np.ones((1,) * (2 * rank), bool)
    for axis in range(rank):
        begins = np.arange(counts[axis]) * window.strides[axis] - window.padding[axis][0]
        taps = np.arange(window.sizes[axis]) * window.dilations[axis]
        at = begins[:, None] + taps
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        inside = inside & ((at >= 0) & (at < extents[axis])).reshape(shape)
        place = place * extents[axis] + np.clip(at, 0, extents[axis] - 1).reshape(shape)
    flat = (*counts, math.prod(window.sizes))
    return place.reshape(flat), np.broadcast_to(inside, place.shape).reshape(flat)


def _average(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    window = _window(node, x)
    padded = window_of(node, x.shape[2:], window.sizes).padding
    limits = [
        (-before, e + behind) if node.get("count_include_pad", 0) else (0, e)
        for (before, behind), e in zip(padded, x.shape[2:], strict=True)
    ]
    made = reduced(x, window, 0, lax.add)
    return made / jnp.asarray(counts(window, x.shape[2:], limits).astype(x.dtype))


def counts(window: Window, extents: tuple[int, ...], limits: Any) -> Any:
    """Elements of each window that lie inside of the limits."""
    found = np.ones((), np.int64)
    for axis, count in enumerate(window.positions(extents)):
        begins = np.arange(count) * window.strides[axis] - window.padding[axis][0]
        at = begins[:, None] + np.arange(window.sizes[axis]) * window.dilations[axis]
        low, high = limits[axis]
        found = np.multiply.outer(found, ((at >= low) & (at < high)).sum(1))
    return np.maximum(found, 1)


def _norm(node: Node, x: Value) -> Value:
    x, power = jnp.asarray(x), float(node.get("p", 2))
    sums = reduced(jnp.abs(x) ** power, _window(node, x), 0, lax.add)
    return (sums ** (1 / power)).astype(x.dtype)


def _all(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _global_average(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.mean(x, _all(x), keepdims=True)


def _global_largest(node: Node, x: Value) -> Value:
    x = jnp.asarray(x)
    return jnp.max(x, _all(x), keepdims=True)


def _global_norm(node: Node, x: Value) -> Value:
    x, power = jnp.asarray(x), float(node.get("p", 2))
    return jnp.sum(jnp.abs(x) ** power, _all(x), keepdims=True) ** (1 / power)


def _unpooled(node: Node, x: Value, places: Value, shape: Any = None) -> Value:
    """Puts values back to where the largest ones of windows were found."""
    x, places = jnp.asarray(x), jnp.asarray(places)
    window = node.require("kernel_shape")
    strides = node.get("strides", [1] * len(window))
    pads = node.get("pads", [0] * (2 * len(window)))
    facts = zip(x.shape[2:], strides, window, pads, pads[len(window) :], strict=False)
    extents = [(e - 1) * s + k - before - behind for e, s, k, before, behind in facts]
    inner = (*x.shape[:2], *extents)
    flat = jnp.zeros(math.prod(inner), x.dtype).at[places.reshape(-1)].set(x.reshape(-1))
    if shape is None:
        return flat.reshape(inner)
    wanted = tuple(int(s) for s in shape)
    more = [w - i for w, i in zip(wanted, inner, strict=False)]
    if len(wanted) != len(inner) or min(more) < 0:
        raise node.refusal(f"into shape {wanted}", "the model is damaged: write it again")
    return jnp.pad(flat.reshape(inner), [(0, n) for n in more])


ROWS = {
    "AveragePool": Operator(_average),
    "GlobalAveragePool": Operator(_global_average),
    "GlobalLpPool": Operator(_global_norm),
    "GlobalMaxPool": Operator(_global_largest),
    "LpPool": Operator(_norm),
    "MaxPool": Operator(_largest),
    "MaxUnpool": Operator(_unpooled, {2: "output shape"}),
}
