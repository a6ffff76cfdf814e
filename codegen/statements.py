"""The statements of a stage: values, combined into registers or memory."""

from collections.abc import Callable, Mapping
from functools import cache

from hlotune.codegen.access import load, store
from hlotune.codegen.dots import dot
from hlotune.codegen.operations import apply
from hlotune.codegen.places import Held, Place, Places
from hlotune.codegen.spans import Lane, Point, Span, known_size
from hlotune.codegen.text import Function, Register
from hlotune.codegen.turning import Waiting
from hlotune.codegen.values import HELD, Value, convert, literal, splat, suffix, vector
from hlotune.schedules.compute import Combine, Store
from hlotune.schedules.dtypes import BYTES, GROUPS, is_float, is_unsigned
from hlotune.schedules.errors import BuildError
from hlotune.schedules.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.nest import LoopNest, StageNest

COMBINE: dict[Combine, str] = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
}  # fmt: skip
Key = tuple[int, ...]
"""Offsets of a register on the parallel axes of its stage."""


class Statements:
    """Writes statements into a function; `places` says where each tensor lies at the moment."""

    def __init__(self, nest: LoopNest, f: Function, places: Places) -> None:
        self.nest, self.f, self.places = nest, f, places
        self.shared: dict[int, Value] = {}
        """Values of the present statement, by the identity of their expression."""
        self.waiting: Waiting | None = None
        """Rows that are to be stored together."""

    def statement(self, s: StageNest, point: Point) -> None:
        """One point, or one vector of points, of a stage."""
        self.shared = {}
        lanes = point.lane.lanes if point.lane else 1
        for x, expr in zip(s.stage.stores, s.stage.values, strict=True):
            place, dtype = self.places[x.tensor], self._dtype(x.tensor)
            if isinstance(place, Held):
                at = {a.name: point.spans[a.name].low for a in s.stage.parallel}
                key = x.tensor, _key(place, at)
                old = self._register(*key, dtype, lanes) if s.stage.combine else None
                value = self._combined(s, expr, old, lanes, point)
                self.f.registers[key] = Register(value.name, value.type)
            else:
                old = self._stored(s, x, place, point, point) if s.stage.combine else None
                value = self._combined(s, expr, old, lanes, point)
                if self.waiting and self.waiting.takes(place, x, point):
                    self.waiting.add(self.f, place, x, value, point)
                else:
                    store(self.f, place, x.index, value, point)

    def together(self, waiting: Waiting, inside: Callable[[], None]) -> None:
        """What `inside` writes, with neighbouring rows stored at once at its end."""
        before, self.waiting = self.waiting, waiting
        inside()
        waiting.write(self.f)
        self.waiting = before

    def accumulated(self, s: StageNest, point: Point, inside: Callable[[], None]) -> None:
        """What `inside` writes, with the results in registers; loaded before, stored after."""
        origin = {a.name: point.spans[a.name].low for a in s.stage.parallel}
        keys, memory = self._tile(s, point), {}
        for x in s.stage.stores:
            place = self.places[x.tensor]
            for key in keys:
                value = self._stored(s, x, place, point, _at_key(self.f, s, point, key))
                value = splat(self.f, value, s.lanes)
                self.f.registers[x.tensor, key] = Register(value.name, value.type)
            memory[x.tensor] = place
            self.places[x.tensor] = Held(s.stage.name, origin, self._dtype(x.tensor))
        inside()
        for x in s.stage.stores:
            place = memory[x.tensor]
            if isinstance(place, Place):
                self._flush(s, x, place, keys, point)

    def _flush(self, s: StageNest, x: Store, place: Place, keys: list[Key], point: Point) -> None:
        """Stores the registers of a tile and gives them up."""
        self.places[x.tensor] = place
        for key in keys:
            register = self.f.registers.pop((x.tensor, key))
            value = Value(register.value, place.dtype, s.lanes)
            store(self.f, place, x.index, value, _at_key(self.f, s, point, key))

    def _dtype(self, tensor: str) -> str:
        return self.nest.compute.tensor(tensor).dtype

    def _tile(self, s: StageNest, point: Point) -> list[Key]:
        """The registers of a tile, in order."""
        keys: list[Key] = [()]
        for axis in s.stage.parallel:
            step = s.lanes if axis.name == s.vector_root else 1
            size = known_size(self.f, point.spans[axis.name])
            if size is None:
                raise BuildError(
                    f"{s.stage.name}: expected a register tile of known size along {axis.name}, "
                    f"got {point.spans[axis.name]}; split the axis by the tile"
                )
            keys = [(*key, p) for key in keys for p in range(0, size, step)]
        return keys

    def _stored(
        self, s: StageNest, x: Store, place: Place | Held, point: Point, at: Point
    ) -> Value:
        """What a result has come to so far: nothing, where all reductions stand at their start."""
        dtype, lanes = self._dtype(x.tensor), at.lane.lanes if at.lane else 1
        start, first = identity(s.stage.combine, dtype, lanes), self._first(s, point)
        if first == "true" or isinstance(place, Held):
            return start
        old = splat(self.f, load(self.f, place, Load(x.tensor, x.index, dtype), at), lanes)
        chosen = f"select i1 {first}, {start.type} {start.name}, {start.type} {old.name}"
        return Value(self.f.op(chosen), dtype, lanes)

    def _first(self, s: StageNest, point: Point) -> str:
        """Whether all reductions stand at their first position: "true", "false", an SSA name."""
        condition = "true"
        for axis in s.stage.reduce:
            low = point.spans[axis.name].low
            if low.terms:
                depth = self.f.depth_of(low)
                zero = self.f.hoisted(depth, f"icmp eq i64 {self.f.integer(low)}, 0")
                both = f"and i1 {condition}, {zero}"
                condition = zero if condition == "true" else self.f.once(both)
            elif low.constant:
                return "false"
        return condition

    def _combined(
        self, s: StageNest, expr: Expr, old: Value | None, lanes: int, point: Point
    ) -> Value:
        if old is None or s.stage.combine is None:
            return splat(self.f, self._value(expr, point, lanes), lanes)
        product = isinstance(expr, Apply) and expr.op == "multiply"
        if isinstance(expr, Apply) and product and s.stage.combine == "sum" and is_float(old.dtype):
            return self._multiplied_and_added(expr, old, lanes, point)
        if isinstance(expr, Apply) and expr.op == "dot" and s.stage.combine == "sum":
            return self._dotted(expr, old, lanes, point)
        value = splat(self.f, self._value(expr, point, lanes), lanes)
        return apply(self.f, COMBINE[s.stage.combine], (old, value), old.dtype)

    def _multiplied_and_added(self, expr: Apply, old: Value, lanes: int, point: Point) -> Value:
        a, b = (self._value(x, point, lanes) for x in expr.args)
        # padding and inserted zeros add nothing: where that is known while emitting, no code
        if a.known == 0 or b.known == 0:
            return old
        a, b = splat(self.f, a, lanes), splat(self.f, b, lanes)
        kind = suffix("double" if old.dtype == "f64" else "float", lanes)
        arguments = ((a.type, a.name), (b.type, b.name), (old.type, old.name))
        name = self.f.intrinsic(f"llvm.fmuladd.{kind}", old.type, *arguments)
        return Value(name, old.dtype, lanes)

    def _dotted(self, expr: Apply, old: Value, lanes: int, point: Point) -> Value:
        a, b = (self._value(x, point, lanes) for x in expr.args)
        if a.known == 0 or b.known == 0:
            return old
        return dot(self.f, splat(self.f, a, lanes), splat(self.f, b, lanes), old)

    def _value(self, expr: Expr, point: Point, lanes: int) -> Value:
        value = self.shared.get(id(expr))
        if value is None:
            value = self.shared[id(expr)] = self._fresh(expr, point, lanes)
        return value

    def _fresh(self, expr: Expr, point: Point, lanes: int) -> Value:
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype, 1)
        if isinstance(expr, Load):
            return self._loaded(expr, point, lanes)
        args = [self._value(a, point, lanes) for a in expr.args]
        if expr.op == "convert":
            known_zero = args[0].known == 0
            return literal(0, expr.dtype, 1) if known_zero else convert(self.f, args[0], expr.dtype)
        # what a dot takes is spread over the lanes as it is loaded
        wide = lanes if expr.dtype in GROUPS else max([a.lanes for a in args])
        args = [a if a.lanes == wide else splat(self.f, a, wide) for a in args]
        return apply(self.f, expr.op, tuple(args), expr.dtype)

    def _loaded(self, x: Load, point: Point, lanes: int) -> Value:
        place = self.places[x.tensor]
        if isinstance(place, Place):
            if x.beside is not None:
                place = place.with_beside(self.nest.compute.tensor(x.beside.tensor).shape)
            x = x.whole
            return self._kept(place, x, point) if place.constant else load(self.f, place, x, point)
        index = (e.substitute(point.positions) for e in x.index)
        key = _key(place, dict(zip(place.origin, index, strict=True)))
        return self._register(x.tensor, key, place.dtype, lanes)

    def _kept(self, place: Place, x: Load, point: Point) -> Value:
        """A load from what nothing writes to: written once a block for each element."""
        key = x, point.lane, *(point.spans[a].low for a in x.axes)
        value = self.f.kept.get(key)
        if not isinstance(value, Value):
            value = self.f.kept[key] = load(self.f, place, x, point)
        return value

    def _register(self, tensor: str, key: Key, dtype: str, lanes: int) -> Value:
        register = self.f.registers.get((tensor, key))
        if register is None or register.type != vector(HELD[dtype], lanes):
            raise BuildError(
                f"expected {tensor} at {key} in registers, as {lanes} lanes, got "
                f"{register.type if register else 'nothing'}; unroll producer and consumer alike"
            )
        return Value(register.value, dtype, lanes)


@cache
def identity(combine: Combine | None, dtype: str, lanes: int) -> Value:
    """The value that a combine leaves everything as it is with."""
    if combine in ("sum", "or", None):
        return literal(0, dtype, lanes)
    if combine == "prod":
        return literal(1, dtype, lanes)
    if combine == "and":
        return literal(-1, dtype, lanes)
    if is_float(dtype):
        return literal(float("-inf") if combine == "max" else float("inf"), dtype, lanes)
    bits = 8 * BYTES[dtype] if dtype != "i1" else 1
    least, most = (
        (0, 2**bits - 1) if is_unsigned(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return literal(least if combine == "max" else most, dtype, lanes)


def _at_key(f: Function, s: StageNest, point: Point, key: Key) -> Point:
    """The point of one register of a tile."""
    spans, lane = dict(point.spans), None
    for axis, p in zip(s.stage.parallel, key, strict=True):
        span = spans[axis.name]
        size = (known_size(f, span) or span.size) - p
        spans[axis.name] = Span(span.low + p, size, span.extent)
        if axis.name == s.vector_root:
            lane = Lane(axis.name, s.lanes, min(size, s.lanes))
    return Point(spans, lane)


def _key(place: Held, at: Mapping[str, Affine]) -> Key:
    """Offsets from the first element held; known while emitting, since tiles are unrolled."""
    result = []
    for axis, origin in place.origin.items():
        offset = at[axis] - origin
        if offset.terms:
            raise BuildError(
                f"{place.stage}: expected a register's place known while emitting, got {offset} "
                f"along {axis}; unroll its loops"
            )
        result.append(offset.constant)
    return tuple(result)
