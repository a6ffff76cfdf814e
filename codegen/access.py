"""Loads and stores of a stage: addresses, borders, tails.

Borders are checked by choosing a pointer, once per loop in which the check varies, between the
tensor and a page of zeros; what is read there needs no masks.  Masks are for vectors at the end of
an axis, for those whose own lanes reach over a border, and for lanes that are not neighbours.
Where every position is known while emitting, a load outside its tensor is a constant and costs
nothing.
"""

from hlotune.codegen.places import Place
from hlotune.codegen.spans import Lane, Point
from hlotune.codegen.text import Function
from hlotune.codegen.values import (
    STORED,
    Value,
    from_memory,
    literal,
    splat,
    suffix,
    to_memory,
    vector,
)
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import BuildError
from hlotune.schedules.expr import Affine, Load

ZERO_PAGE_BYTES = 1 << 16
ZEROS = "@zeros"


def load(f: Function, place: Place, x: Load, point: Point) -> Value:
    """The value of a load: one lane where it does not vary along the vector, else all."""
    index = [e.substitute(point.positions) for e in x.index]
    steps = _lane_steps(x.index, point.lane)
    checks = _checks(f, place, x, index, steps, point)
    if checks is None:
        return literal(x.outside, x.dtype, 1)
    if point.lane is None or point.lane.lanes == 1 or not any(steps):
        return _straight(f, place, x, index, checks, None)
    across = [d for d, c in enumerate(steps) if c]
    whole = all(x.divisor(d) == 1 for d in across)
    if whole and _lane_stride(f, place, index, steps, point.lane) == 1:
        masked = [d for d in across if d in checks]
        if not masked:
            return _straight(f, place, x, index, checks, point.lane)
        if masked == checks and x.outside == 0:
            elements = [_quotient(f, e, x.divisor(d)) for d, e in enumerate(index)]
            return _masked_run(f, place, elements, steps, masked, point.lane)
    return _gather(f, place, x, index, steps, point.lane)


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
        indices = _lane_indices(f, where, steps, (1,) * len(where), lane)
        pointers = _lane_pointers(f, place, indices, lane)
        mask = _lanes_that(f, _inside_result(f, place, where), lane)
        _masked_store(f, "scatter", name, pointers, lane, value.dtype, mask)
        return
    pointer = _kept_pointer(f, place, where)
    if lane.active == lane.lanes:
        _write(f, name, value.dtype, lane.lanes, pointer)
    elif lane.active == 1:
        # LLVM 22 stores a masked single lane for AVX-512 in its width before truncation
        memory = vector(STORED[value.dtype], lane.lanes)
        _write(f, f.op(f"extractelement {memory} {name}, i32 0"), value.dtype, 1, pointer)
    else:
        _masked_store(f, "store", name, pointer, lane, value.dtype, _mask(lane))


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
    if not place.checked:
        return []
    result = []
    for d, e in enumerate(index):
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
    mask, wide = _mask(lane), vector("i64", lane.lanes)
    for d in masked:
        numbers = _lane_indices(f, [index[d]], [steps[d]], (1,), lane)[0]
        limit = literal(place.shape[d], "i64", lane.lanes).name
        inside = f.op(f"icmp ult {wide} {numbers}, {limit}")
        mask = f.op(f"and {vector('i1', lane.lanes)} {mask}, {inside}")
    return _masked_load(f, "load", _pointer(f, place, index), lane, place.dtype, mask)


def _read(f: Function, place: Place, pointer: str, lane: Lane | None) -> Value:
    if lane and lane.active < lane.lanes:
        return _masked_load(f, "load", pointer, lane, place.dtype, _mask(lane))
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
        before, after = before + after, Affine()
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


# lanes that are not neighbours, or that are checked one by one ------------------------------------


def _gather(
    f: Function, place: Place, x: Load, index: list[Affine], steps: list[int], lane: Lane
) -> Value:
    divisors = tuple(x.divisor(d) for d in range(len(index)))
    raw = _lane_indices(f, index, steps, (1,) * len(index), lane)
    mask = _inside(f, place, divisors, raw, lane) if place.checked else _mask(lane)
    pointers = _lane_pointers(f, place, _lane_indices(f, index, steps, divisors, lane), lane)
    value = _masked_load(f, "gather", pointers, lane, place.dtype, mask)
    if x.outside == 0:
        return value
    outside = literal(x.outside, x.dtype, lane.lanes)
    choice = f"{value.type} {value.name}, {value.type} {outside.name}"
    chosen = f.op(f"select {vector('i1', lane.lanes)} {mask}, {choice}")
    return Value(chosen, x.dtype, lane.lanes)


def _inside(
    f: Function, place: Place, divisors: tuple[int, ...], indices: list[str], lane: Lane
) -> str:
    """The lanes in use whose elements are real."""
    wide, bits, mask = vector("i64", lane.lanes), vector("i1", lane.lanes), _mask(lane)
    for extent, divisor, name in zip(place.shape, divisors, indices, strict=True):
        limit = literal(extent * divisor, "i64", lane.lanes).name
        inside = f.op(f"icmp ult {wide} {name}, {limit}")
        mask = f.op(f"and {bits} {mask}, {inside}")
        if divisor > 1:
            rest = f.op(f"urem {wide} {name}, {literal(divisor, 'i64', lane.lanes).name}")
            whole = f.op(f"icmp eq {wide} {rest}, zeroinitializer")
            mask = f.op(f"and {bits} {mask}, {whole}")
    return mask


def _lane_indices(
    f: Function, index: list[Affine], steps: list[int], divisors: tuple[int, ...], lane: Lane
) -> list[str]:
    """For each dimension the vector of element indices."""
    wide, result = vector("i64", lane.lanes), []
    for e, step, divisor in zip(index, steps, divisors, strict=True):
        name = splat(f, Value(f.integer(e), "i64", 1), lane.lanes).name
        if step:
            offsets = ", ".join(f"i64 {step * k}" for k in range(lane.lanes))
            name = f.op(f"add {wide} {name}, <{offsets}>")
        if divisor > 1:
            name = f.op(f"sdiv {wide} {name}, {literal(divisor, 'i64', lane.lanes).name}")
        result.append(name)
    return result


def _lane_pointers(f: Function, place: Place, indices: list[str], lane: Lane) -> str:
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


def _mask(lane: Lane) -> str:
    return f"<{', '.join(f'i1 {str(k < lane.active).lower()}' for k in range(lane.lanes))}>"


def _masked_load(f: Function, how: str, pointer: str, lane: Lane, dtype: str, mask: str) -> Value:
    """What a `load` of neighbours reads, or a `gather` by a vector of pointers; zeros elsewhere."""
    memory = vector(STORED[dtype], lane.lanes)
    name, kind = _masked(how, lane, dtype)
    alignment, bits = ("i32", str(BYTES[dtype])), (vector("i1", lane.lanes), mask)
    zeros = (memory, "zeroinitializer")
    loaded = f.intrinsic(name, memory, (kind, pointer), alignment, bits, zeros)
    return from_memory(f, loaded, dtype, lane.lanes)


def _lanes_that(f: Function, condition: str, lane: Lane) -> str:
    """The lanes in use where a condition holds; none elsewhere."""
    if not condition:
        return _mask(lane)
    all_ = splat(f, Value(condition, "i1", 1), lane.lanes).name
    return f.op(f"and {vector('i1', lane.lanes)} {all_}, {_mask(lane)}")


def _masked_store(
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
