"""Reductions over whole dimensions and over windows."""

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from hlotune.deploy.to_onnx.elementwise import carrier, combined
from hlotune.deploy.to_onnx.writer import Rule, Shape, Tensor, Writer, ints, refused, size
from hlotune.hlo.graph import Op, numpy_dtype
from hlotune.hlo.oracle.window import monoids
from hlotune.hlo.to_compute.cumulative import cumulative
from hlotune.hlo.to_compute.reductions import name_of_region
from hlotune.schedules.dtypes import is_float

OPERATORS = {
    "add": "ReduceSum", "multiply": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin",
    "or": "ReduceMax", "and": "ReduceMin",
}  # fmt: skip
OF_TRUTHS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
OPERATIONS = {"or": "maximum", "and": "minimum"}
"""The operation on numbers 0 and 1 that stands for an operation on truth values."""
MOST_SPATIAL = 3


def reduce(w: Writer, op: Op) -> list[Tensor]:
    names = monoids(op.regions[0])
    if names is None:
        return _arg_extreme(w, op)
    count = len(op.results)
    pairs = zip(names, op.operands[:count], op.operands[count:], strict=True)
    return [_reduced(w, op, name, x, start) for name, x, start in pairs]


def _reduced(w: Writer, op: Op, name: str, value: int, start: int) -> Tensor:
    kind, axes = w.type(value), ints(op, "dimensions")
    truths = kind.dtype == "i1"
    name = OF_TRUTHS.get(name, name) if truths else name
    if name not in OPERATORS or (name in OPERATIONS and not truths):
        raise refused(op, "sums, products or extremes", name)
    if kind.dtype == "ui64":
        raise refused(op, "integers with a sign", kind.dtype)
    through = "i32" if truths else carrier(kind.dtype)
    x, shape = w.cast(w.full(value), through), w.type(op.results[0]).shape
    reduced = x
    if axes:
        reduced = w.node(OPERATORS[name], [x, w.numbers(axes)], through, shape, keepdims=0)
    reduced = w.cast(reduced, kind.dtype)
    if _is_identity(w, name, start):
        return reduced
    merge = OPERATIONS.get(name, name)
    return combined(w, merge, [reduced, w.full(start)])


def identity(name: str, dtype: str) -> float | int:
    """The identity of a reduction: the number that it begins at."""
    if name in ("add", "or", "multiply", "and"):
        return int(name in ("multiply", "and"))
    sign = -1 if name == "maximum" else 1
    if is_float(dtype):
        return sign * float("inf")
    limits: Any = np.iinfo(str(numpy_dtype(dtype)))
    return int(limits.min if sign < 0 else limits.max)


def _is_identity(w: Writer, name: str, start: int) -> bool:
    known, dtype = w.literal(start), w.type(start).dtype
    if known is None or (dtype == "i1" and name not in ("or", "and")):
        return False
    return bool(known.reshape(-1)[0] == identity(name, dtype))


def _arg_extreme(w: Writer, op: Op) -> list[Tensor]:
    """The largest or least element along one dimension, and the first place that has it."""
    name, axes = name_of_region(op.regions[0]), ints(op, "dimensions")
    if name not in ("argmax", "argmin") or len(op.results) != 2 or len(axes) != 1:
        raise refused(op, "a sum, product, extreme or its place", "another body")
    x, places = w.full(op.operands[0]), w.literal(op.operands[1])
    line = [x.shape[d] if d == axes[0] else 1 for d in range(len(x.shape))]
    if places is None or not np.array_equal(places, np.arange(x.shape[axes[0]]).reshape(line)):
        raise refused(op, "places that count up along the dimension", "other values")
    if x.dtype not in ("f32", "f64", "i32", "f16", "i8", "ui8"):
        raise refused(op, "places of floats or of i32", x.dtype)
    shape, largest = w.type(op.results[0]).shape, name == "argmax"
    operators = ("ReduceMax", "ArgMax") if largest else ("ReduceMin", "ArgMin")
    extreme = w.node(operators[0], [x, w.numbers(axes)], x.dtype, shape, keepdims=0)
    place = w.node(operators[1], [x], "i64", shape, axis=axes[0], keepdims=0)
    return [extreme, w.cast(place, w.type(op.results[1]).dtype)]


def reduce_window(w: Writer, op: Op) -> list[Tensor]:
    names = monoids(op.regions[0])
    if names is None:
        raise refused(op, "sums or extremes of windows", "another body")
    count = len(op.results)
    pairs = zip(names, op.operands[:count], op.operands[count:], strict=True)
    return [_windows(w, op, name, x, start) for name, x, start in pairs]


def _windows(w: Writer, op: Op, name: str, value: int, start: int) -> Tensor:
    x, dtype = w.full(value), w.type(value).dtype
    along = cumulative(w.graph, op)
    if along is not None and name == "add" and _is_identity(w, name, start):
        wide, axis = w.cast(x, carrier(dtype)), w.constant(along.dimension, "i64")
        sums = w.node("CumSum", [wide, axis], wide.dtype, x.shape, reverse=int(along.reverse))
        return w.cast(sums, dtype)
    if name not in ("add", "maximum", "minimum"):
        raise refused(op, "sums or extremes of windows", name)
    if dtype not in ("f32", "f16", "f64") or (name == "add" and dtype == "f64"):
        raise refused(op, "windows of f32", dtype)
    pools = Pools.of(w, op, x, start)
    if name == "add":
        if not _is_identity(w, name, start):
            raise refused(op, "sums that begin at 0", "another start")
        return pools.sums()
    return pools.extremes(name, start, _is_identity(w, name, start))


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows lie; each field has a value for each dimension."""

    sizes: Shape
    strides: Shape
    dilations: Shape
    padding: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, op: Op) -> "Windows":
        names = dict(op.attributes)
        ones = (1,) * len(ints(op, "window_dimensions"))
        dilations = ints(op, "window_dilations") if "window_dilations" in names else ones
        padding = cast(tuple[tuple[int, int], ...], op["padding"])
        strides = ints(op, "window_strides")
        return cls(ints(op, "window_dimensions"), strides, dilations, padding)

    @property
    def spatial(self) -> list[int]:
        """The dimensions along which windows extend, move or are padded."""
        each = enumerate(zip(self.sizes, self.strides, self.padding, strict=True))
        return [d for d, (n, step, pair) in each if n > 1 or step > 1 or pair != (0, 0)]

    @property
    def are_within(self) -> bool:
        """Whether no window is all padding, and no padding is negative, which would crop."""
        reach = [d * (k - 1) for d, k in zip(self.dilations, self.sizes, strict=True)]
        pairs = zip(self.padding, reach, strict=True)
        return all(0 <= p <= r for pair, r in pairs for p in pair)


class Pools:
    """Pooling of a tensor over windows; the tensor is viewed as images with channels first."""

    def __init__(self, w: Writer, op: Op, x: Tensor, windows: Windows) -> None:
        self.w, self.op, self.x, self.windows, self.shape = w, op, x, windows, x.shape
        self.spatial = windows.spatial
        self.others = [d for d in range(len(x.shape)) if d not in self.spatial]
        if len(self.spatial) > MOST_SPATIAL:
            raise refused(op, f"windows over up to {MOST_SPATIAL} dimensions", len(self.spatial))

    @classmethod
    def of(cls, w: Writer, op: Op, x: Tensor, start: int) -> "Pools":
        """The pooling of `x` by `op`; pooling does not dilate its input, so that is written first,
        and so is padding that is negative or as wide as a window."""
        value, windows = w.full(start), Windows.of(op)
        x = w.spread(x, [d - 1 for d in ints(op, "base_dilations")], value)
        if windows.are_within:
            return cls(w, op, x, windows)
        lows, highs = zip(*windows.padding, strict=True)
        return cls(
            w, op, w.pad(x, lows, highs, value), replace(windows, padding=((0, 0),) * len(lows))
        )

    def images(self, x: Tensor) -> Tensor:
        """The tensor as images: the first other dimension is the batch, the rest are channels."""
        outer = [self.shape[d] for d in self.others]
        image = tuple(self.shape[d] for d in self.spatial) or (1,)
        moved = self.w.transpose(x, [*self.others, *self.spatial])
        return self.w.reshape(moved, (size(outer[:1]), size(outer[1:]), *image))

    def back(self, x: Tensor, shape: Shape) -> Tensor:
        """Images with channels first, turned back into a tensor of this shape."""
        order = [*self.others, *self.spatial]
        whole = self.w.reshape(x, tuple(shape[d] for d in order))
        return self.w.transpose(whole, [order.index(d) for d in range(len(order))])

    def pooled(self, operator: str, x: Tensor, **attributes: object) -> Tensor:
        return self.several(operator, x, 1, **attributes)[0]

    def several(self, operator: str, x: Tensor, count: int, **attributes: object) -> list[Tensor]:
        """The results of a pooling, as images; the second one, if asked for, holds places."""
        images, windows = self.images(x), self.windows
        pads = [[windows.padding[d][side] for d in self.spatial] or [0] for side in (0, 1)]
        shape = (*images.shape[:2], *self._extents())
        return self.w.several(
            operator, [images], [(x.dtype, shape), ("i64", shape)][:count],
            kernel_shape=self._of(windows.sizes), strides=self._of(windows.strides),
            pads=pads[0] + pads[1], **attributes,
        )  # fmt: skip

    def _of(self, values: Shape) -> list[int]:
        return [values[d] for d in self.spatial] or [1]

    def _extents(self) -> list[int]:
        """The extents of the result along the spatial dimensions; [1] if there are none."""
        w = self.windows
        return [
            (self.shape[d] + sum(w.padding[d]) - w.dilations[d] * (w.sizes[d] - 1) - 1)
            // w.strides[d]
            + 1
            for d in self.spatial
        ] or [1]

    def extremes(self, name: str, start: int, at_identity: bool) -> Tensor:
        w, shape = self.w, self.w.type(self.op.results[0]).shape
        x = w.of("Neg", self.x) if name == "minimum" else self.x
        pooled = self.pooled("MaxPool", x, dilations=self._of(self.windows.dilations))
        found = self.back(pooled, shape)
        found = w.of("Neg", found) if name == "minimum" else found
        return found if at_identity else combined(w, name, [found, w.full(start)])

    def sums(self) -> Tensor:
        """The sums of windows: means that count the zeros at the edge, times the window's size."""
        if any(self.windows.dilations[d] > 1 for d in self.spatial):
            raise refused(self.op, "sums of windows without dilation", self.windows.dilations)
        pooled = self.pooled("AveragePool", self.x, count_include_pad=1)
        means = self.back(pooled, self.w.type(self.op.results[0]).shape)
        count = self.w.constant(size(self.windows.sizes), means.dtype)
        return self.w.of("Mul", means, count)

    def added_at_extremes(self, updates: Tensor) -> Tensor:
        """The sums of updates, one per window, each put where its window's largest element is."""
        w, line = self.w, (size(self.shape),)
        _, places = self.several("MaxPool", self.x, 2)
        zeros = w.expand(w.constant([0], self.x.dtype), line)
        moved = w.transpose(updates, [*self.others, *self.spatial])
        given = [w.reshape(x, (size(updates.shape),)) for x in (places, moved)]
        added = w.node(
            "ScatterElements", [zeros, *given], self.x.dtype, line, axis=0, reduction="add"
        )
        return self.back(added, self.shape)


def select_and_scatter(w: Writer, op: Op) -> list[Tensor]:
    """Writes the gradient of a pooling that takes the largest elements."""
    select, body = op.regions
    picks = [o for o in select.ops if o.name == "stablehlo.compare"]
    largest = len(select.ops) == 1 and picks and picks[0].operands == select.arguments
    if not largest or picks[0]["comparison_direction"] not in ("GE", "GT"):
        raise refused(op, "a choice of the largest element", "another")
    if monoids(body) != ("add",) or not _is_identity(w, "add", op.operands[2]):
        raise refused(op, "updates that are added up from 0", "others")
    x, windows = w.full(op.operands[0]), Windows.of(op)
    if x.dtype != "f32" or not windows.are_within:
        raise refused(op, "windows of f32 that are not all padding", f"{x.dtype}, {windows}")
    return [Pools(w, op, x, windows).added_at_extremes(w.full(op.operands[1]))]


RULES: dict[str, Rule] = {
    "stablehlo.reduce": reduce,
    "stablehlo.reduce_window": reduce_window,
    "stablehlo.select_and_scatter": select_and_scatter,
}
