"""Lanes that are not neighbours, or that are checked one by one: masks, gathers, picks of runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.math.values import (
    STORED,
    Value,
    from_memory,
    literal,
    splat,
    suffix,
    vector,
)
from hlotune.codegen.llvm.points import Lane
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.expr import Affine, Load


def gather(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], lane: Lane,
    added: Mapping[int, str] = MappingProxyType({}),
) -> Value:  # fmt: skip
    """Lanes by their own addresses, those outside as `x` says.

    Of a guard it is the mask of those inside.  `added` has by dimension a vector of i64 that comes
    to the indices of the lanes.
    """
    divisors = tuple(x.divisor(d) for d in range(len(index)))
    raw = lane_indices(f, index, steps, (1,) * len(index), lane, added)
    mask = _inside(f, place, divisors, raw, lane)
    if place.is_guard:
        return Value(mask, x.dtype, lane.lanes)
    indices = lane_indices(f, index, steps, divisors, lane, added)
    pointers = lane_pointers(f, place, indices, lane)
    value = masked_load(f, "gather", pointers, lane, place.dtype, mask)
    return value if x.outside == 0 else filled(f, value, mask, x.outside)


def filled(f: Function, value: Value, mask: str, outside: float | int) -> Value:
    """A vector with a number in the lanes that a mask leaves out."""
    number = literal(outside, value.dtype, value.lanes)
    choice = f"{value.type} {value.name}, {value.type} {number.name}"
    chosen = f.op(f"select {vector('i1', value.lanes)} {mask}, {choice}")
    return Value(chosen, value.dtype, value.lanes)


def _inside(
    f: Function, place: Place, divisors: tuple[int, ...], indices: list[str], lane: Lane
) -> str:
    """The lanes in use whose elements are real."""
    wide, bits, mask = vector("i64", lane.lanes), vector("i1", lane.lanes), lanes_in_use(lane)
    for d in place.checks:
        extent, divisor, name = place.shape[d], divisors[d], indices[d]
        limit = literal(extent * divisor, "i64", lane.lanes).name
        inside = f.op(f"icmp ult {wide} {name}, {limit}")
        mask = f.op(f"and {bits} {mask}, {inside}")
        if divisor > 1:
            rest = f.op(f"urem {wide} {name}, {literal(divisor, 'i64', lane.lanes).name}")
            whole = f.op(f"icmp eq {wide} {rest}, zeroinitializer")
            mask = f.op(f"and {bits} {mask}, {whole}")
    return mask


def lane_indices(
    f: Function, index: list[Affine], steps: list[int], divisors: tuple[int, ...], lane: Lane,
    added: Mapping[int, str] = MappingProxyType({}),
) -> list[str]:  # fmt: skip
    """For each dimension the vector of element indices."""
    wide, result = vector("i64", lane.lanes), []
    for d, (e, step, divisor) in enumerate(zip(index, steps, divisors, strict=True)):
        name = splat(f, Value(f.integer(e), "i64", 1), lane.lanes).name
        if step:
            offsets = ", ".join(f"i64 {step * k}" for k in range(lane.lanes))
            name = f.op(f"add {wide} {name}, <{offsets}>")
        if d in added:
            name = f.op(f"add {wide} {name}, {added[d]}")
        if divisor > 1:
            name = f.op(f"sdiv {wide} {name}, {literal(divisor, 'i64', lane.lanes).name}")
        result.append(name)
    return result


def lane_pointers(f: Function, place: Place, indices: list[str], lane: Lane) -> str:
    if any(b > 1 for _, b in place.layout):
        raise BuildError(
            "elements of a blocked buffer can only be read in whole vectors: pack along the vector"
        )
    wide = vector("i64", lane.lanes)
    total = "zeroinitializer"
    for d, name in enumerate(indices):
        origin = splat(f, Value(f.integer(place.origin[d]), "i64", 1), lane.lanes).name
        local = f.op(f"sub {wide} {name}, {origin}")
        scale = literal(place.strides[d, 1] * BYTES[place.dtype], "i64", lane.lanes).name
        total = f.op(f"add {wide} {total}, {f.op(f'mul {wide} {local}, {scale}')}")
    return f.op(f"getelementptr i8, ptr {place.base}, {wide} {total}")


def lanes_in_use(lane: Lane) -> str:
    return f"<{', '.join(f'i1 {str(k < lane.active).lower()}' for k in range(lane.lanes))}>"


def masked_load(f: Function, how: str, pointer: str, lane: Lane, dtype: str, mask: str) -> Value:
    """What a `load` of neighbours reads, or a `gather` by a vector of pointers; zeros elsewhere."""
    memory = vector(STORED[dtype], lane.lanes)
    name, kind = _masked(how, lane, dtype)
    alignment, bits = ("i32", str(BYTES[dtype])), (vector("i1", lane.lanes), mask)
    zeros = (memory, "zeroinitializer")
    loaded = f.intrinsic(name, memory, (kind, pointer), alignment, bits, zeros)
    return from_memory(f, loaded, dtype, lane.lanes)


def lanes_inside(
    f: Function, shape: Sequence[int], index: list[Affine], steps: list[int], masked: list[int],
    lane: Lane,
) -> str:  # fmt: skip
    """The lanes in use that are inside along some dimensions, found outside of other loops."""
    wide, bits = vector("i64", lane.lanes), vector("i1", lane.lanes)
    depth, mask = 0, lanes_in_use(lane)
    for d in masked:
        at, limit = f.depth_of(index[d]), literal(shape[d], "i64", lane.lanes).name
        first = f"insertelement {wide} poison, i64 {f.integer(index[d])}, i32 0"
        order = f"<{lane.lanes} x i32> zeroinitializer"
        same = f"shufflevector {wide} {f.hoisted(at, first)}, {wide} poison, {order}"
        apart = ", ".join(f"i64 {steps[d] * k}" for k in range(lane.lanes))
        numbers = f.hoisted(at, f"add {wide} {f.hoisted(at, same)}, <{apart}>")
        inside = f.hoisted(at, f"icmp ult {wide} {numbers}, {limit}")
        depth = max(depth, at)
        mask = f.hoisted(depth, f"and {bits} {mask}, {inside}")
    return mask


def lanes_that(f: Function, condition: str, lane: Lane) -> str:
    """The lanes in use where a condition holds; none elsewhere."""
    if not condition:
        return lanes_in_use(lane)
    all_ = splat(f, Value(condition, "i1", 1), lane.lanes).name
    return f.op(f"and {vector('i1', lane.lanes)} {all_}, {lanes_in_use(lane)}")


def masked_store(
    f: Function, how: str, value: str, pointer: str, lane: Lane, dtype: str, mask: str
) -> None:
    """A `store` to neighbours, or a `scatter` to a vector of pointers, of the lanes of a mask."""
    values = vector(STORED[dtype], lane.lanes), value
    name, kind = _masked(how, lane, dtype)
    alignment, bits = ("i32", str(BYTES[dtype])), (vector("i1", lane.lanes), mask)
    f.intrinsic(name, "void", values, (kind, pointer), alignment, bits)


def _masked(how: str, lane: Lane, dtype: str) -> tuple[str, str]:
    """LLVM's name of a masked access, and the type of its pointers."""
    lanes, apart = lane.lanes, how in ("gather", "scatter")
    name = f"llvm.masked.{how}.{suffix(STORED[dtype], lanes)}.{f'v{lanes}p0' if apart else 'p0'}"
    return name, vector("ptr", lanes) if apart else "ptr"


def picked(f: Function, parts: list[Value], picks: list[int]) -> Value:
    """A vector of the elements at some positions of several vectors, one after the other."""
    result, lanes = parts[0], len(picks)
    own = [p if p < lanes else k for k, p in enumerate(picks)]
    for j, part in enumerate(parts[1:] or parts, 1):
        here = [
            lanes + p - j * lanes if p // lanes == j else q for p, q in zip(picks, own, strict=True)
        ]
        mask = ", ".join(f"i32 {q}" for q in here)
        pair = f"{result.type} {result.name}, {part.type} {part.name}"
        result = replace(result, name=f.op(f"shufflevector {pair}, <{lanes} x i32> <{mask}>"))
        own = list(range(lanes))
    return result
