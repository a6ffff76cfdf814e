"""Loads and stores at places that data decides: a row of a table, a slice from a place on.

A place that no lane of the vector changes becomes a variable of the function, and the load is one
of its form: vectors along the row's neighbours, borders, masks.  Where lanes have places of their
own, they are gathered.  Places of an argument are loaded at the head of the loop that they vary
in, others where they are used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from hlotune.codegen.llvm.access_forms import Constants, Form, constants_of, form_of
from hlotune.codegen.llvm.addresses import elements, lane_steps
from hlotune.codegen.llvm.buffers import Place
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.loads import At, Found, Source, found_in, widened
from hlotune.codegen.llvm.masked_access import gather
from hlotune.codegen.llvm.math.values import STORED, Value, literal, splat, suffix, vector
from hlotune.codegen.llvm.points import Lane, Point
from hlotune.codegen.llvm.stores import put
from hlotune.schedules.dtypes import BYTES, is_unsigned
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.compute import Store
from hlotune.schedules.ir.expr import Affine, Load, Lookup

WIDE = "i64"
Write = Callable[[str], str]
"""Writes an instruction, and gives the name of its value."""


@dataclass(frozen=True, eq=False)
class Scattered:
    """Where a statement stores at places that data decides."""

    f: Function
    place: Place
    store: Store
    pointers: "tuple[Pointer, ...]"
    point: Point

    def old(self, dtype: str, at: At) -> Value:
        """What stands there."""
        x = Load(self.store.tensor, self.store.index, dtype, lookups=self.store.lookups)
        return source_of(self.f, self.place, x, self.pointers, self.point)(at).read()

    def put(self, at: At, value: Value) -> None:
        put_at(self.f, self.place, self.store, self.pointers, self.point, at, value)


@dataclass(frozen=True)
class Pointer:
    """A lookup as a function sees it: how its load is read, and its form where that may be hoisted
    out of loops."""

    lookup: Lookup
    source: Source
    hoisted: Form | None


def pointer(f: Function, x: Lookup, place: object, source: Source, point: Point) -> Pointer:
    """`place` is that of the lookup's load."""
    plain = isinstance(place, Place) and place.constant and not x.load.lookups
    plain = plain and x.load.beside is None and not x.load.divisors
    form = form_of(f, place, x.load, point) if isinstance(place, Place) and plain else None
    return Pointer(x, source, form)


def source_of(
    f: Function, place: Place, x: Load, pointers: Sequence[Pointer], point: Point
) -> Source:
    """A load with lookups."""
    if x.dtype != place.dtype:
        narrow = source_of(f, place, replace(x, dtype=place.dtype), pointers, point)
        return widened(f, x, narrow)

    def found(at: At) -> Found:
        read = [p.source(at) for p in pointers]
        lane = point.lane
        if lane is not None and any(r.lanes > 1 for r in read):
            each = partial(_gathered, f, place, x, pointers, read, point, at, lane)
            return Found(lane.lanes, each)
        return _at_variables(f, place, x, pointers, read, point, at)

    return found


def _at_variables(
    f: Function, place: Place, x: Load, pointers: Sequence[Pointer], read: Sequence[Found],
    point: Point, at: At,
) -> Found:  # fmt: skip
    """The load with a variable for each lookup, which are defined as it is read."""
    form, constants, define = _form(f, place, x, pointers, read, point, at)
    found = found_in(f, x, form, constants, point.discharged)

    @cache
    def value() -> Value:
        define()
        with f.head_here():
            return found.read()

    return Found(found.lanes, value)


def put_at(
    f: Function, place: Place, x: Store, pointers: Sequence[Pointer], point: Point, at: At,
    value: Value,
) -> None:  # fmt: skip
    """Stores at places that data decides.  Raises BuildError where lanes have several."""
    read = [p.source(at) for p in pointers]
    if any(r.lanes > 1 for r in read):
        raise BuildError(
            f"expected all lanes to store where one place says, got places of lanes for "
            f"{x.tensor}: vectorize along another axis"
        )
    form, constants, define = _form(f, place, x, pointers, read, point, at)
    define()
    with f.head_here():
        put(f, form, constants, value)


def _form(
    f: Function, place: Place, x: Load | Store, pointers: Sequence[Pointer],
    read: Sequence[Found], point: Point, at: At,
) -> tuple[Form, Constants, Callable[[], None]]:  # fmt: skip
    """The form of an access with a variable for each lookup, its constants, and what defines
    variables where the function stands."""
    variables, waiting = dict[str, Affine](), list[tuple[str, Pointer, Found]]()
    for p, own in zip(pointers, read, strict=True):
        early = _hoisted(f, p, at)
        if early is None:
            name = f.name()
            waiting.append((name, p, own))
            early = f.variable(name, (0, p.lookup.most), depth=f.depth + 1)
        variables[p.lookup.name] = early
    positions = point.positions | variables
    index = [e.substitute(positions) for e in x.index]
    constants = [
        e.constant + sum(c * at[a] for a, c in e.terms if a not in variables) for e in x.index
    ]
    steps = lane_steps(x.index, point.lane)
    divisors = x.divisors if isinstance(x, Load) else ()
    form = Form(f, place, tuple(Affine(e.terms) for e in index), divisors, steps, point.lane)

    def define() -> None:
        for name, p, own in waiting:
            _clamped(f, own.read(), p.lookup.most, f.op, name)

    return form, constants, define


def _hoisted(f: Function, p: Pointer, at: At) -> Affine | None:
    """The lookup's place as a variable of the loop that it varies in; None where it cannot be."""
    form, load = p.hoisted, p.lookup.load
    if form is None or form.lanes > 1:
        return None
    place, where = form.place, form.where(constants_of(load.index, at))
    ends = zip(map(f.bounds, where), place.shape, strict=True)
    if any(low < 0 or high >= extent for (low, high), extent in ends):
        return None
    offset = elements(f, place, where) * BYTES[place.dtype]
    address, depth = f.pointer(place.base, offset)
    write = partial(f.hoisted, depth)
    if offset.constant:
        address = write(f"getelementptr inbounds i8, ptr {address}, i64 {offset.constant}")
    text = f"load {STORED[place.dtype]}, ptr {address}, align {BYTES[place.dtype]}"
    name = _clamped(f, Value(write(text), place.dtype, 1), p.lookup.most, write)
    return f.variable(name, (0, p.lookup.most), depth=depth)


def _clamped(f: Function, value: Value, most: int, write: Write, name: str = "") -> str:
    """The place that a value names, as i64: `name`, or a name of its own."""
    wide, kind, unsigned = (
        vector(WIDE, value.lanes), suffix(WIDE, value.lanes), is_unsigned(value.dtype)
    )  # fmt: skip
    text = value.name
    if BYTES[value.dtype] < BYTES[WIDE]:
        text = write(f"{'zext' if unsigned else 'sext'} {value.type} {text} to {wide}")
    if not unsigned:
        text = write(_called(f, f"llvm.smax.{kind}", wide, text, literal(0, WIDE, value.lanes)))
    least = f"llvm.{'umin' if unsigned else 'smin'}.{kind}"
    last = _called(f, least, wide, text, literal(most, WIDE, value.lanes))
    if not name:
        return write(last)
    f.emit(f"{name} = {last}")
    return name


def _called(f: Function, intrinsic: str, wide: str, text: str, other: Value) -> str:
    f.module.declare(intrinsic, f"declare {wide} @{intrinsic}({wide}, {wide})")
    return f"call {wide} @{intrinsic}({wide} {text}, {wide} {other.name})"


def _gathered(
    f: Function, place: Place, x: Load, pointers: Sequence[Pointer], read: Sequence[Found],
    point: Point, at: At, lane: Lane,
) -> Value:  # fmt: skip
    """Each lane from its own place."""
    wide, places = vector(WIDE, lane.lanes), dict[str, str]()
    for p, own in zip(pointers, read, strict=True):
        value = splat(f, own.read(), lane.lanes)
        places[p.lookup.name] = _clamped(f, value, p.lookup.most, f.op)
    added, index = dict[int, str](), list[Affine]()
    for d, e in enumerate(x.index):
        for name, c in e.terms:
            if name in places:
                scale = f"splat ({WIDE} {c})"
                part = places[name] if c == 1 else f.op(f"mul {wide} {places[name]}, {scale}")
                added[d] = f.op(f"add {wide} {added[d]}, {part}") if d in added else part
        rest = Affine.of({a: c for a, c in e.terms if a not in places}, e.constant)
        low = Affine.weighted((Affine(point.spans[a].low.terms, at[a]), c) for a, c in rest.terms)
        index.append(low + rest.constant)
    return gather(f, place, x, index, lane_steps(x.index, lane), lane, added)
