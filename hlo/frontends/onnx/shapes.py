"""Operators that move, repeat and cut values without computing with them, and constants."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from onnx import helper

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of


def _identity(node: Node, x: Value) -> Value:
    return x


def _constant(node: Node) -> Value:
    kinds: dict[str, Any] = {
        "value_float": np.float32, "value_floats": np.float32,
        "value_int": np.int64, "value_ints": np.int64,
    }  # fmt: skip
    for name in ("value", "sparse_value"):
        if name in node.attributes:
            return node.attributes[name]
    for name, kind in kinds.items():
        if name in node.attributes:
            return np.array(node.attributes[name], kind)
    raise node.refusal("with texts", "hlotune computes with numbers alone")


def _constant_of_shape(node: Node, shape: Any) -> Value:
    value = node.get("value", np.zeros(1, np.float32))
    return jnp.full(shape.tolist(), value.reshape(-1)[0], value.dtype)


def _shape(node: Node, x: Value) -> Value:
    rank = x.ndim
    begin, end = node.get("start", 0), node.get("end", rank)
    begin, end = (min(max(i + rank if i < 0 else i, 0), rank) for i in (begin, end))
    return np.array(x.shape[begin:end], np.int64)


def _size(node: Node, x: Value) -> Value:
    return np.array(x.size, np.int64)


def _reshape(node: Node, x: Value, shape: Any) -> Value:
    sizes = [int(s) for s in shape]
    if not node.get("allowzero", 0):
        sizes = [x.shape[n] if s == 0 else s for n, s in enumerate(sizes)]
    return jnp.asarray(x).reshape(sizes)


def _axes(node: Node, given: Any, rank: int) -> list[int] | None:
    """Axes of an input, or of an attribute, as they were until opset 13."""
    axes = node.get("axes") if given is None else given.reshape(-1).tolist()
    return None if axes is None else [axis_of(int(a), rank) for a in axes]


def _squeeze(node: Node, x: Value, axes: Any = None) -> Value:
    found = _axes(node, axes, x.ndim)
    return lax.squeeze(
        jnp.asarray(x), [n for n, s in enumerate(x.shape) if s == 1] if found is None else found
    )


def _unsqueeze(node: Node, x: Value, axes: Any = None) -> Value:
    count = len(node.get("axes", [])) if axes is None else axes.size
    return lax.expand_dims(jnp.asarray(x), _axes(node, axes, x.ndim + count) or ())


def _flatten(node: Node, x: Value) -> Value:
    axis = node.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return jnp.asarray(x).reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _transpose(node: Node, x: Value) -> Value:
    return jnp.transpose(jnp.asarray(x), node.get("perm"))


def _concat(node: Node, *x: Value) -> Value:
    return jnp.concatenate(list(map(jnp.asarray, x)), node.require("axis"))


def _split(node: Node, x: Value, sizes: Any = None) -> Value:
    axis = axis_of(node.get("axis", 0), x.ndim)
    listed = node.get("split") if sizes is None else sizes.tolist()
    if listed is None:
        count = node.get("num_outputs", len(node.wanted))
        each = -(-x.shape[axis] // count)
        listed = [min(each, max(0, x.shape[axis] - n * each)) for n in range(count)]
    if sum(listed) != x.shape[axis]:
        raise node.refusal(
            f"into {listed} of an axis of {x.shape[axis]}", "the model is damaged: write it again"
        )
    ends = np.cumsum([0, *listed]).tolist()
    return tuple(
        lax.slice_in_dim(jnp.asarray(x), b, e, axis=axis) for b, e in itertools.pairwise(ends)
    )


def _slice(
    node: Node, x: Value, begins: Any = None, ends: Any = None, axes: Any = None, steps: Any = None
) -> Value:
    """Limits were attributes until opset 10."""
    begins = np.asarray(node.get("starts") if begins is None else begins)
    ends = np.asarray(node.get("ends") if ends is None else ends)
    listed = node.get("axes", list(range(len(begins)))) if axes is None else axes.tolist()
    steps = np.ones(len(begins), np.int64) if steps is None else steps
    places = [slice(None)] * x.ndim
    for begin, end, axis, step in zip(begins, ends, listed, steps, strict=True):
        places[axis_of(axis, x.ndim)] = slice_of(int(begin), int(end), int(step), x.shape[axis])
    return jnp.asarray(x)[tuple(places)]


def slice_of(begin: int, end: int, step: int, extent: int) -> slice:
    """ONNX's limits, which may lie far outside, as Python's."""
    if step > 0:
        begin, end = (min(max(i + extent if i < 0 else i, 0), extent) for i in (begin, end))
        return slice(begin, end, step)
    begin = min(max(begin + extent if begin < 0 else begin, 0), extent - 1)
    end = min(max(end + extent if end < 0 else end, -1), extent)
    return slice(begin, None if end < 0 else end, step)


def _pad(node: Node, x: Value, pads: Any = None, value: Value = None, axes: Any = None) -> Value:
    """Pads were attributes until opset 11; negative ones cut."""
    x = jnp.asarray(x)
    pads = np.asarray(node.get("pads", node.get("paddings")) if pads is None else pads).tolist()
    listed = range(x.ndim) if axes is None else [axis_of(int(a), x.ndim) for a in axes]
    both: list[tuple[int, int]] = [(0, 0)] * x.ndim
    for n, axis in enumerate(listed):
        both[axis] = (pads[n], pads[n + len(pads) // 2])
    mode = node.get("mode", "constant")
    if mode == "constant":
        value = node.get("value", 0.0) if value is None else jnp.asarray(value).reshape(())
        return lax.pad(x, jnp.asarray(value, x.dtype), [(b, e, 0) for b, e in both])
    for axis, (before, behind) in enumerate(both):
        extent = x.shape[axis]
        places = np.arange(-before, extent + behind)
        x = jnp.take(x, _outside(mode, places, extent, node), axis=axis)
    return x


def _outside(mode: str, places: Any, extent: int, node: Node) -> Any:
    """Where the values of places come from that lie outside of an axis."""
    if mode == "edge":
        return np.clip(places, 0, extent - 1)
    if mode == "wrap":
        return places % extent
    if mode == "reflect":
        period = max(1, 2 * (extent - 1))
        places = places % period
        return np.where(places < extent, places, period - places)
    raise node.refusal(f"with mode {mode!r}", "the model is damaged: write it again")


def _expand(node: Node, x: Value, shape: Any) -> Value:
    sizes = np.broadcast_shapes(x.shape, tuple(int(s) for s in shape))
    return jnp.broadcast_to(jnp.asarray(x), sizes)


def _tile(node: Node, x: Value, repeats: Any) -> Value:
    return jnp.tile(jnp.asarray(x), repeats.tolist())


def _space_to_depth(node: Node, x: Value) -> Value:
    batch, channels, high, wide = x.shape
    block = node.require("blocksize")
    parts = jnp.asarray(x).reshape(batch, channels, high // block, block, wide // block, block)
    order = (0, 3, 5, 1, 2, 4) if node.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(
        batch, channels * block * block, high // block, wide // block
    )


def _depth_to_space(node: Node, x: Value) -> Value:
    batch, channels, high, wide = x.shape
    block = node.require("blocksize")
    inner = channels // (block * block)
    if node.get("mode", "DCR") == "DCR":
        parts = jnp.asarray(x).reshape(batch, block, block, inner, high, wide)
        parts = parts.transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = jnp.asarray(x).reshape(batch, inner, block, block, high, wide)
        parts = parts.transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(batch, inner, high * block, wide * block)


def _triangle(node: Node, x: Value, diagonal: Value = None) -> Value:
    x = jnp.asarray(x)
    rows = lax.broadcasted_iota(np.int64, x.shape, x.ndim - 2)
    columns = lax.broadcasted_iota(np.int64, x.shape, x.ndim - 1)
    shift = 0 if diagonal is None else jnp.asarray(diagonal).reshape(())
    keep = columns - rows >= shift if node.get("upper", 1) else columns - rows <= shift
    return jnp.where(keep, x, jnp.zeros_like(x))


def _range(node: Node, begin: Any, end: Any, step: Any) -> Value:
    first, last, by = (np.asarray(i).reshape(-1)[0] for i in (begin, end, step))
    count = max(0, math.ceil((last - first) / by))
    return jnp.asarray(first) + lax.iota(first.dtype, count) * jnp.asarray(by)


def _eye_like(node: Node, x: Value) -> Value:
    kind = node.get("dtype")
    dtype = x.dtype if kind is None else helper.tensor_dtype_to_np_dtype(kind)
    rows, columns = x.shape
    return jnp.eye(rows, columns, node.get("k", 0), dtype)


def _one_hot(node: Node, indices: Value, depth: Any, values: Value) -> Value:
    count = int(depth.reshape(-1)[0])
    indices, values = jnp.asarray(indices), jnp.asarray(values)
    rank = indices.ndim + 1
    axis = axis_of(node.get("axis", -1), rank)
    places = jnp.expand_dims(indices.astype(np.int64), axis)
    places = jnp.where(places < 0, places + count, places)
    shape = [*indices.shape[:axis], count, *indices.shape[axis:]]
    hot = lax.broadcasted_iota(np.int64, shape, axis) == places
    return jnp.where(hot, values[1], values[0])


def _dropout(node: Node, x: Value, ratio: Value = None, training: Value = None) -> Value:
    """Nothing is dropped where a model is not trained."""
    if node.opset < 7 and not node.get("is_test", 0):
        raise node.refusal("in training mode", "export the model for inference")
    if training is not None and node.known(training, "training mode").any():
        rate = 0.5 if ratio is None else float(node.known(ratio, "ratio"))
        if rate:
            raise node.refusal("in training mode", "export the model for inference")
    mask = jnp.ones(x.shape, bool if node.opset >= 10 else x.dtype)
    return (x, mask) if node.wants(1) else x


def _reverse_sequence(node: Node, x: Value, lengths: Value) -> Value:
    time, batch = node.get("time_axis", 0), node.get("batch_axis", 1)
    shape: Sequence[int] = x.shape
    places = lax.broadcasted_iota(np.int64, shape, time)
    view = [1] * len(shape)
    view[batch] = shape[batch]
    ends = jnp.asarray(lengths).reshape(view)
    turned = jnp.where(places < ends, ends - 1 - places, places)
    return jnp.take_along_axis(jnp.asarray(x), turned, time)


ROWS = {
    "Concat": Operator(_concat),
    "Constant": Operator(_constant),
    "ConstantOfShape": Operator(_constant_of_shape, {0: "shape"}),
    "DepthToSpace": Operator(_depth_to_space),
    "Dropout": Operator(_dropout),
    "Expand": Operator(_expand, {1: "shape"}),
    "EyeLike": Operator(_eye_like),
    "Flatten": Operator(_flatten),
    "Identity": Operator(_identity),
    "OneHot": Operator(_one_hot, {1: "depth"}),
    "Pad": Operator(_pad, {1: "padding", 3: "axes"}),
    "Range": Operator(_range, {0: "start", 1: "limit", 2: "delta"}),
    "Reshape": Operator(_reshape, {1: "shape"}),
    "ReverseSequence": Operator(_reverse_sequence),
    "Shape": Operator(_shape),
    "Size": Operator(_size),
    "Slice": Operator(_slice, {1: "start", 2: "end", 3: "axes", 4: "steps"}),
    "SpaceToDepth": Operator(_space_to_depth),
    "Split": Operator(_split, {1: "split"}),
    "Squeeze": Operator(_squeeze, {1: "axes"}),
    "Tile": Operator(_tile, {1: "repeats"}),
    "Transpose": Operator(_transpose),
    "Trilu": Operator(_triangle),
    "Unsqueeze": Operator(_unsqueeze, {1: "axes"}),
}
