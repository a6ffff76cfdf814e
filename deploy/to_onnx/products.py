"""Products and convolutions, brought into the one layout that ONNX defines for each."""

from collections.abc import Sequence
from dataclasses import dataclass

from hlotune.deploy.to_onnx.elementwise import carrier
from hlotune.deploy.to_onnx.movement import reversed_along
from hlotune.deploy.to_onnx.writer import Rule, Shape, Tensor, Writer, ints, number, refused, size
from hlotune.hlo.graph import Op
from hlotune.schedules.dtypes import is_float

BYTES = ("i8", "ui8")


def dot_general(w: Writer, op: Op) -> list[Tensor]:
    """Writes a product: both operands become batches of matrices, and the result is reshaped."""
    lhs, rhs = (w.full(v) for v in op.operands)
    kind = w.type(op.results[0])
    batch = [ints(op, f"{side}_batching_dimensions") for side in ("lhs", "rhs")]
    inner = [ints(op, f"{side}_contracting_dimensions") for side in ("lhs", "rhs")]
    left, rows = _matrices(w, lhs, batch[0], inner[0], inner_last=True)
    right, columns = _matrices(w, rhs, batch[1], inner[1], inner_last=False)
    product = _product(w, op, left, right, kind.dtype)
    return [w.reshape(product, tuple(lhs.shape[d] for d in batch[0]) + rows + columns)]


def _matrices(
    w: Writer, x: Tensor, batch: Sequence[int], inner: Sequence[int], *, inner_last: bool
) -> tuple[Tensor, Shape]:
    """The operand as matrices (batch, ., .) and the extents of its free dimensions.

    The contracted dimensions are the last of the matrix where `inner_last`, else the first.
    """
    free = [d for d in range(len(x.shape)) if d not in (*batch, *inner)]
    order = [*batch, *free, *inner] if inner_last else [*batch, *inner, *free]
    outer = tuple(x.shape[d] for d in batch)
    sizes = [size([x.shape[d] for d in part]) for part in (free, inner)]
    matrix = tuple(sizes if inner_last else sizes[::-1])
    shape = (size(outer), *matrix) if outer else matrix
    return w.reshape(w.transpose(x, order), shape), tuple(x.shape[d] for d in free)


def _product(w: Writer, op: Op, left: Tensor, right: Tensor, dtype: str) -> Tensor:
    shape = (*left.shape[:-1], right.shape[-1])
    if left.dtype in BYTES and right.dtype in BYTES and dtype == "i32":
        return w.node("MatMulInteger", [left, right], dtype, shape)
    if dtype in ("ui64", "i1"):
        raise refused(op, "floats or integers of up to 64 bits with a sign", dtype)
    through = carrier(dtype)
    given = [w.cast(x, through) for x in (left, right)]
    return w.cast(w.node("MatMul", given, through, shape), dtype)


@dataclass(frozen=True, slots=True)
class Window:
    """How the windows of a convolution move; each field has a value for each spatial dimension."""

    kernel: Shape
    strides: Shape
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: Shape
    rhs_dilation: Shape


def convolution(w: Writer, op: Op) -> list[Tensor]:
    """Writes a convolution as Conv, or as ConvTranspose where the input is dilated.

    Both take channels first.
    """
    kind = w.type(op.results[0])
    if not is_float(kind.dtype):
        raise refused(op, "floats", kind.dtype)
    spatial = ints(op, "input_spatial_dimensions")
    order = [number(op, "input_batch_dimension"), number(op, "input_feature_dimension"), *spatial]
    x = w.cast(w.transpose(w.full(op.operands[0]), order), kind.dtype)
    names = ("kernel_output_feature_dimension", "kernel_input_feature_dimension")
    of_kernel = ints(op, "kernel_spatial_dimensions")
    order = [*(number(op, name) for name in names), *of_kernel]
    weights = w.cast(w.transpose(w.full(op.operands[1]), order), kind.dtype)
    weights = _reversed(w, op, weights)
    x, weights, window = _window(w, op, x, weights)
    x, groups = _groups(w, op, x)
    result = _convolved(w, x, weights, window, groups)
    if not spatial:
        result = w.reshape(result, result.shape[:2])
    names = ("output_batch_dimension", "output_feature_dimension")
    order = [*(number(op, name) for name in names), *ints(op, "output_spatial_dimensions")]
    return [w.transpose(result, [order.index(d) for d in range(len(order))])]


def _reversed(w: Writer, op: Op, weights: Tensor) -> Tensor:
    flags = ints(op, "window_reversal")
    return reversed_along(w, weights, [2 + d for d, flag in enumerate(flags) if flag])


def _window(w: Writer, op: Op, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Window]:
    """The images, the weights and the window; all get a spatial dimension if they have none."""
    names = ("window_strides", "lhs_dilation", "rhs_dilation")
    strides, lhs, rhs = (ints(op, name) for name in names)
    padding: tuple[tuple[int, int], ...] = op["padding"]  # type: ignore[assignment]
    if not strides:
        x, weights = (w.reshape(v, (*v.shape, 1)) for v in (x, weights))
        strides, lhs, rhs, padding = (1,), (1,), (1,), ((0, 0),)
    return x, weights, Window(weights.shape[2:], strides, tuple(padding), lhs, rhs)


def _groups(w: Writer, op: Op, x: Tensor) -> tuple[Tensor, int]:
    """The images and the number of feature groups; groups of the batch become such groups."""
    batches = number(op, "batch_group_count")
    if batches == 1:
        return x, number(op, "feature_group_count")
    images, features, *spatial = x.shape
    parts = w.reshape(x, (batches, images // batches, features, *spatial))
    moved = w.transpose(parts, [1, 0, *range(2, len(parts.shape))])
    return w.reshape(moved, (images // batches, batches * features, *spatial)), batches


def _convolved(w: Writer, x: Tensor, weights: Tensor, window: Window, groups: int) -> Tensor:
    """The convolution of images with channels first; negative padding crops them."""
    reach = [d * (k - 1) for d, k in zip(window.rhs_dilation, window.kernel, strict=True)]
    within = all(
        low <= r and high <= r for (low, high), r in zip(window.padding, reach, strict=True)
    )
    if set(window.lhs_dilation) != {1} and set(window.strides) == {1} and within:
        return _transposed(w, x, weights, window, groups)
    zero = w.constant(0, x.dtype)
    x = w.spread(x, [0, 0, *(d - 1 for d in window.lhs_dilation)], zero)
    lows, highs = ([0, 0, *(min(0, p[side]) for p in window.padding)] for side in (0, 1))
    x = w.pad(x, lows, highs, zero)
    pads = [[max(0, p[side]) for p in window.padding] for side in (0, 1)]
    extents = zip(x.shape[2:], *pads, reach, window.strides, strict=True)
    spatial = [(n + low + high - r - 1) // step + 1 for n, low, high, r, step in extents]
    return w.node(
        "Conv", [x, weights], x.dtype, (x.shape[0], weights.shape[0], *spatial),
        kernel_shape=list(window.kernel), strides=list(window.strides), pads=pads[0] + pads[1],
        dilations=list(window.rhs_dilation), group=groups,
    )  # fmt: skip


def _transposed(w: Writer, x: Tensor, weights: Tensor, window: Window, groups: int) -> Tensor:
    """A convolution of a dilated input with strides of 1, as ConvTranspose of the reversed
    kernel."""
    outputs, inputs, *kernel = weights.shape
    parts = w.reshape(weights, (groups, outputs // groups, inputs, *kernel))
    parts = w.transpose(parts, [0, 2, 1, *range(3, len(parts.shape))])
    turned = w.reshape(parts, (groups * inputs, outputs // groups, *kernel))
    turned = reversed_along(w, turned, range(2, len(turned.shape)))
    reach = [d * (k - 1) for d, k in zip(window.rhs_dilation, window.kernel, strict=True)]
    pads = [[r - p[side] for r, p in zip(reach, window.padding, strict=True)] for side in (0, 1)]
    extents = zip(x.shape[2:], window.lhs_dilation, reach, *pads, strict=True)
    spatial = [s * (n - 1) + r + 1 - low - high for n, s, r, low, high in extents]
    return w.node(
        "ConvTranspose", [x, turned], x.dtype, (x.shape[0], outputs, *spatial),
        kernel_shape=kernel, strides=list(window.lhs_dilation), pads=pads[0] + pads[1],
        dilations=list(window.rhs_dilation), group=groups,
    )  # fmt: skip


RULES: dict[str, Rule] = {
    "stablehlo.dot_general": dot_general,
    "stablehlo.convolution": convolution,
}
