"""Exponentials of what is known to be zero or less."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import COLUMN, ROW
from hlotune.codegen.build import build
from hlotune.codegen.llvm.math.tables import FEATURE, looks_up_eight
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.buffers import guarded, rounded
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Apply, Load
from hlotune.schedules.ir.monoids import MAX
from hlotune.schedules.spaces.cpu_rows.space import space_of
from tests.support.reductions import called

Array = np.ndarray[Any, Any]
FARTHEST = {"f32": 110.0, "f64": 760.0}
SHORT = looks_up_eight(host_target().features)
LONG = FEATURE in host_target().features
ULPS = {"f32": 1.41 if SHORT else 1.76 if LONG else 1.2, "f64": 1.2}
"""Units of the last place of what is right: by eighths, as AVX2 looks them up, a little more, and
by 32nds and a quadratic polynomial, as AVX-512 does, still more."""
ZERO, LEAST = 0x80000000, 0xC2D00000
"""The bits of -0 and of -104, whose exponential is no number any more but zero."""
NEAR_ZERO = -(2.0**-26)
ROWS, COLUMNS = 64, 65_536


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


def one_kernel(shape: tuple[int, int]) -> Callable[[Array], Array]:
    """What computes exponentials of one shape of f32, built once."""
    compute, target = exponentials(shape, "f32"), host_target()
    space = space_of(compute, target)
    loaded = load(build(compute, space.schedule(space.heuristic()), target))
    given, result = (guarded(4 * shape[0] * shape[1], "behind") for _ in range(2))
    scratch = guarded(rounded(loaded.built.scratch_bytes), "behind")

    def exponential(x: Array) -> Array:
        given.array(shape, x.dtype)[...] = x
        addresses = [given.address], [result.address], scratch.address
        assert loaded.call(KERNEL, *addresses, serial()) == 0
        return result.array(shape, x.dtype)

    return exponential


def units_apart(found: Array, wanted: Array) -> float:
    """The farthest of what was found from what is right, in units of the last place of its type."""
    return float((np.abs(found - wanted) / np.spacing(wanted.astype(found.dtype))).max())


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("columns", [4096, 4099])
def test_are_as_near_as_any_down_to_the_least_number(columns: int, dtype: str) -> None:
    rng, kind = np.random.default_rng(columns), numpy_dtype(dtype)
    x = -(rng.uniform(0, 1, (16, columns)) ** 3) * FARTHEST[dtype]
    x[:, 0] = 0
    x = x.astype(kind)
    assert units_apart(of(x), np.exp(x.astype(np.longdouble))) <= ULPS[dtype]


@pytest.mark.slow
def test_no_f32_from_minus_104_to_zero_is_farther_from_what_is_right() -> None:
    """All of them, in blocks, by one kernel; the first element of each row is its largest, zero.

    What is so near zero that its exponential is one within a quarter of the last place must be one.
    """
    x = np.zeros((ROWS, COLUMNS), np.float32)
    exponential, step = one_kernel(x.shape), ROWS * (COLUMNS - 1)
    farthest = 0.0
    for start in range(ZERO, LEAST + 1, step):
        bits = np.minimum(np.arange(start, start + step), LEAST).astype(np.uint32)
        x[:, 1:] = bits.view(np.float32).reshape(ROWS, COLUMNS - 1)
        if x.min() > NEAR_ZERO:
            assert (exponential(x) == 1).all()
        else:
            farthest = max(farthest, units_apart(exponential(x), np.exp(x.astype(np.float64))))
    assert 0.5 <= farthest <= ULPS["f32"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_edges_are_those_of_numpy(dtype: str) -> None:
    x = np.zeros((1, 64), numpy_dtype(dtype))
    x[0, 1:5] = -np.inf, -1e30, -FARTHEST[dtype], -0.0
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(of(x), np.exp(x))


def test_what_is_far_below_has_a_positive_zero() -> None:
    x = np.zeros((2, 4096), np.float32)
    x[:, 1:] = -np.logspace(2.1, 38.4, 4095, dtype=np.float32)
    x[1, -1] = -np.inf
    np.testing.assert_array_equal(of(x)[:, 1:].view(np.uint32), 0)


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
