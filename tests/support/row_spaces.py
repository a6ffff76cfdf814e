"""Kernels without a contraction, and whether a schedule of theirs computes what the stages say."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.row_kernels import (
    OF_ROWS,
    heads,
    over_all,
    over_columns,
    over_rows,
    softmax,
)
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Const, Expr, Load, map_loads
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace
from hlotune.schedules.spaces.cpu_rows.space import space_of as rows_space_of
from tests.support.interpreter import interpret
from tests.support.reductions import called


def shifted(rows: int, columns: int) -> Compute:
    """The row above where there is one, and the next element: loads leave along both axes."""
    row, column = Affine.axis("i"), Affine.axis("j")
    above, here = Load("a0", (row + -1, column), "f32"), Load("inside", (row + -1,), "i1")
    chosen = Apply("select", (here, above, Const(2.0, "f32")), "f32")
    value = Apply("add", (chosen, Load("a0", (row, column + 1), "f32")), "f32")
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), (), (Store("y0", (row, column)),),
                  (value,))  # fmt: skip
    shape = (rows, columns)
    tensors = (Tensor("a0", shape, "f32", "argument"), Tensor("y0", shape, "f32", "result"),
               Tensor("inside", (rows - 1,), "i1", "guard"))  # fmt: skip
    return Compute(tensors, (stage,))


def grouped(images: int, positions: int, groups: int, channels: int) -> Compute:
    """Each element less the sum of its group: channels that lie together, at all positions."""
    image, group, position, channel = map(Affine.axis, "igpc")
    place = (image, position, group * channels + channel)
    x, total = Load("a0", place, "f32"), Load("t", (image, group), "f32")
    outer, inner = (
        (Axis("i", images), Axis("g", groups)),
        (Axis("p", positions), Axis("c", channels)),
    )
    summed = Stage("sum", outer, inner, (Store("t", (image, group)),), (x,), SUM)
    less = Apply("subtract", (x, total), "f32")
    axes = (outer[0], inner[0], outer[1], inner[1])
    out = Stage("out", axes, (), (Store("y0", place),), (less,))
    shape = (images, positions, groups * channels)
    tensors = (Tensor("a0", shape, "f32", "argument"), Tensor("y0", shape, "f32", "result"),
               Tensor("t", (images, groups), "f32", "temporary"))  # fmt: skip
    return Compute(tensors, (summed, out))


KERNELS = {
    "shifted": shifted(19, 71),
    "softmax": OF_ROWS["softmax"](19, 70), "layer_norm": OF_ROWS["layer_norm"](21, 33),
    "over_columns": over_columns(33, 129), "over_rows": over_rows(129, 33),
    "over_all": over_all(1023), "argmax": OF_ROWS["argmax"](7, 131),
    "transpose": OF_ROWS["transpose"](33, 70), "heads": heads(5, 7, 19),
    "biased": OF_ROWS["biased"](31, 97), "centred_columns": OF_ROWS["centred_columns"](37, 41),
    "one row": softmax(1, 7), "one column": softmax(5, 1), "one element": softmax(1, 1),
}  # fmt: skip


def drawn(compute: Compute, seed: int = 0) -> list[NDArray[Any]]:
    """Small integers, or in floats normal numbers; tables of numbers count."""
    rng, found = np.random.default_rng(seed), []
    for t in compute.arguments:
        kind = numpy_dtype(t.dtype)
        if t.dtype == "i32" and t.name == "a1":
            values: NDArray[Any] = np.arange(t.elements)
        elif is_float(t.dtype):
            values = rng.standard_normal(t.shape)
        else:
            values = rng.integers(0, 2 if t.dtype == "i1" else 4, t.shape)
        found.append(values.reshape(t.shape).astype(kind))
    return found


def agree(compute: Compute, found: list[NDArray[Any]], wanted: list[NDArray[Any]]) -> None:
    for t, a, b in zip(compute.results, found, wanted, strict=True):
        if is_float(t.dtype):
            tolerance = {"f64": 1e-11, "f32": 3e-5}.get(t.dtype, 0.04)
            wide: NDArray[np.float64] = b.astype(np.float64)
            near = np.testing.assert_allclose
            near(a.astype(np.float64), wide, rtol=tolerance, atol=20 * tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def rows_space(compute: Compute) -> RowsSpace:
    return rows_space_of(compute, host_target())


def check(compute: Compute, space: RowsSpace, config: NDArray[np.int32]) -> None:
    arguments = drawn(compute)
    found = called(compute, space.schedule(config).steps, arguments)
    agree(compute, found, interpret(compute, arguments))


def two_softmaxes(rows: int, columns: int) -> Compute:
    """The sum of the softmaxes of two arguments: two arrays of exponentials of its shape."""
    first, second = softmax(rows, columns), _renamed(softmax(rows, columns))
    *before, out = first.stages
    *others, last = second.stages
    value = Apply("add", (out.values[0], last.values[0]), "f32")
    tensors = (*first.tensors, *(t for t in second.tensors if t.role != "result"))
    return Compute(tensors, (*before, *others, replace(out, values=(value,))))


def _renamed(compute: Compute) -> Compute:
    """The same with other names of stages and of what they read and store, but for the result."""
    names = {t.name: f"{t.name}x" for t in compute.tensors if t.role != "result"}

    def stage(s: Stage) -> Stage:
        loads: dict[Load, Expr] = {x: replace(x, tensor=names[x.tensor]) for x in s.loads}
        stores = tuple(replace(x, tensor=names.get(x.tensor, x.tensor)) for x in s.stores)
        values = tuple(map_loads(v, loads) for v in s.values)
        return replace(s, name=f"{s.name}x", stores=stores, values=values)

    tensors = tuple(replace(t, name=names.get(t.name, t.name)) for t in compute.tensors)
    return Compute(tensors, tuple(map(stage, compute.stages)))
