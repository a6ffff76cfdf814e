"""Where the values behind a contraction hold its element: indices followed forwards."""

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.to_compute.contractions import numbers
from hlotune.hlo.to_compute.conversions import short_name
from hlotune.hlo.to_compute.expressions import ELEMENTWISE, Extents, Shape, view_index
from hlotune.hlo.to_compute.index_maps import Index, reshape_index
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.ir.expr import Affine


def followed(graph: Graph, start: int, index: Index, extents: Extents) -> dict[int, Index]:
    """The index of every value that is computed, element by element, from `start` at `index`."""
    found = {start: index}
    for op in graph.ops:
        source = next((v for v in op.operands if v in found), None)
        if source is not None:
            shape, result = graph.types[source].shape, graph.types[op.results[0]].shape
            found[op.results[0]] = _followed(op, shape, result, found[source], extents)
    return found


def _followed(op: Op, shape: Shape, result: Shape, index: Index, extents: Extents) -> Index:
    name = short_name(op)
    if name in ELEMENTWISE and shape == result:
        return index
    if name == "reshape":
        return reshape_index(index, shape, result, extents)
    if name == "transpose":
        return tuple(index[p] for p in numbers(op, "permutation"))
    if name == "reverse":
        return view_index(op, shape, result, index, extents)
    if name == "broadcast_in_dim":
        targets = numbers(op, "broadcast_dimensions")
        kept = dict(zip(targets, shape, strict=True))
        if all(n == kept.get(d, 1) for d, n in enumerate(result)):
            place = dict(zip(targets, index, strict=True))
            return tuple(place.get(d, Affine()) for d in range(len(result)))
    raise UnsupportedKernel(
        f"expected elementwise operations and reshapes behind the contraction, got {op.name} from "
        f"{shape} to {result}; the kernel stays with the default compiler"
    )
