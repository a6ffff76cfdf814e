"""Reductions by any monoid as computes that are built by hand, and calls of what they become."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.codegen.build import build
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL, Host, load
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.buffers import Placement, guarded, rounded
from hlotune.schedules.ir.compute import Axis, Compute, Role, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Const, Expr, Load
from hlotune.schedules.ir.monoids import ARGMAX, ARGMIN, MOMENTS, SOFTMAX, Monoid
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Step
from hlotune.schedules.targets.cpu import CpuTarget

Array = NDArray[Any]
ROW, COLUMN = Affine.axis("i"), Affine.axis("r")


@dataclass(frozen=True, slots=True)
class Kind:
    """What is reduced: the monoid, the types of its parts, and the tuple of one element."""

    monoid: Monoid
    dtypes: tuple[str, ...]
    element: Callable[[Expr, Expr], tuple[Expr, ...]]
    """What is merged, as expressions of the element of a row and of its number."""

    def __str__(self) -> str:
        return f"{self.monoid} of {' '.join(self.dtypes)}"


def plain(monoid: Monoid, dtype: str) -> Kind:
    return Kind(monoid, (dtype,), lambda x, _: (x,))


def argmax(dtype: str, index: str = "i32") -> Kind:
    return Kind(ARGMAX, (dtype, index), lambda x, r: (x, r))


def argmin(dtype: str, index: str = "i32") -> Kind:
    return Kind(ARGMIN, (dtype, index), lambda x, r: (x, r))


def moments(dtype: str) -> Kind:
    one, zero = Const(1.0, dtype), Const(0.0, dtype)
    return Kind(MOMENTS, (dtype,) * 3, lambda x, _: (one, x, zero))


def softmax(dtype: str) -> Kind:
    return Kind(SOFTMAX, (dtype,) * 2, lambda x, _: (x, Const(1.0, dtype)))


def of_rows(kind: Kind, rows: int, columns: int, *, finished: bool = False) -> Compute:
    """`y0[i], y1[i], ... = monoid over r of the element x[i, r]`, its number read of a table.

    Finished, the results are what a last stage makes of these.
    """
    x = Load("a0", (ROW, COLUMN), kind.dtypes[0])
    number = Load("a1", (COLUMN,), kind.dtypes[-1])
    names = tuple(f"t{k}" if finished else f"y{k}" for k in range(len(kind.dtypes)))
    stages = [Stage(
        "all", (Axis("i", rows),), (Axis("r", columns),),
        tuple(Store(name, (ROW,)) for name in names), kind.element(x, number), kind.monoid,
    )]  # fmt: skip
    tensors = [
        Tensor("a0", (rows, columns), kind.dtypes[0], "argument"),
        Tensor("a1", (columns,), kind.dtypes[-1], "argument"),
    ]
    role: Role = "temporary" if finished else "result"
    tensors += [Tensor(n, (rows,), t, role) for n, t in zip(names, kind.dtypes, strict=True)]
    if finished and kind.monoid.finish:
        parts = zip(names, kind.dtypes, strict=True)
        values = kind.monoid.finish(tuple(Load(name, (ROW,), t) for name, t in parts))
        stores = tuple(Store(f"y{k}", (ROW,)) for k in range(len(values)))
        tensors += [
            Tensor(x.tensor, (rows,), v.dtype, "result")
            for x, v in zip(stores, values, strict=True)
        ]
        stages.append(Stage("out", (Axis("i", rows),), (), stores, values))
    return Compute(tuple(tensors), tuple(stages))


def called(
    compute: Compute,
    steps: Sequence[Step],
    arguments: Sequence[Array],
    host: Host | None = None,
    placement: Placement = "behind",
    target: CpuTarget | None = None,
) -> list[Array]:
    """The results of one call on guarded, poisoned buffers, all of them intact; built for this
    machine where no target is given."""
    loaded = load(build(compute, Schedule("direct", tuple(steps)), target or host_target()))
    given = [guarded(a.nbytes, placement) for a in arguments]
    for buffer, value in zip(given, arguments, strict=True):
        buffer.data[...] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    results = [guarded(t.bytes, placement) for t in compute.results]
    scratch = guarded(rounded(loaded.built.scratch_bytes), placement)
    into, out = ([b.address for b in part] for part in (given, results))
    assert loaded.call(KERNEL, into, out, scratch.address, host or serial()) == 0
    assert all(b.intact for b in (*given, *results, scratch)), "a write beside a buffer"
    pairs = zip(results, compute.results, strict=True)
    return [b.array(t.shape, numpy_dtype(t.dtype)) for b, t in pairs]
