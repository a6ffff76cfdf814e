"""Images read at places that are computed, and columns put back into images."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.onnx.convolutions import with_bias
from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, cast
from hlotune.hlo.frontends.onnx.windows import window_of

MODES = ("bicubic", "cubic", "nearest", "bilinear", "linear")
"""How values between places are made; two have two names."""


def _sampled(node: Node, x: Value, grid: Value) -> Value:
    if (mode := node.get("mode", "linear")) not in MODES:
        raise node.refusal(f"with mode {mode!r}", "the model is damaged: write it again")
    aligned = bool(node.get("align_corners", 0))
    return sampled(x, grid, mode, node.get("padding_mode", "zeros"), aligned)


def sampled(x: Value, grid: Value, mode: str, padding: str, aligned: bool) -> Any:
    """Values at the places that a grid names, whose coordinates go from -1 to 1, the last axis of
    the image first."""
    x, grid = jnp.asarray(x), jnp.asarray(grid)
    extents = x.shape[2:]
    taps = []
    for axis, extent in enumerate(extents):
        at = grid[..., len(extents) - 1 - axis]
        at = (at + 1) / 2 * (extent - 1) if aligned else ((at + 1) * extent - 1) / 2
        taps.append(_axis_taps(mode, padding, aligned, at, extent))
    total: Any = 0
    for chosen in itertools.product(*taps):
        weight = math.prod((w for _, w, _ in chosen), start=jnp.ones((), x.dtype))
        inside = math.prod((i for _, _, i in chosen), start=jnp.ones((), bool))
        values = _read(x, [p for p, _, _ in chosen])
        total = total + jnp.where(inside[:, None], values, 0) * weight[:, None]
    return total.astype(x.dtype)


_Tap = tuple[jax.Array, jax.Array, jax.Array]
"""A place, its weight, and whether it counts."""


def _axis_taps(mode: str, padding: str, aligned: bool, at: jax.Array, extent: int) -> list[_Tap]:
    if mode in ("bicubic", "cubic"):
        first = jnp.floor(at)
        weights = _cubic_weights(at - first)
        return [_tap(first + n - 1, w, padding, aligned, extent) for n, w in enumerate(weights)]
    if padding == "border":
        at = jnp.clip(at, 0, extent - 1)
    elif padding == "reflection":
        at = _reflected(at, extent, aligned)
    if mode == "nearest":
        return [_tap(jnp.round(at), jnp.ones_like(at), padding, aligned, extent)]
    first = jnp.floor(at)
    part = at - first
    return [
        _tap(first, 1 - part, padding, aligned, extent),
        _tap(first + 1, part, padding, aligned, extent),
    ]


def _tap(place: jax.Array, weight: jax.Array, padding: str, aligned: bool, extent: int) -> _Tap:
    inside = (place >= 0) & (place <= extent - 1)
    if padding == "reflection":
        place = _reflected(place, extent, aligned)
    counts = inside if padding == "zeros" else jnp.ones_like(inside)
    return jnp.clip(place, 0, extent - 1).astype(np.int32), weight, counts


def _reflected(at: jax.Array, extent: int, aligned: bool) -> jax.Array:
    """Places mirrored at the edges of an axis: at its outer values, or half a place beyond."""
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    period = high - low
    if period == 0:
        return jnp.zeros_like(at)
    over = jnp.mod(at - low, 2 * period)
    return low + jnp.where(over > period, 2 * period - over, over)


def _cubic_weights(part: jax.Array, a: float = -0.75) -> list[jax.Array]:
    def near(x: jax.Array) -> jax.Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: jax.Array) -> jax.Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _read(x: jax.Array, places: Sequence[jax.Array]) -> jax.Array:
    """(batch, channels, ...) at places (batch, ...) of each spatial axis."""

    def one(image: jax.Array, at: Sequence[jax.Array]) -> jax.Array:
        return image.at[(slice(None), *at)].get(mode="clip")

    return jax.vmap(one)(x, list(places))


def _columns(node: Node, x: Value, image: Any, block: Any) -> Value:
    """Adds up windows that lie one behind the other: the opposite of taking an image apart."""
    x = jnp.asarray(x)
    extents, sizes = image.tolist(), block.tolist()
    rank = len(extents)
    strides, dilations = (node.get(n, [1] * rank) for n in ("strides", "dilations"))
    pads = node.get("pads", [0] * (2 * rank))
    whole = [e + pads[n] + pads[n + rank] for n, e in enumerate(extents)]
    facts = list(zip(whole, sizes, strides, dilations, strict=True))
    counts = [(w - d * (k - 1) - 1) // s + 1 for w, k, s, d in facts]
    channels = x.shape[1] // math.prod(sizes)
    parts = x.reshape(x.shape[0], channels, math.prod(sizes), *counts)
    made = jnp.zeros((x.shape[0], channels, *whole), x.dtype)
    for tap, places in enumerate(itertools.product(*map(range, sizes))):
        at = [
            slice(p * d, p * d + (c - 1) * s + 1, s)
            for p, d, c, s in zip(places, dilations, counts, strides, strict=True)
        ]
        made = made.at[(slice(None), slice(None), *at)].add(parts[:, :, tap])
    inner = [slice(pads[n], pads[n] + e) for n, e in enumerate(extents)]
    return made[(slice(None), slice(None), *inner)]


def _aligned_regions(node: Node, x: Value, regions: Value, batch: Value) -> Value:
    """Means, or the largest values, of points in the cells of each region."""
    x, regions = jnp.asarray(x), jnp.asarray(regions)
    points = node.get("sampling_ratio", 0)
    if points <= 0:
        raise node.refusal(
            "with sampling_ratio=0, where the number of points depends on values",
            "export the model with a sampling_ratio",
        )
    counts = (node.get("output_height", 1), node.get("output_width", 1))
    mode = node.get("coordinate_transformation_mode", "half_pixel")
    shift = 0.5 if mode == "half_pixel" and node.opset >= 16 else 0.0
    scaled = regions * node.get("spatial_scale", 1.0) - shift
    lengths = [scaled[:, 3] - scaled[:, 1], scaled[:, 2] - scaled[:, 0]]
    if not shift:
        lengths = [jnp.maximum(length, 1) for length in lengths]
    at = []
    for axis, (count, length) in enumerate(zip(counts, lengths, strict=True)):
        steps = (np.arange(count * points) + 0.5) / (count * points)
        at.append(scaled[:, 1 - axis, None] + length[:, None] * jnp.asarray(steps, x.dtype))
    values = _bilinear(x[cast(batch, np.int32)], at[0], at[1], node.get("mode", "avg") == "max")
    cells = values.reshape(*values.shape[:2], counts[0], points, counts[1], points)
    if node.get("mode", "avg") == "max":
        return jnp.max(cells, (3, 5))
    return jnp.mean(cells, (3, 5))


def _bilinear(images: jax.Array, rows: jax.Array, columns: jax.Array, largest: bool) -> jax.Array:
    """Values (regions, channels, rows, columns); 0 more than one place outside.  With `largest`
    the largest weighted corner in place of their sum."""
    high, wide = images.shape[2:]
    sides = []
    for at, extent in ((rows, high), (columns, wide)):
        counts = (at >= -1) & (at <= extent)
        inside = jnp.clip(at, 0, extent - 1)
        first = jnp.minimum(jnp.floor(inside), max(extent - 2, 0)).astype(np.int32)
        part = inside - first
        second = jnp.minimum(first + 1, extent - 1)
        sides.append(([(first, 1 - part), (second, part)], counts))
    corners = []
    for (row, weight), (column, other) in itertools.product(sides[0][0], sides[1][0]):
        values = jax.vmap(lambda i, r, c: i[:, r[:, None], c[None]])(images, row, column)
        corners.append(values * (weight[:, :, None] * other[:, None])[:, None])
    made = jnp.max(jnp.stack(corners), 0) if largest else sum(corners[1:], corners[0])
    counts = sides[0][1][:, :, None] & sides[1][1][:, None]
    return jnp.where(counts[:, None], made, 0)


def _deformed(
    node: Node, x: Value, weights: Value, offsets: Value, bias: Value = None, mask: Value = None
) -> Value:
    """A convolution whose taps are moved by offsets, (batch, tap, 2, rows, columns) of a group."""
    x, weights = jnp.asarray(x), jnp.asarray(weights)
    if x.ndim != 4:
        raise node.refusal(f"over {x.ndim - 2} axes", "hlotune has a rule for images of two axes")
    window = window_of(node, x.shape[2:], node.get("kernel_shape", weights.shape[2:]))
    counts, taps = window.positions(x.shape[2:]), math.prod(window.sizes)
    parts, groups = node.get("offset_group", 1), node.get("group", 1)
    moved = jnp.asarray(offsets).reshape(x.shape[0], parts, taps, 2, *counts)
    shares = None if mask is None else jnp.asarray(mask).reshape(x.shape[0], parts, taps, *counts)
    channels = x.reshape(x.shape[0], parts, -1, *x.shape[2:])
    columns = []
    for tap, places in enumerate(itertools.product(*map(range, window.sizes))):
        begins = [
            np.arange(c) * s + p * d - pads[0]
            for c, s, p, d, pads in zip(
                counts, window.strides, places, window.dilations, window.padding, strict=True
            )
        ]
        rows = moved[:, :, tap, 0] + begins[0][:, None].astype(x.dtype)
        across = moved[:, :, tap, 1] + begins[1].astype(x.dtype)
        values = jax.vmap(_corners, (1, 1, 1), 1)(channels, rows, across)
        columns.append(values if shares is None else values * shares[:, :, None, tap])
    stacked = jnp.stack(columns, 3).reshape(x.shape[0], groups, -1, taps, *counts)
    features = weights.reshape(groups, weights.shape[0] // groups, -1, taps)
    made = jnp.einsum("ngctyx,gfct->ngfyx", stacked, features)
    return with_bias(made.reshape(x.shape[0], -1, *counts), bias)


def _corners(x: jax.Array, rows: jax.Array, columns: jax.Array) -> jax.Array:
    """Values (batch, channels, ...) between the places of images, 0 outside of them."""
    sides = []
    for at, extent in ((rows, x.shape[2]), (columns, x.shape[3])):
        first = jnp.floor(at)
        part = at - first
        sides.append([(first, 1 - part, extent), (first + 1, part, extent)])
    total: Any = 0
    for (row, weight, high), (column, other, wide) in itertools.product(*sides):
        inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
        places = [jnp.clip(row, 0, high - 1), jnp.clip(column, 0, wide - 1)]
        values = _read(x, [p.astype(np.int32) for p in places])
        total = total + values * jnp.where(inside, weight * other, 0)[:, None]
    return jnp.asarray(total)


ROWS = {
    "DeformConv": Operator(_deformed),
    "Col2Im": Operator(_columns, {1: "image shape", 2: "block shape"}),
    "GridSample": Operator(_sampled),
    "RoiAlign": Operator(_aligned_regions),
}
