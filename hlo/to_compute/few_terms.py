"""Products of few terms along an axis that both operands have, as maps.

    y[n, m, p] = a[n, p, 0] * b[m, p, 0] + a[n, p, 1] * b[m, p, 1] + a[n, p, 2] * b[m, p, 2]

So few operations for each element of the result wait for memory, so the result is stored once, in
the order in which it lies.  Vectors go along its last axis; where an operand has that axis, but not
as its own last one, it is turned first: operands are small beside the result.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from hlotune.hlo.graph import Op, TensorType
from hlotune.hlo.to_compute.assembly import dimensions, identity
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.index_maps import Index
from hlotune.hlo.to_compute.short_axes import is_plain, terms_written_out
from hlotune.schedules.ir.compute import Compute, Stage, Store, Tensor
from hlotune.schedules.ir.distances import stride
from hlotune.schedules.ir.expr import Load, map_all_loads

MOST_TERMS = 8
"""Terms of each sum at most."""
LARGER = 4
"""How many times as large as both operands together the result is at least."""


def has_few_terms(op: Op, operands: Sequence[TensorType], result: TensorType) -> bool:
    """Whether a dot sums few products, into a result much larger than its operands."""
    if op.name != "stablehlo.dot_general":
        return False
    terms = prod(operands[0].shape[d] for d in numbers(op, "lhs_contracting_dimensions"))
    small = LARGER * sum(t.elements for t in operands) <= result.elements
    return 1 <= terms <= MOST_TERMS and small


def ends_in_batch(op: Op, permutation: Sequence[int]) -> bool:
    """Whether a dot's result ends in a batch when it is transposed so."""
    return permutation[-1] < len(numbers(op, "lhs_batching_dimensions"))


def as_map(compute: Compute) -> Compute:
    """The compute of a dot of few terms as a map, where its result ends in a batch.

    One of another kind stays as it is.
    """
    *before, core, out = compute.stages
    axis = next((a.name for a in out.parallel if _is_last(compute, out, a.name)), None)
    if axis is None or not (is_plain(core) and is_plain(out)):
        return compute
    if not all(axis in x.axes and _is_whole(compute, core, x) for x in core.loads):
        return compute
    apart = [x for x in core.loads if _step(compute, x, axis) != 1]
    turned = {x: f"turned_{x.tensor}" for x in apart}
    places = {x: replace(x, tensor=name, index=_last(x, axis)) for x, name in turned.items()}
    product = replace(core, values=map_all_loads(core.values, places))
    sums = dict.fromkeys((x for x in out.loads if x.tensor in core.stored),
                         terms_written_out(product)[0])  # fmt: skip
    (first, *_), steps = out.stores, compute.tensor(out.stores[0].tensor).strides
    order = sorted(out.parallel, key=lambda a: -stride(first.index, steps, a.name))
    whole = replace(out, parallel=tuple(order), values=map_all_loads(out.values, sums))
    copies = [_copy(compute, x, axis, name) for x, name in turned.items()]
    kept = (t for t in compute.tensors if t.name not in core.stored)
    tensors = (*kept, *(t for t, _ in copies))
    return Compute(tensors, (*before, *(s for _, s in copies), whole))


def _is_last(compute: Compute, out: Stage, axis: str) -> bool:
    """Whether all results lie together along an axis."""
    return all(stride(x.index, compute.tensor(x.tensor).strides, axis) == 1 for x in out.stores)


def _step(compute: Compute, load: Load, axis: str) -> int:
    return stride(load.index, compute.tensor(load.tensor).strides, axis)


def _is_whole(compute: Compute, core: Stage, load: Load) -> bool:
    """Whether a load goes over its tensor along axes of the stage, one for each dimension."""
    shape, extents = compute.tensor(load.tensor).shape, core.extents
    along = [e.terms[0] if len(e.terms) == 1 and not e.constant else ("", 0) for e in load.index]
    walked = [extents[a] if step == 1 else 0 for a, step in along]
    return walked == [*shape] and len({a for a, _ in along}) == len(along)


def _last(load: Load, axis: str) -> Index:
    """The index of a load with the dimension along an axis behind the others."""
    return tuple(sorted(load.index, key=lambda e: axis in e.coefficients))


def _copy(compute: Compute, load: Load, axis: str, name: str) -> tuple[Tensor, Stage]:
    """What a load reads, the dimension along an axis behind the others, and its stage."""
    axes = dimensions(compute.tensor(load.tensor).shape)
    order = sorted(range(len(axes)), key=lambda d: axis in load.index[d].coefficients)
    parallel = tuple(axes[d] for d in order)
    tensor = Tensor(name, tuple(a.extent for a in parallel), load.dtype, "temporary")
    store = Store(name, identity(parallel))
    value = replace(load, index=identity(axes))
    return tensor, Stage(name, parallel, (), (store,), (value,))
