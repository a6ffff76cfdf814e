"""Loads and stores of a stage: addresses, borders, tails.

Borders are checked by choosing a pointer, once per loop in which the check varies, between the
tensor and a page of zeros; what is read there needs no masks.  Masks are for vectors at the end of
an axis, for those whose own lanes reach over a border, and for lanes that are not neighbours.
Where every position is known while emitting, a load outside its tensor is a constant and costs
nothing.
"""

from dataclasses import replace

from hlotune.codegen.places import Place
from hlotune.codegen.scattered import (
    gather,
    lane_indices,
    lane_pointers,
    lanes_in_use,
    lanes_inside,
    lanes_that,
    masked_load,
    masked_store,
    picked,
)
from hlotune.codegen.spans import Lane, Point
from hlotune.codegen.text import Function
from hlotune.codegen.values import (
    STORED,
    Value,
    convert,
    from_memory,
    grouped,
    literal,
    splat,
    to_memory,
    vector,
)
from hlotune.schedules.dtypes import BYTES, GROUPS
from hlotune.schedules.errors import BuildError
from hlotune.schedules.expr import Affine, Load

MOST_STRIDE = 4
"""Elements between neighbouring lanes up to which whole runs are loaded instead of gathered."""
ZERO_PAGE_BYTES = 1 << 16
ZEROS = "@zeros"


def load(f: Function, place: Place, x: Load, point: Point) -> Value:
    """The value of a load: one lane where it does not vary along the vector, else all."""
    if x.along is not None:
        return _group(f, place, x, x.along, point)
    if x.dtype != place.dtype:
        return _widened(f, place, x, point)
    index = [e.substitute(point.positions) for e in x.index]
    steps = _lane_steps(x.index, point.lane)
    checks = _checks(f, place, x, index, steps, point)
    if checks is None:
        return literal(x.outside, x.dtype, 1)
    if point.lane is None or point.lane.lanes == 1 or not any(steps):
        return _straight(f, place, x, index, checks, None)
    across = [d for d, c in enumerate(steps) if c]
    whole = all(x.divisor(d) == 1 for d in across)
    stride = _lane_stride(f, place, index, steps, point.lane) if whole else 0
    if stride == 1 and not any(d in checks for d in across):
        return _straight(f, place, x, index, checks, point.lane)
    if x.outside != 0 or any(x.divisor(d) > 1 for d in checks):
        return gather(f, place, x, index, steps, point.lane)
    elements = [_quotient(f, e, x.divisor(d)) for d, e in enumerate(index)]
    if stride == 1:
        return _masked_run(f, place, elements, steps, checks, point.lane)
    if 0 < abs(stride) <= MOST_STRIDE and _is_run(place, across):
        return _strided(f, place, elements, steps, checks, point.lane)
    return gather(f, place, x, index, steps, point.lane)


def _group(f: Function, place: Place, x: Load, along: int, point: Point) -> Value:
    """Neighbours along a dimension as one element, the first of them lowest."""
    width = GROUPS[x.dtype][1]
    bits = replace(place, dtype=f"ui{32 // width}")
    parts = []
    for k in range(width):
        index = (*x.index[:along], x.index[along] + k, *x.index[along + 1 :])
        parts.append(load(f, bits, Load(x.tensor, index, bits.dtype, x.divisors), point))
    return grouped(f, parts, x.dtype)


def _widened(f: Function, place: Place, x: Load, point: Point) -> Value:
    value = load(f, place, replace(x, dtype=place.dtype), point)
    return literal(0, x.dtype, 1) if value.known == 0 else convert(f, value, x.dtype)


def read_run(f: Function, place: Place, index: list[Affine], lane: Lane) -> Value:
    """Neighbouring elements from an index on, which are known to be inside, in one vector."""
    return _read(f, place, _pointer(f, place, index), lane)


def write_run(f: Function, place: Place, index: list[Affine], value: Value, lane: Lane) -> None:
    """Stores the lanes in use to neighbours from an index on, which are known to be inside."""
    pointer, name = _pointer(f, place, index), to_memory(f, value)
    if lane.active == lane.lanes:
        _write(f, name, value.dtype, lane.lanes, pointer)
    else:
        masked_store(f, "store", name, pointer, lane, value.dtype, lanes_in_use(lane))


def _is_run(place: Place, across: list[int]) -> bool:
    """Whether lanes walk along one dimension of neighbours."""
    blocked = any(block > 1 for _, block in place.layout)
    return len(across) == 1 and not blocked and place.strides[across[0], 1] == 1


def store(f: Function, place: Place, index: tuple[Affine, ...], value: Value, point: Point) -> None:
    """Stores one element, or those lanes of a vector that are in use."""
    where, lane = [e.substitute(point.positions) for e in index], point.lane
    if not _exists(f, place, where):
        return
    if lane is None or lane.lanes == 1:
        pointer = _kept_pointer(f, place, where)
        _write(f, to_memory(f, value), value.dtype, value.lanes, pointer)
        return
    value = splat(f, value, lane.lanes)
    name, steps = to_memory(f, value), _lane_steps(index, lane)
    if _lane_stride(f, place, where, steps, lane) != 1:
        indices = lane_indices(f, where, steps, (1,) * len(where), lane)
        pointers = lane_pointers(f, place, indices, lane)
        mask = lanes_that(f, _inside_result(f, place, where), lane)
        masked_store(f, "scatter", name, pointers, lane, value.dtype, mask)
        return
    pointer = _kept_pointer(f, place, where)
    if lane.active == lane.lanes:
        _write(f, name, value.dtype, lane.lanes, pointer)
    elif lane.active == 1:
        # LLVM 22 stores a masked single lane for AVX-512 in its width before truncation
        memory = vector(STORED[value.dtype], lane.lanes)
        _write(f, f.op(f"extractelement {memory} {name}, i32 0"), value.dtype, 1, pointer)
    else:
        masked_store(f, "store", name, pointer, lane, value.dtype, lanes_in_use(lane))


def _exists(f: Function, place: Place, where: list[Affine]) -> bool:
    """Whether a store may lie inside at all."""
    ranges = [(f.bounds(e), n) for e, n in zip(where, place.shape, strict=True)]
    return not place.nowhere or all(high >= 0 and low < n for (low, high), n in ranges)


def _inside_result(f: Function, place: Place, where: list[Affine]) -> str:
    """SSA name of "a checked store lies inside"; "" where that is certain."""
    condition, depth = "", 0
    for e, extent in zip(where, place.shape, strict=True):
        low, high = f.bounds(e)
        if not place.nowhere or (low >= 0 and high < extent):
            continue
        at = f.depth_of(e)
        inside = f.hoisted(at, f"icmp ult i64 {f.integer(e)}, {extent}")
        depth = max(depth, at)
        condition = f.hoisted(depth, f"and i1 {condition}, {inside}") if condition else inside
    return condition


def _kept_pointer(f: Function, place: Place, where: list[Affine]) -> str:
    """The element's address; that of no element where a checked store lies outside."""
    pointer, condition = _pointer(f, place, where), _inside_result(f, place, where)
    if not condition:
        return pointer
    return f.op(f"select i1 {condition}, ptr {pointer}, ptr {place.nowhere}")


def _write(f: Function, name: str, dtype: str, lanes: int, pointer: str) -> None:
    f.emit(f"store {vector(STORED[dtype], lanes)} {name}, ptr {pointer}, align {BYTES[dtype]}")


def _lane_steps(index: tuple[Affine, ...], lane: Lane | None) -> list[int]:
    return [e.coefficients.get(lane.root, 0) if lane else 0 for e in index]


def _lane_stride(
    f: Function, place: Place, index: list[Affine], steps: list[int], lane: Lane
) -> int:
    """Elements of memory between neighbouring lanes, which must lie in one block."""
    blocks = {d: b for d, b in place.layout if b > 1}
    for d in (d for d, c in enumerate(steps) if c and d in blocks):
        first = index[d] + place.origin[d] * -1
        starts = f.multiple_of(first, lane.lanes) and first.constant % lane.lanes == 0
        if steps[d] != 1 or blocks[d] % lane.lanes or not starts:
            raise BuildError(
                f"vectors of {lane.lanes} do not lie inside blocks of {blocks[d]}: "
                "pack whole vectors"
            )
    return sum(c * place.strides[d, 1] for d, c in enumerate(steps) if c)


def _checks(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], point: Point
) -> list[int] | None:
    """Dimensions that need a check here; None when the load is outside for certain."""
    result = []
    for d in place.checks:
        e = index[d]
        low, high = f.bounds(e)
        reach = steps[d] * (point.lane.active - 1) if point.lane else 0
        low, high = low + min(0, reach), high + max(0, reach)
        divisor = x.divisor(d)
        if high < 0 or low >= place.shape[d] * divisor:
            return None
        if low == high and low % divisor:
            return None
        inside = low >= 0 and high < place.shape[d] * divisor and (divisor == 1 or low == high)
        if not inside and (x, d) not in point.discharged:
            result.append(d)
    return result


def _straight(
    f: Function, place: Place, x: Load, index: list[Affine], checks: list[int], lane: Lane | None
) -> Value:
    """A scalar, or neighbouring elements in one vector."""
    condition, depth = _condition(f, place, x, index, checks)
    index = [_quotient(f, e, x.divisor(d)) for d, e in enumerate(index)]
    lanes = lane.lanes if lane else 1
    size = BYTES[place.dtype]
    if not condition:
        pointer = _pointer(f, place, index)
    else:
        pointer = _chosen_pointer(f, place, index, checks, condition, depth, lanes * size)
    value = _read(f, place, pointer, lane)
    if not condition or x.outside == 0:
        return value
    outside = literal(x.outside, x.dtype, lanes)
    chosen = f"select i1 {condition}, {value.type} {value.name}, {value.type} {outside.name}"
    return Value(f.op(chosen), x.dtype, lanes)


def _masked_run(
    f: Function, place: Place, index: list[Affine], steps: list[int], masked: list[int], lane: Lane
) -> Value:
    """Neighbouring elements of which some lie outside: these lanes are zero."""
    mask = lanes_inside(f, place.shape, index, steps, masked, lane)
    return masked_load(f, "load", _pointer(f, place, index), lane, place.dtype, mask)


def _strided(
    f: Function, place: Place, index: list[Affine], steps: list[int], masked: list[int], lane: Lane
) -> Value:
    """Elements a few apart, or backwards: all of their run is loaded, and picked from."""
    across = next(d for d, c in enumerate(steps) if c)
    step, count = steps[across], lane.active - 1
    length, least = 1 + abs(step) * count, min(0, step * count)
    run, parts = [int(d == across) for d in range(len(index))], []
    for start in range(0, length, lane.lanes):
        at = list(index)
        at[across] = at[across] + (least + start)
        part = Lane(lane.root, lane.lanes, min(lane.lanes, length - start))
        masks = (f, place, at, run, masked, part)
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


def _quotient(f: Function, e: Affine, divisor: int) -> Affine:
    if divisor == 1:
        return e
    if not e.terms:
        return Affine((), e.constant // divisor)
    low, high = f.bounds(e)
    name = f.hoisted(f.depth_of(e), f"sdiv i64 {f.integer(e)}, {divisor}")
    return f.variable(name, (low // divisor, high // divisor), depth=f.depth_of(e))


def elements(f: Function, place: Place, index: list[Affine]) -> Affine:
    """Elements between the start of a buffer and an element of it."""
    total = Affine()
    blocks = {d: b for d, b in place.layout if b > 1}
    for d, e in enumerate(index):
        local = e + place.origin[d] * -1
        block = blocks.get(d)
        if block is None:
            total = total + local * place.strides[d, 1]
            continue
        outer, inner = place.strides[d, block], place.strides[d, 1]
        if f.multiple_of(local, block):
            whole, rest = divmod(local.constant, block)
            total = total + Affine(local.terms) * (outer // block) + (whole * outer + rest * inner)
        else:
            total = total + _blocked(f, local, block, outer, inner)
    return total


def _blocked(f: Function, local: Affine, block: int, outer: int, inner: int) -> Affine:
    depth, (_, high), text = f.depth_of(local), f.bounds(local), f.integer(local)
    quotient = f.hoisted(depth, f"udiv i64 {text}, {block}")
    number = f.variable(quotient, (0, high // block), depth=depth)
    remainder = f.hoisted(depth, f"urem i64 {text}, {block}")
    rest = f.variable(remainder, (0, block - 1), depth=depth)
    return number * outer + rest * inner


def _pointer(f: Function, place: Place, index: list[Affine]) -> str:
    offset = elements(f, place, index) * BYTES[place.dtype]
    pointer, _ = f.pointer(place.base, offset)
    return _plus(f, pointer, offset.constant)


def _plus(f: Function, pointer: str, constant: int) -> str:
    if not constant:
        return pointer
    return f.once(f"getelementptr inbounds i8, ptr {pointer}, i64 {constant}")


def _chosen_pointer(
    f: Function,
    place: Place,
    index: list[Affine],
    checks: list[int],
    condition: str,
    depth: int,
    size: int,
) -> str:
    """The element where the condition holds, else a zero.

    It is chosen outside the loops on which the condition does not hang.
    """
    before, after = _around_choice(f, place, index, checks, depth)
    low, high = f.bounds(after)
    if low < 0 or high + size > ZERO_PAGE_BYTES:
        # what is constant stays behind, for neighbours to share the choice
        kept = after.constant if 0 <= after.constant <= ZERO_PAGE_BYTES - size else 0
        before, after = before + after + -kept, Affine((), kept)
    f.module.declare(
        ZEROS, f"{ZEROS} = internal global [{ZERO_PAGE_BYTES} x i8] zeroinitializer, align 64"
    )
    pointer, at = f.pointer(place.base, before)
    at = max(at, depth)
    if before.constant:
        pointer = f.hoisted(at, f"getelementptr i8, ptr {pointer}, i64 {before.constant}")
    chosen = f.hoisted(at, f"select i1 {condition}, ptr {pointer}, ptr {ZEROS}")
    pointer, _ = f.pointer(chosen, after, at)
    return _plus(f, pointer, after.constant)


def _around_choice(
    f: Function, place: Place, index: list[Affine], checks: list[int], depth: int
) -> tuple[Affine, Affine]:
    """Bytes of an offset to add before a pointer is chosen at a loop depth, and bytes for after."""
    before, after = Affine(), Affine()
    for d in range(len(index)):
        alone = [x if k == d else place.origin[k] for k, x in enumerate(index)]
        part, checked = elements(f, place, alone) * BYTES[place.dtype], d in checks
        outer = {n: c for n, c in part.terms if checked or f.variables[n].depth <= depth or c < 0}
        inner = {n: c for n, c in part.terms if n not in outer}
        free = not checked and part.constant >= 0
        before = before + Affine.of(outer, 0 if free else part.constant)
        after = after + Affine.of(inner, part.constant if free else 0)
    return before, after
