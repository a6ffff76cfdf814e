"""Resizing: each axis alone, as a weighted sum of a few of its places."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is resized."""

    extent: int
    result: int
    scale: float
    crop: tuple[float, float]
    """The part of the axis that is read, for `tf_crop_and_resize`: from and to, of 1."""


def _resize(node: Node, x: Value, roi: Any = None, scales: Any = None, sizes: Any = None) -> Value:
    x = jnp.asarray(x)
    dtype = x.dtype
    axes = [axis_of(a, x.ndim) for a in node.get("axes", range(x.ndim))]
    if node.opset < 11:
        roi, scales = None, roi
    given = sizes if sizes is not None and sizes.size else None
    facts = _axes_of(node, [x.shape[a] for a in axes], roi, scales, given)
    outside = np.zeros((1,) * x.ndim, bool)
    for axis, fact in zip(axes, facts, strict=True):
        if fact.result == fact.extent and fact.scale == 1 and fact.crop == (0, 1):
            continue
        at = _coordinates(node, fact)
        x = mixed(x, axis, *_taps(node, at, fact))
        if node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            beyond = (at < 0) | (at > fact.extent - 1)
            outside = outside | beyond.reshape([-1 if n == axis else 1 for n in range(x.ndim)])
    if outside.any():
        x = jnp.where(jnp.asarray(outside), node.get("extrapolation_value", 0.0), x)
    return narrowed(x, dtype)


def _axes_of(node: Node, extents: Sequence[int], roi: Any, scales: Any, sizes: Any) -> list[_Axis]:
    count = len(extents)
    crops = [(0.0, 1.0)] * count
    if node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        crops = [(float(roi[n]), float(roi[n + count])) for n in range(count)]
    if sizes is None:
        if scales is None:
            raise node.refusal("without scales or sizes", "the model is damaged: write it again")
        return [
            _Axis(e, math.floor(e * (crop[1] - crop[0]) * float(s)), float(s), crop)
            for e, s, crop in zip(extents, scales, crops, strict=True)
        ]
    wanted = [int(s) for s in sizes]
    ratios = [w / e for w, e in zip(wanted, extents, strict=True)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [ratio] * count
        wanted = [math.floor(ratio * e + 0.5) for e in extents]
    return [_Axis(*facts) for facts in zip(extents, wanted, ratios, crops, strict=True)]


def _coordinates(node: Node, axis: _Axis) -> Any:
    """Where the values of the result lie along the axis that is read."""
    at = np.arange(axis.result, dtype=np.float64)
    length, scale = axis.result, axis.scale
    mode = node.get("coordinate_transformation_mode", "half_pixel")
    if node.opset < 11 or mode == "asymmetric":
        return at / scale
    if mode == "align_corners":
        exact = scale * axis.extent
        return at * (axis.extent - 1) / (exact - 1) if exact != 1 else np.zeros(length)
    if mode == "tf_crop_and_resize":
        begin, end = axis.crop
        if length == 1:
            return np.full(1, 0.5 * (begin + end) * (axis.extent - 1))
        step = (end - begin) * (axis.extent - 1) / (length - 1)
        return begin * (axis.extent - 1) + at * step
    if mode == "pytorch_half_pixel" and length == 1:
        return np.full(1, -0.5)
    if mode == "half_pixel_symmetric":
        exact = scale * axis.extent
        centre = axis.extent / 2 * (1 - length / exact)
        return centre + (at + 0.5) / scale - 0.5
    return (at + 0.5) / scale - 0.5


def _taps(node: Node, at: Any, axis: _Axis) -> tuple[Any, Any]:
    """Places that each value of the result is mixed of, and their weights: (result, taps)."""
    mode = node.get("mode", "nearest")
    if mode == "nearest":
        places = _nearest(node.get("nearest_mode", "round_prefer_floor"), at, node.opset)
        return np.clip(places, 0, axis.extent - 1)[:, None], np.ones((axis.result, 1))
    stretch = 1.0
    if node.get("antialias", 0) and axis.scale < 1:
        stretch = axis.scale
    kernel, radius = _kernel(node, mode)
    reach = math.ceil(radius / stretch)
    first = np.floor(at).astype(np.int64) - reach + 1
    places = first[:, None] + np.arange(2 * reach)
    weights = kernel((places - at[:, None]) * stretch)
    inside = (places >= 0) & (places < axis.extent)
    if node.get("exclude_outside", 0):
        weights = np.where(inside, weights, 0)
    if node.get("exclude_outside", 0) or stretch != 1:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(places, 0, axis.extent - 1), weights


def _nearest(mode: str, at: Any, opset: int) -> Any:
    if opset < 11:
        mode = "floor"
    rounding: dict[str, Callable[[Any], Any]] = {
        "ceil": np.ceil,
        "floor": np.floor,
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    }
    return rounding[mode](at).astype(np.int64)


def _kernel(node: Node, mode: str) -> tuple[Callable[[Any], Any], float]:
    """Weights by distance, and from where on they are 0."""
    if mode == "linear":
        return lambda x: np.maximum(0, 1 - np.abs(x)), 1.0
    if mode == "cubic":
        a = node.get("cubic_coeff_a", -0.75)
        return lambda x: cubic(np.abs(x), a), 2.0
    raise node.refusal(f"with mode {mode!r}", "the model is damaged: write it again")


def cubic(x: Any, a: float) -> Any:
    """The cubic convolution's weights by distance, which is not negative."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def mixed(x: jax.Array, axis: int, places: Any, weights: Any) -> Any:
    """One axis resized: values are weighted sums of some places, both of shape (result, taps).

    Sums are of whole numbers where the weights are, else of `wide` numbers, as the next axis is to
    read them: `narrowed` rounds them once behind the last one.
    """
    view = [-1 if n == axis else 1 for n in range(x.ndim)]
    if places.shape[1] == 1:
        return jnp.take(x, jnp.asarray(places[:, 0]), axis, mode="clip")
    inner = weights.dtype if np.issubdtype(weights.dtype, np.integer) else wide(x.dtype)
    total: Any = 0
    for tap in range(places.shape[1]):
        part = jnp.take(x, jnp.asarray(places[:, tap]), axis, mode="clip").astype(inner)
        total = total + part * jnp.asarray(weights[:, tap].astype(inner)).reshape(view)
    return total


def wide(dtype: Any) -> Any:
    """The floats that values are mixed in: of 32 bits, and of 64 where these do not hold them."""
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.promote_types(dtype, np.float32)
    return np.dtype(np.float32 if np.dtype(dtype).itemsize <= 2 else np.float64)


def narrowed(x: jax.Array, dtype: Any) -> jax.Array:
    """Values in their own type again; whole numbers are the nearest ones that it has."""
    if x.dtype == dtype or jnp.issubdtype(dtype, jnp.floating):
        return x.astype(dtype)
    limits = jnp.iinfo(dtype)  # type: ignore[no-untyped-call]
    return jnp.clip(jnp.round(x), float(limits.min), float(limits.max)).astype(dtype)


def _upsample(node: Node, x: Value, scales: Any = None) -> Value:
    """Until opset 10: each value is read at its place divided by the scale."""
    given = np.asarray(node.get("scales")) if scales is None else scales
    early = Node(
        node.operator, node.name, min(node.opset, 10), {"mode": node.get("mode", "nearest")},
        node.wanted, node.run,
    )  # fmt: skip
    return _resize(early, x, given)


ROWS = {
    "Resize": Operator(_resize, {1: "region", 2: "scales", 3: "sizes"}),
    "Upsample": Operator(_upsample, {1: "scales"}),
}
