"""Along which axes a stage has vectors, and rows of them written out: its *forms*."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from math import ceil, log2

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.borders import guarded
from hlotune.schedules.ir.compute import Compute, Stage, Store
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import Affine, Apply, Expr, only_moves
from hlotune.schedules.targets.cpu import CpuTarget

MOST_VECTOR_AXES = 3
MOST_ROW_AXES = 2
APART, STORED_APART = 8.0, 12.0
"""The cost of a vector whose elements are loaded, or stored, one by one, in whole vectors."""
TURNED = 3.0
"""The same where rows of vectors are turned in registers and stored together."""
CHAINS = 8
"""Vectors of results in registers that hide the latency of a reduction."""


@dataclass(frozen=True, slots=True)
class Form:
    vector: str
    """The axis along which the lanes of a vector lie; "" where the stage has no axes."""
    row: str
    """The parallel axis along which vectors are written out; "" where there is none."""
    reduces: bool
    """Whether the lanes are points of a reduction."""


def lanes_of(compute: Compute, stage: Stage, target: CpuTarget) -> int:
    """Elements of the widest type that a stage computes with, in a vector."""
    types = {compute.tensor(name).dtype for name in touched(stage)}
    types |= {x for value in stage.values for x in _types(value)}
    widest = max(BYTES[t] for t in types)
    return max(1, target.vector_bytes // widest)


def touched(stage: Stage) -> set[str]:
    """The tensors that a stage loads from or stores to."""
    return {x.tensor for x in stage.loads} | stage.stored


def _types(value: Expr) -> set[str]:
    found, waiting, seen = set[str](), [value], set[int]()
    while waiting:
        expr = waiting.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        found.add(expr.dtype)
        if isinstance(expr, Apply):
            waiting += expr.args
    return found


def forms_of(compute: Compute, stage: Stage, lanes: int) -> tuple[Form, ...]:
    """The forms of a stage, the cheapest first."""
    digits = {x.axis for x in stage.digits}
    reduce = {a.name for a in stage.reduce}
    names = [a.name for a in stage.axes if a.name not in digits]
    parallel = [a.name for a in stage.parallel if a.name not in digits]
    costs = {a: cost(compute, stage, a, lanes) for a in names}
    found = []
    for v in sorted(names, key=lambda a: costs[a])[:MOST_VECTOR_AXES]:
        others = sorted(
            (a for a in parallel if a != v), key=lambda a: _row_rank(compute, stage, v, a)
        )
        found += [Form(v, w, v in reduce) for w in (others[:MOST_ROW_AXES] or [""])]
    return tuple(found) or (Form("", "", False),)


def tiles_along(stage: Stage, form: Form, lanes: int) -> int:
    """Register tiles along the results that the lanes of a stage lie along; 1 for other lanes."""
    if not form.vector or form.reduces:
        return 1
    return ceil(stage.extents[form.vector] / (CHAINS * lanes))


def cost(compute: Compute, stage: Stage, axis: str, lanes: int) -> float:
    """Vectors' worth of accesses of one vector along an axis, wasted lanes included."""
    guards = {t.name for t in compute.tensors if t.role == "guard"}
    loads = [x for x in stage.walked_loads if x.tensor not in guards]
    steps = [abs(_stride(compute, x.tensor, x.index, axis)) for x in loads]
    read = [(0.1, 1.0)[n] if n <= 1 else APART for n in steps]
    if len(read) > 1 and all(only_moves(v, guards) for v in stage.values):
        total = 0.1 + _chosen(stage, guards, axis, lanes, read)
    else:
        total = 0.1 + sum(read)
    reduces = all(a.name != axis for a in stage.parallel)
    if reduces and stage.scans:
        total += log2(max(2, lanes))
    for s in () if reduces and not stage.scans else stage.stores:
        apart = abs(_stride(compute, s.tensor, s.index, axis))
        total += 1.0 if apart == 1 else _stored_apart(compute, stage, s, axis)
    extent = stage.extents[axis]
    full = ceil(extent / lanes) * lanes / extent
    # lanes of a reduction are merged at its end
    return total * full + (2.0 * lanes / extent if reduces and not stage.scans else 0.0)


def _chosen(stage: Stage, guards: Set[str], axis: str, lanes: int, read: Sequence[float]) -> float:
    """The cost of loads of which guards choose one: of all, where lanes choose differently."""
    along = [x for x in stage.loads if x.tensor in guards and axis in x.axes]
    short = stage.extents[axis] < lanes * (len(along) + 1)
    return sum(max(1.0, n) for n in read) if short and len(along) > 2 else max(read)


def _stored_apart(compute: Compute, stage: Stage, s: Store, axis: str) -> float:
    others = [a.name for a in stage.parallel if a.name != axis and a.extent > 1]
    near = any(_stride(compute, s.tensor, s.index, a) == 1 for a in others)
    return TURNED if near and stage.combine is None else STORED_APART


def is_transposed(compute: Compute, stage: Stage, form: Form) -> bool:
    """Whether an access that lies apart along the lanes has neighbours along the rows."""
    return bool(form.row) and _turned(compute, stage, form.vector, form.row) > 0


def is_outer(compute: Compute, stage: Stage) -> bool:
    """Whether a map reads each element again along some axis, as an outer product does: several
    rows together then read once what they share."""
    wide = {a.name for a in stage.parallel if a.extent > 1}
    read = [x for x in stage.loads if compute.tensor(x.tensor).elements > 1]
    varies = all(not wide <= {*x.axes} for x in read)
    several = len({frozenset(x.axes) for x in read}) > 1
    return stage.combine is None and not stage.lookups and varies and several and len(wide) > 1


def _row_rank(compute: Compute, stage: Stage, vector: str, axis: str) -> tuple[float, int, int]:
    place = [a.name for a in stage.parallel].index(axis)
    return -_turned(compute, stage, vector, axis), -_shared(compute, stage, axis), -place


def _shared(compute: Compute, stage: Stage, axis: str) -> int:
    """Bytes of what an outer product reads again for each point of an axis."""
    if not is_outer(compute, stage):
        return 0
    again = {x.tensor for x in stage.loads if axis not in x.axes}
    return sum(compute.tensor(name).bytes for name in again)


def _turned(compute: Compute, stage: Stage, vector: str, axis: str) -> int:
    """Accesses whose elements lie apart along the vector and together along an axis."""
    accesses = [*((x.tensor, x.index) for x in stage.walked_loads)]
    accesses += [(x.tensor, x.index) for x in stage.stores]
    return sum(
        abs(_stride(compute, t, e, vector)) > 1 and abs(_stride(compute, t, e, axis)) == 1
        for t, e in accesses
    )


def _stride(compute: Compute, tensor: str, index: tuple[Affine, ...], axis: str) -> int:
    return stride(index, compute.tensor(tensor).strides, axis)


def peeled_axes(compute: Compute, stage: Stage) -> tuple[str, ...]:
    """Axes along which loads may lie outside of their tensors; taps of a window are none.

    A loop over such an axis can be cut where loads come in and where they leave, so that most of
    it needs no checks.
    """
    found = set[str]()
    for load in stage.loads:
        for d in guarded(compute, stage, load):
            if load.divisor(d) == 1:
                found |= {a for a, _ in load.index[d].terms} - taps_of(stage, load.index[d])
    return tuple(a.name for a in stage.axes if a.name in found)


def taps_of(stage: Stage, index: Affine) -> set[str]:
    """The reductions that go over a window of an index, which neighbours of a point share in."""
    extents, steps = stage.extents, index.coefficients
    outer = [abs(steps[a.name]) for a in stage.parallel if a.name in steps]
    return {
        r.name
        for r in stage.reduce
        if r.name in steps and any(c < abs(steps[r.name]) * extents[r.name] for c in outer)
    }
