"""Exponentials of what is known to be zero or less."""

from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import COLUMN, ROW
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import host_target
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Apply, Load
from hlotune.schedules.ir.monoids import MAX
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
FARTHEST = {"f32": 110.0, "f64": 760.0}
ULPS = {"f32": 1.41, "f64": 1.2}


def exponentials(shape: tuple[int, ...], dtype: str) -> Compute:
    """Each element less the largest of its row, and the exponential of that."""
    rows, columns = shape
    i, j = Axis("i", rows), Axis("j", columns)
    x, top = Load("a0", (ROW, COLUMN), dtype), Load("top", (ROW,), dtype)
    power = Apply("exponential", (Apply("subtract", (x, top), dtype),), dtype)
    stages = (
        Stage("top", (i,), (j,), (Store("top", (ROW,)),), (x,), MAX),
        Stage("out", (i, j), (), (Store("y0", (ROW, COLUMN)),), (power,)),
    )
    tensors = (
        Tensor("a0", (rows, columns), dtype, "argument"),
        Tensor("y0", (rows, columns), dtype, "result"), Tensor("top", (rows,), dtype, "temporary"),
    )  # fmt: skip
    return Compute(tensors, stages)


def of(x: Array) -> Array:
    dtype = {4: "f32", 8: "f64"}[x.dtype.itemsize]
    compute = exponentials(x.shape, dtype)
    space = space_of(compute, host_target())
    found: Array = called(compute, space.schedule(space.heuristic()).steps, [x])[0]
    return found.reshape(x.shape)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [4096, 4099])
def test_are_as_near_as_any_down_to_the_least_number(columns: int, dtype: str) -> None:
    rng, kind = np.random.default_rng(columns), numpy_dtype(dtype)
    x = -(rng.uniform(0, 1, (16, columns)) ** 3) * FARTHEST[dtype]
    x[:, 0] = 0
    x = x.astype(kind)
    wanted = np.exp(x.astype(np.longdouble))
    apart = np.abs(of(x) - wanted) / np.spacing(np.abs(wanted.astype(kind)))
    assert apart.max() <= ULPS[dtype]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_edges_are_those_of_numpy(dtype: str) -> None:
    x = np.zeros((1, 64), numpy_dtype(dtype))
    x[0, 1:5] = -np.inf, -1e30, -FARTHEST[dtype], -0.0
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(of(x), np.exp(x))


@pytest.mark.parametrize("payload", [0x7FC00001, 0x7F800001, 0xFFC00155, 0x7FFFFFFF, 0xFFC00000])
def test_what_is_no_number_has_none_whatever_its_bits(payload: int) -> None:
    x = np.zeros((4, 64), np.float32)
    x.view(np.uint32)[2, 5] = payload
    found = of(x)
    assert np.isnan(found[2, 5])
    np.testing.assert_array_equal(found[[0, 1, 3]], 1)


def test_rows_of_infinities_are_as_in_numpy() -> None:
    x = np.zeros((3, 64), np.float32)
    x[0], x[1, 3] = -np.inf, np.inf
    with np.errstate(all="ignore"):
        wanted = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_array_equal(of(x), wanted)
