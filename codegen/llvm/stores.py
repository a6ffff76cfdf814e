"""Stores of a stage: vectors of neighbours, masks at the ends of an axis, scattered lanes.

What lies beyond a result is masked, or goes to a line that nobody reads.
"""

from hlotune.codegen.llvm.access_forms import Constants, Form, constants_of, form_of
from hlotune.codegen.llvm.addresses import lane_stride, pointer_to
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.loads import overrun
from hlotune.codegen.llvm.masked_access import (
    lane_indices,
    lane_pointers,
    lanes_in_use,
    lanes_inside,
    lanes_that,
    masked_store,
)
from hlotune.codegen.llvm.math.values import STORED, Value, splat, to_memory, vector
from hlotune.codegen.llvm.points import Lane, Point
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Store
from hlotune.schedules.ir.expr import Affine


def write_run(f: Function, place: Place, index: list[Affine], value: Value, lane: Lane) -> None:
    """Stores those lanes in use that are inside to neighbours from an index on."""
    pointer, name = pointer_to(f, place, index), to_memory(f, value)
    steps = [0] * (len(index) - 1) + [1]
    checks = overrun(f, place, index, lane.active) if place.nowhere else []
    if checks:
        mask = lanes_inside(f, place.shape, index, steps, checks, lane)
    elif lane.active == lane.lanes:
        _write(f, name, value.dtype, lane.lanes, pointer)
        return
    else:
        mask = lanes_in_use(lane)
    masked_store(f, "store", name, pointer, lane, value.dtype, mask)


def store(f: Function, place: Place, x: Store, value: Value, point: Point) -> None:
    """Stores one element, or those lanes of a vector that are in use."""
    put(f, form_of(f, place, x, point), constants_of(x.index, point.constants), value)


def put(f: Function, form: Form, constants: Constants, value: Value, *, past: bool = False) -> None:
    """The same, of an access of a form; `past` the caches, where it is an aligned vector."""
    checks = form.outside(constants) if form.place.nowhere else []
    if checks is None:
        return
    lane = form.lane
    if lane is None or lane.lanes == 1:
        pointer = _kept_pointer(f, form, constants)
        _write(f, to_memory(f, value), value.dtype, value.lanes, pointer)
        return
    value = splat(f, value, lane.lanes)
    if _is_whole_run(form, constants) and not any(form.steps[d] for d in checks):
        _put_run(f, form, constants, value, lane, past)
    else:
        _put_lanes(f, form, constants, value, lane, checks)


def _is_whole_run(form: Form, constants: Constants) -> bool:
    """Whether the lanes are neighbours, and not one element."""
    return form.lane is not None and form.lanes == form.lane.lanes and form.is_run(constants)


def _put_run(
    f: Function, form: Form, constants: Constants, value: Value, lane: Lane, past: bool
) -> None:
    """Neighbours, all of which are inside, or none."""
    name, pointer = to_memory(f, value), _kept_pointer(f, form, constants)
    size = BYTES[value.dtype] * lane.lanes
    if lane.active == lane.lanes and past and form.is_aligned(constants, size):
        f.module.declare("non-temporal", "!0 = !{i32 1}")
        memory = vector(STORED[value.dtype], lane.lanes)
        f.emit(f"store {memory} {name}, ptr {pointer}, align {size}, !nontemporal !0")
    elif lane.active == lane.lanes:
        _write(f, name, value.dtype, lane.lanes, pointer)
    elif lane.active == 1:
        # LLVM 22 stores a masked single lane for AVX-512 in its width before truncation
        memory = vector(STORED[value.dtype], lane.lanes)
        _write(f, f.op(f"extractelement {memory} {name}, i32 0"), value.dtype, 1, pointer)
    else:
        masked_store(f, "store", name, pointer, lane, value.dtype, lanes_in_use(lane))


def _put_lanes(
    f: Function, form: Form, constants: Constants, value: Value, lane: Lane, checks: list[int]
) -> None:
    """Lanes that are no neighbours, or some of which may lie outside.

    Raises BuildError where the lanes leave a block.
    """
    place, where, name = form.place, form.where(constants), to_memory(f, value)
    if any(form.steps[d] for d in checks):
        mask = lanes_inside(f, place.shape, where, form.steps, checks, lane)
    else:
        mask = lanes_that(f, _inside_result(f, place, where) if place.nowhere else "", lane)
    if _is_whole_run(form, constants):
        masked_store(f, "store", name, form.pointer(constants), lane, value.dtype, mask)
        return
    lane_stride(f, place, where, form.steps, lane)
    indices = lane_indices(f, where, form.steps, (1,) * len(where), lane)
    pointers = lane_pointers(f, place, indices, lane)
    masked_store(f, "scatter", name, pointers, lane, value.dtype, mask)


def _inside_result(f: Function, place: Place, where: list[Affine]) -> str:
    """SSA name of "a checked store lies inside"; "" where that is certain."""
    condition, depth = "", 0
    for e, extent in zip(where, place.shape, strict=True):
        low, high = f.bounds(e)
        if low >= 0 and high < extent:
            continue
        at = f.depth_of(e)
        inside = f.hoisted(at, f"icmp ult i64 {f.integer(e)}, {extent}")
        depth = max(depth, at)
        condition = f.hoisted(depth, f"and i1 {condition}, {inside}") if condition else inside
    return condition


def _kept_pointer(f: Function, form: Form, constants: Constants) -> str:
    """The element's address; that of no element where a checked store lies outside."""
    pointer, place = form.pointer(constants), form.place
    condition = _inside_result(f, place, form.where(constants)) if place.nowhere else ""
    if not condition:
        return pointer
    return f.op(f"select i1 {condition}, ptr {pointer}, ptr {place.nowhere}")


def _write(f: Function, name: str, dtype: str, lanes: int, pointer: str) -> None:
    f.emit(f"store {vector(STORED[dtype], lanes)} {name}, ptr {pointer}, align {BYTES[dtype]}")
