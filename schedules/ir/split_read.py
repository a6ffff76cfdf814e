"""Dimensions of arguments that are read along several axes, written as a dimension for each.

x[t, 64*h + d]   ->   x[t, h, d]

A dimension is split where the strides of all its loads are multiples of one another, and where no
load crosses from one part into the next: the reshaped argument has the same elements in the same
order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

from hlotune.schedules.ir.compute import Compute, Stage, Tensor
from hlotune.schedules.ir.expr import Affine, Expr, Load, map_all_loads

Place = tuple[Affine, Mapping[str, int]]
"""An index along a dimension, with the extents of its axes."""


def split_read(compute: Compute) -> Compute:
    """The compute with all such dimensions of arguments and constants split."""
    for tensor in compute.tensors:
        if tensor.role not in ("argument", "constant"):
            continue
        for d in range(len(tensor.shape)):
            found = _strides(tensor, d, _places(compute, tensor.name, d))
            if len(found) > 1:
                return split_read(_split(compute, tensor, d, found))
    return compute


def _places(compute: Compute, tensor: str, d: int) -> list[Place] | None:
    """What loads of a tensor have for a dimension; None where one is at no place known ahead."""
    found = list[Place]()
    for s in compute.stages:
        if tensor not in s.maps:
            continue
        if s.begins or any(x.lookups for x in s.loads):
            return None
        for x in (x for x in s.loads if x.tensor == tensor):
            axes = {a for e in x.index for a in e.coefficients}
            if x.divisors or x.beside or x.along is not None or not axes <= set(s.extents):
                return None
            found.append((x.index[d], s.extents))
    return found


def _strides(tensor: Tensor, d: int, places: list[Place] | None) -> tuple[int, ...]:
    """The strides of the parts of a dimension, the largest first; (1,) where it stays whole."""
    if not places:
        return (1,)
    strides = sorted({1, *(c for e, _ in places for _, c in e.terms)}, reverse=True)
    whole = [*strides, tensor.shape[d]]
    whole.sort(reverse=True)
    nested = all(below > 0 and above % below == 0 for above, below in pairwise(whole))
    if not nested or not all(_inside(e, extents, whole) for e, extents in places):
        return (1,)
    return tuple(strides)


def _inside(place: Affine, extents: Mapping[str, int], whole: Iterable[int]) -> bool:
    """Whether no axis of a place reaches from one part of the dimension into the next."""
    ranges = {a: (0, extents[a] - 1) for a in place.coefficients}
    for above, stride in pairwise(whole):
        low, high = _part(place, above, stride).bounds(ranges)
        if low < 0 or high >= above // stride:
            return False
    return True


def _part(place: Affine, above: int, stride: int) -> Affine:
    """The index along the part of a stride, which is one of `above`'s parts."""
    terms = {a: 1 for a, c in place.terms if c == stride}
    return Affine.of(terms, place.constant % above // stride)


def _split(compute: Compute, tensor: Tensor, d: int, strides: tuple[int, ...]) -> Compute:
    whole = (tensor.shape[d], *strides)
    extents = tuple(above // below for above, below in pairwise(whole))
    shape = (*tensor.shape[:d], *extents, *tensor.shape[d + 1 :])

    def load(x: Load) -> Expr:
        parts = (_part(x.index[d], above, below) for above, below in pairwise(whole))
        return replace(x, index=(*x.index[:d], *parts, *x.index[d + 1 :]))

    def stage(s: Stage) -> Stage:
        change = {x: load(x) for x in s.loads if x.tensor == tensor.name}
        return replace(s, values=map_all_loads(s.values, change)) if change else s

    tensors = tuple(replace(t, shape=shape) if t is tensor else t for t in compute.tensors)
    return Compute(tensors, tuple(map(stage, compute.stages)))
