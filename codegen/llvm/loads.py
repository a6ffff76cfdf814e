"""Loads of a stage: addresses, borders, tails.

Borders are checked by choosing a pointer, once per loop in which the check varies, between the
tensor and a page of zeros; what is read there needs no masks.  Masks are for vectors at the end of
an axis, for those whose own lanes reach over a border, and for lanes that are not neighbours.
Where every position is known while emitting, a load outside its tensor is a constant and costs
nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from hlotune.codegen.llvm.access_forms import Constants, Form, constants_of, form_of
from hlotune.codegen.llvm.addresses import chosen_pointer, lane_stride, plus, pointer_to, quotient
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.expressions import INSIDE, OUTSIDE
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.masked_access import (
    filled,
    gather,
    lanes_in_use,
    lanes_inside,
    masked_load,
    picked,
)
from hlotune.codegen.llvm.math.values import (
    STORED,
    Value,
    convert,
    from_memory,
    grouped,
    literal,
    vector,
)
from hlotune.codegen.llvm.points import Lane, Point
from hlotune.schedules.dtypes import BYTES, GROUPS
from hlotune.schedules.ir.expr import Affine, Load

Discharged = frozenset[tuple[Load, int]]


@dataclass(frozen=True, slots=True)
class Found:
    """A load that is about to be written."""

    lanes: int
    """Lanes of what it gives: one where that does not vary along the vector; OUTSIDE or INSIDE."""
    read: Callable[[], Value]
    """Writes it."""


At = Mapping[str, int]
"""Constants of positions, by root."""
Source = Callable[[At], Found]
"""A load at positions that differ in constants only, which it takes."""


def load(f: Function, place: Place, x: Load, point: Point) -> Value:
    """The value of a load: one lane where it does not vary along the vector, else all."""
    return source(f, place, x, point)(point.constants).read()


def source(f: Function, place: Place, x: Load, point: Point) -> Source:
    if x.along is not None:
        return _group(f, place, x, x.along, point)
    if x.dtype != place.dtype:
        return widened(f, x, source(f, place, replace(x, dtype=place.dtype), point))
    return partial(_found, f, x, form_of(f, place, x, point), point.discharged)


def _found(f: Function, x: Load, form: Form, discharged: Discharged, at: At) -> Found:
    return found_in(f, x, form, constants_of(x.index, at), discharged)


def found_in(
    f: Function, x: Load, form: Form, constants: Constants, discharged: Discharged
) -> Found:
    """A load of a form, at the constants of its index."""
    checks = form.outside(constants)
    if checks and discharged:
        checks = [d for d in checks if (x, d) not in discharged]
    if checks is None:
        return Found(OUTSIDE, partial(literal, x.outside, x.dtype, 1))
    if form.place.is_guard:
        return _guard(f, form, constants, checks)
    if not checks and form.is_run(constants):
        return Found(form.lanes, partial(_plain, f, form, constants))
    steps = _decisive(form.place, form.steps, checks)
    lane = form.lane if form.lane and form.lane.lanes > 1 and any(steps) else None
    read = partial(_checked, f, form.place, x, form.where(constants), steps, checks, lane)
    return Found(lane.lanes if lane else 1, read)


def _guard(f: Function, form: Form, constants: Constants, checks: list[int]) -> Found:
    """Whether an index lies inside, of all lanes or of each."""
    if not checks:
        return Found(INSIDE, partial(literal, 1, form.place.dtype, 1))
    index, lane = form.where(constants), form.lane
    across = form.lanes_vary(checks)

    def condition() -> Value:
        plain = Load("", tuple(index), form.place.dtype)
        name, _ = _condition(f, form.place, plain, index, checks)
        return Value(name, form.place.dtype, 1)

    def mask() -> Value:
        assert lane is not None, "some index varies along the lanes"
        name = lanes_inside(f, form.place.shape, index, form.steps, checks, lane)
        return Value(name, form.place.dtype, lane.lanes)

    return Found(lane.lanes, mask) if lane and across else Found(1, condition)


def _plain(f: Function, form: Form, constants: Constants) -> Value:
    return _read(f, form.place, form.pointer(constants), form.lane if form.lanes > 1 else None)


def _checked(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], checks: list[int],
    lane: Lane | None,
) -> Value:  # fmt: skip
    """A load that may be outside along some dimensions, or whose lanes are not neighbours."""
    if lane is None:
        return _straight(f, place, x, index, checks, None)
    across = [d for d, c in enumerate(steps) if c]
    whole = all(x.divisor(d) == 1 for d in across)
    stride = lane_stride(f, place, index, steps, lane) if whole else 0
    if stride == 1 and not any(d in checks for d in across):
        return _straight(f, place, x, index, checks, lane)
    if any(x.divisor(d) > 1 for d in checks):
        return gather(f, place, x, index, steps, lane)
    elements = [quotient(f, e, x.divisor(d)) for d, e in enumerate(index)]
    if stride == 1:
        return _masked_run(f, place, x, elements, steps, checks, lane)
    if 0 < abs(stride) <= f.module.rates.most_stride and _is_run(place, across):
        return _strided(f, place, x, elements, steps, checks, lane)
    if not checks and not x.divisors and _walks_rows(f, place, index, across, stride):
        return _column(f, place, index, across[0], lane)
    return gather(f, place, x, index, steps, lane)


def _group(f: Function, place: Place, x: Load, along: int, point: Point) -> Source:
    """Neighbours along a dimension as one element, the first of them lowest."""
    width = GROUPS[x.dtype][1]
    bits = replace(place, dtype=f"ui{32 // width}")
    parts = []
    for k in range(width):
        index = (*x.index[:along], x.index[along] + k, *x.index[along + 1 :])
        parts.append(source(f, bits, Load(x.tensor, index, bits.dtype, x.divisors), point))

    def found(at: At) -> Found:
        here = [part(at) for part in parts]
        lanes = max(1, *(p.lanes for p in here))
        return Found(lanes, lambda: grouped(f, [p.read() for p in here], x.dtype))

    return found


def widened(f: Function, x: Load, narrow: Source) -> Source:
    """A load that converts, of one of the tensor's type."""

    def found(at: At) -> Found:
        here = narrow(at)
        if here.lanes == OUTSIDE and x.outside == 0:
            return Found(OUTSIDE, partial(literal, 0, x.dtype, 1))
        return Found(max(1, here.lanes), lambda: convert(f, here.read(), x.dtype))

    return found


def read_run(f: Function, place: Place, index: list[Affine], lane: Lane) -> Value:
    """Neighbouring elements from an index on, which are known to be inside, in one vector."""
    return _read(f, place, pointer_to(f, place, index), lane)


def load_run(f: Function, place: Place, x: Load, index: list[Affine], lane: Lane) -> Value:
    """Neighbours along the last dimension from an index on; those outside are as `x` says."""
    checks = [d for d in overrun(f, place, index, lane.active) if d in place.checks]
    steps = [0] * (len(index) - 1) + [1]
    return _checked(f, place, x, index, steps, checks, lane)


def overrun(f: Function, place: Place, index: list[Affine], elements: int) -> list[int]:
    """Dimensions along which a run of neighbours may lie outside: the last is theirs."""
    reach = [0] * (len(index) - 1) + [elements - 1]
    ends = zip(map(f.bounds, index), reach, place.shape, strict=True)
    return [d for d, ((low, high), n, end) in enumerate(ends) if low < 0 or high + n >= end]


def _is_run(place: Place, across: list[int]) -> bool:
    """Whether lanes walk along one dimension of neighbours."""
    blocked = any(block > 1 for _, block in place.layout)
    return len(across) == 1 and not blocked and place.strides[across[0], 1] == 1


def _walks_rows(
    f: Function, place: Place, index: list[Affine], across: list[int], stride: int
) -> bool:
    """Whether lanes walk from row to row of few elements each, at one place of all rows."""
    if len(across) != 1 or not 0 < stride <= f.module.rates.most_stride or place.beside:
        return False
    inner = range(across[0] + 1, len(index))
    whole = stride == prod(place.shape[d] for d in inner) == place.strides[across[0], 1]
    blocked = any(block > 1 for _, block in place.layout)
    return whole and not blocked and not any((index[d] - place.origin[d]).terms for d in inner)


def _column(f: Function, place: Place, index: list[Affine], across: int, lane: Lane) -> Value:
    """One element of each of as many rows as there are lanes: the rows are loaded whole.

    Other columns of them are picked from the same vectors.
    """
    inner, stride = range(across + 1, len(index)), place.strides[across, 1]
    column = sum((index[d] - place.origin[d]).constant * place.strides[d, 1] for d in inner)
    start = pointer_to(f, place, [*index[: across + 1], *(place.origin[d] for d in inner)])
    total, parts = stride * lane.active, list[Value]()
    for first in range(0, total, lane.lanes):
        part = Lane(lane.root, lane.lanes, min(lane.lanes, total - first))
        parts.append(_read(f, place, plus(f, start, first * BYTES[place.dtype]), part))
    return picked(f, parts, [stride * min(k, lane.active - 1) + column for k in range(lane.lanes)])


def _decisive(place: Place, steps: list[int], checks: list[int]) -> list[int]:
    """Steps of the lanes, without those beside a load that decide nothing.

    Such a dimension takes no memory, and where it needs no check all lanes are real.
    """
    own = len(steps) - place.beside
    return [c if d < own or d in checks else 0 for d, c in enumerate(steps)]


def _straight(
    f: Function, place: Place, x: Load, index: list[Affine], checks: list[int], lane: Lane | None
) -> Value:
    """A scalar, or neighbouring elements in one vector."""
    condition, depth = _condition(f, place, x, index, checks)
    if x.divisors:
        index = [quotient(f, e, x.divisor(d)) for d, e in enumerate(index)]
    lanes = lane.lanes if lane else 1
    size = BYTES[place.dtype]
    if not condition:
        pointer = pointer_to(f, place, index)
    else:
        pointer = chosen_pointer(f, place, index, checks, condition, depth, lanes * size)
    value = _read(f, place, pointer, lane)
    if not condition or x.outside == 0:
        return value
    outside = literal(x.outside, x.dtype, lanes)
    chosen = f"select i1 {condition}, {value.type} {value.name}, {value.type} {outside.name}"
    return Value(f.op(chosen), x.dtype, lanes)


def _masked_run(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], masked: list[int],
    lane: Lane,
) -> Value:  # fmt: skip
    """Neighbouring elements of which some lie outside: these lanes are as `x` says."""
    mask = lanes_inside(f, place.shape, index, steps, masked, lane)
    value = masked_load(f, "load", pointer_to(f, place, index), lane, place.dtype, mask)
    return value if x.outside == 0 else filled(f, value, mask, x.outside)


def _strided(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], masked: list[int],
    lane: Lane,
) -> Value:  # fmt: skip
    """Elements a few apart, or backwards: all of their run is loaded, and picked from."""
    across = next(d for d, c in enumerate(steps) if c)
    step, count = steps[across], lane.active - 1
    length, least = 1 + abs(step) * count, min(0, step * count)
    run, parts = [int(d == across) for d in range(len(index))], []
    for start in range(0, length, lane.lanes):
        at = list(index)
        at[across] = at[across] + (least + start)
        part = Lane(lane.root, lane.lanes, min(lane.lanes, length - start))
        masks = (f, place, x, at, run, masked, part)
        parts.append(_masked_run(*masks) if masked else read_run(f, place, at, part))
    return picked(
        f, parts, [min(step * min(k, count) - least, length - 1) for k in range(lane.lanes)]
    )


def _read(f: Function, place: Place, pointer: str, lane: Lane | None) -> Value:
    if lane and lane.active < lane.lanes:
        return masked_load(f, "load", pointer, lane, place.dtype, lanes_in_use(lane))
    lanes = lane.lanes if lane else 1
    memory = vector(STORED[place.dtype], lanes)
    text = f"load {memory}, ptr {pointer}, align {BYTES[place.dtype]}"
    name = f.once(text) if place.constant else f.op(text)
    return from_memory(f, name, place.dtype, lanes)


def _condition(
    f: Function, place: Place, x: Load, index: list[Affine], checks: list[int]
) -> tuple[str, int]:
    """SSA name of "this element is real", at the depth at which it is known."""
    condition, depth = "", 0
    for d in checks:
        e, divisor = index[d], x.divisor(d)
        at = f.depth_of(e)
        inside = f.hoisted(at, f"icmp ult i64 {f.integer(e)}, {place.shape[d] * divisor}")
        if divisor > 1:
            rest = f.hoisted(at, f"urem i64 {f.integer(e)}, {divisor}")
            whole = f.hoisted(at, f"icmp eq i64 {rest}, 0")
            inside = f.hoisted(at, f"and i1 {inside}, {whole}")
        depth = max(depth, at)
        condition = f.hoisted(depth, f"and i1 {condition}, {inside}") if condition else inside
    return condition, depth
