"""A Compute run by NumPy, point by point as its definition reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hlotune.hlo.graph import numpy_dtype
from hlotune.schedules.ir.compute import Axis, Compute, Stage
from hlotune.schedules.ir.expr import Affine, Const, Expr, Given, Load

Array = NDArray[Any]

FUNCTIONS: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "power": np.power, "remainder": np.fmod,
    "negate": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor,
    "ceil": np.ceil, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "exponential": np.exp, "tanh": np.tanh, "log": np.log,
    "logistic": special.expit, "erf": special.erf, "erfc": special.erfc, "select": np.where,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
    "clamp": lambda a, x, b: np.clip(x, a, b),
    "compare_EQ": np.equal, "compare_NE": np.not_equal, "compare_LT": np.less,
    "compare_LE": np.less_equal, "compare_GT": np.greater, "compare_GE": np.greater_equal,
}  # fmt: skip


def interpret(compute: Compute, arguments: Sequence[Array]) -> list[Array]:
    """The results of a compute, in the shapes of its tensors."""
    memory = {
        t.name: np.asarray(a).reshape(t.shape)
        for t, a in zip(compute.arguments, arguments, strict=True)
    }
    for t in compute.tensors:
        if t.name not in memory:
            poison = np.full(t.shape, 97, dtype=numpy_dtype(t.dtype))
            memory[t.name] = np.ones(t.shape, bool) if t.role == "guard" else poison
    written = {t.name: np.zeros(t.shape, int) for t in compute.results}
    for stage in compute.stages:
        run(stage, memory, written)
    for name, times in written.items():
        assert (times == 1).all(), f"{name} has elements that are stored {set(times.flat)} times"
    return [memory[t.name] for t in compute.results]


def run(stage: Stage, memory: dict[str, Array], results: Mapping[str, Array]) -> None:
    """`results` counts how often each of their elements is stored."""
    shape = tuple(a.extent for a in stage.axes)
    grid, places = positions(stage, stage.axes), positions(stage, stage.parallel)
    loads = {x: load(x, grid, memory) for x in stage.loads}
    values = [np.broadcast_to(evaluate(e, loads), shape) for e in stage.values]
    if stage.onto:
        merge_onto(stage, grid, values, memory)
        return
    for store, value in zip(stage.stores, reduced(stage, values), strict=True):
        at = tuple(np.broadcast_to(position(e, places), value.shape) for e in store.index)
        limits = zip(at, memory[store.tensor].shape, strict=True)
        inside = np.logical_and.reduce(
            [np.ones(value.shape, bool), *((i >= 0) & (i < n) for i, n in limits)]
        )
        counted = store.tensor in results
        # the last tile or phase of a result may go on beyond its end
        apart = any(len(e.terms) > 1 or abs(c) > 1 for e in store.index for _, c in e.terms)
        passes = counted and (stage.digits or apart)
        assert inside.all() or passes, f"{stage.name} stores outside of {store.tensor}"
        assert value.dtype == memory[store.tensor].dtype, (stage.name, value.dtype)
        place = tuple(i[inside] for i in at)
        memory[store.tensor][place] = value[inside] if at else value.reshape(())
        if counted:
            np.add.at(results[store.tensor], place, 1)


def merge_onto(
    stage: Stage, grid: Mapping[str, Array], values: Sequence[Array], memory: dict[str, Array]
) -> None:
    """Merges each point, in order, into what stands at its place."""
    merge = {"sum": np.add, "max": np.maximum, "min": np.minimum}[str(stage.combine)]
    for store, value in zip(stage.stores, values, strict=True):
        places = {y.name: np.clip(load(y.load, grid, memory), 0, y.most) for y in store.lookups}
        whole = {**grid, **{name: at.astype(np.int64) for name, at in places.items()}}
        at = tuple(np.broadcast_to(position(e, whole), value.shape) for e in store.index)
        merge.at(memory[store.tensor], at, value)


def positions(stage: Stage, axes: Sequence[Axis]) -> dict[str, Array]:
    """For every point of some axes its position along each of them, and along their digits.

    Positions along one axis are one array along it, which NumPy repeats along the others.
    """
    along = np.indices(tuple(a.extent for a in axes), sparse=True)
    grid: dict[str, Array] = dict(zip((a.name for a in axes), along, strict=True))
    for k, x in enumerate(stage.digits):
        is_first = not any(y.axis == x.axis for y in stage.digits[:k])
        whole = grid[x.axis] // x.below
        grid[x.name] = whole if is_first else whole % x.extent
    return grid


def reduced(stage: Stage, values: Sequence[Array]) -> list[Array]:
    """Over all axes but the parallel ones, one point after the other."""
    found, parallel = list[Array](), len(stage.parallel)
    monoid = stage.combine
    if monoid is None:
        return list(values)
    for group in stage.groups:
        dtypes = tuple(stage.values[k].dtype for k in group)
        flat = [values[k].reshape(*values[k].shape[:parallel], -1) for k in group]
        state = [np.full(flat[0].shape[:-1], constant(c)) for c in monoid.identities(dtypes)]
        merged = monoid.merged(dtypes)
        for n in range(flat[0].shape[-1]):
            at_hand = [*state, *(v[..., n] for v in flat)]
            state = [evaluate(e, {}, at_hand) for e in merged]
        found += state
    return found


def constant(c: Const) -> Array:
    return np.asarray(c.value, dtype=numpy_dtype(c.dtype))


def position(e: Affine, grid: Mapping[str, Array]) -> Array:
    return np.asarray(sum((c * grid[a] for a, c in e.terms), start=np.asarray(e.constant)))


def evaluate(expr: Expr, loads: Mapping[Load, Array], given: Sequence[Array] = ()) -> Array:
    if isinstance(expr, Const):
        return constant(expr)
    if isinstance(expr, Load):
        return loads[expr]
    if isinstance(expr, Given):
        return given[expr.position]
    args = [evaluate(a, loads, given) for a in expr.args]
    assert expr.op in ("convert", "select") or len({a.dtype for a in args}) == 1, str(expr)
    result = args[0] if expr.op == "convert" else FUNCTIONS[expr.op](*args)
    return np.asarray(result).astype(numpy_dtype(expr.dtype))


def load(x: Load, grid: Mapping[str, Array], memory: Mapping[str, Array]) -> Array:
    tensor = memory[x.tensor]
    looked_up = {y.name: np.clip(load(y.load, grid, memory), 0, y.most) for y in x.lookups}
    grid = {**grid, **{name: at.astype(np.int64) for name, at in looked_up.items()}}
    assert numpy_dtype(x.dtype) == tensor.dtype
    assert len(x.index) == tensor.ndim
    real, at = where_real(x, grid, tensor.shape)
    if x.beside is not None:
        real = real & where_real(x.beside, grid, memory[x.beside.tensor].shape)[0]
    value = tensor[tuple(at)] if at else tensor
    return np.where(real, value, np.asarray(x.outside, dtype=tensor.dtype))


def where_real(x: Load, grid: Mapping[str, Array], shape: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """Where a load is real, and the places it reads, moved inside where it is not."""
    real: Any = np.True_
    at = []
    for d, e in enumerate(x.index):
        quotient = position(e, grid)
        if (divisor := x.divisor(d)) > 1:
            quotient, rest = np.divmod(quotient, divisor)
            real = real & (rest == 0)
        real = real & (quotient >= 0) & (quotient < shape[d])
        at.append(np.clip(quotient, 0, shape[d] - 1))
    return real, at
