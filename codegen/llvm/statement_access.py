"""Where a statement reads and stores, found out once for its copies.

Copies that are written out stand at positions of the same variables, and differ in constants: a
frame knows their forms of access, and takes the constants of one copy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

from hlotune.codegen.llvm.access_forms import Form, constants_of, form_of
from hlotune.codegen.llvm.buffers import Held, Place, Places
from hlotune.codegen.llvm.expressions import steps_of
from hlotune.codegen.llvm.function import Function, Register
from hlotune.codegen.llvm.hoisted_loads import hoisted, may_be_hoisted
from hlotune.codegen.llvm.idioms.transposed_loads import Square, squares_of
from hlotune.codegen.llvm.loads import At, Found, Source, source
from hlotune.codegen.llvm.looked_up import Pointer, Scattered, pointer, source_of
from hlotune.codegen.llvm.math.values import HELD, Value, vector
from hlotune.codegen.llvm.points import Point
from hlotune.codegen.llvm.prefetch import ask
from hlotune.codegen.llvm.templates import Step
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.compute import Stage
from hlotune.schedules.ir.expr import Affine, Load, Lookup
from hlotune.schedules.ir.lost_nan import may_pass_over_nan
from hlotune.schedules.ir.monoids import MAX, MIN
from hlotune.schedules.ir.nest import LoopNest, StageNest, asked_cache
from hlotune.schedules.ir.never_positive import powers_are_at_most_one
from hlotune.schedules.ir.zero_signs import may_be_either_zero

Key = tuple[int, ...]
"""Offsets of a register on the parallel axes of its stage."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The loads and stores of a statement, in the order of its stage."""

    stage: Stage
    lanes: int
    dtypes: tuple[str, ...]
    """The types of its results."""
    loads: tuple[Source, ...]
    targets: "tuple[Form | Registers | Scattered, ...]"
    squares: tuple[Square, ...]
    features: tuple[str, ...]
    """The features of the target."""
    zeros_alike: bool
    """Whether the sign of a result that is zero does not matter."""
    along: bool
    """Whether the lanes are points of a scan."""
    loses_nan: bool
    """Whether extremes may pass over what is no number."""
    at_most_one: bool
    """Whether exponentials are of numbers that are zero or less."""

    @cached_property
    def _steps(self) -> dict[tuple[int, ...], tuple[Step, ...]]:
        return {}

    def steps(self, loaded: tuple[int, ...]) -> tuple[Step, ...]:
        """How a copy is written whose loads give so many lanes."""
        known = self._steps.get(loaded)
        if known is None:
            known = self._steps[loaded] = steps_of(
                self.stage, self.lanes, self.dtypes, loaded, self.features, self.zeros_alike,
                self.along, self.loses_nan, self.at_most_one,
            )  # fmt: skip
        return known


class Frames:
    """The frames of one function."""

    def __init__(self, nest: LoopNest, f: Function, places: Places) -> None:
        self.nest, self.f, self.places = nest, f, places
        self._frames: dict[object, Frame] = {}
        self._elements: dict[object, int] = {}
        """Numbers of loads at positions of the same variables."""
        self._zeros_alike: dict[str, bool] = {}
        """By stage."""
        self._loses_nan: dict[str, bool] = {}
        """By stage."""
        self._at_most_one: dict[str, bool] = {}
        """By stage."""

    def __call__(self, s: StageNest, point: Point) -> Frame:
        where = point.lane, point.discharged, point.terms
        key = s.stage.name, self.places.version, where
        frame = self._frames.get(key)
        if frame is None:
            frame = self._frames[key] = self._frame(s, point)
        return frame

    def zeros_alike(self, stage: Stage) -> bool:
        """Whether a stage merges by extremes whose sign does not matter where they are zero."""
        if stage.combine not in (MAX, MIN):
            return False
        if stage.name not in self._zeros_alike:
            self._zeros_alike[stage.name] = may_be_either_zero(self.nest.compute, stage)
        return self._zeros_alike[stage.name]

    def loses_nan(self, stage: Stage) -> bool:
        """Whether a stage merges by extremes that may pass over what is no number."""
        if stage.name not in self._loses_nan:
            found = self.zeros_alike(stage) and may_pass_over_nan(self.nest.compute, stage)
            self._loses_nan[stage.name] = found
        return self._loses_nan[stage.name]

    def _are_at_most_one(self, stage: Stage) -> bool:
        """Whether all exponentials of a stage are of numbers that are zero or less."""
        if stage.name not in self._at_most_one:
            found = powers_are_at_most_one(self.nest.compute, stage)
            self._at_most_one[stage.name] = found
        return self._at_most_one[stage.name]

    def _frame(self, s: StageNest, point: Point) -> Frame:
        lanes = point.lane.lanes if point.lane else 1
        targets: list[Form | Registers | Scattered] = []
        for x in s.stage.stores:
            place = self.places[x.tensor]
            if isinstance(place, Place) and x.lookups:
                pointers = tuple(self._pointer(s, y, point, lanes, False) for y in x.lookups)
                targets.append(Scattered(self.f, place, x, pointers, point))
            elif isinstance(place, Place):
                targets.append(form_of(self.f, place, x, point))
            else:
                own = tuple(Affine.axis(a.name) for a in s.stage.parallel)
                targets.append(registers_of(self.f, place, x.tensor, own, point))
        reads_only = all(isinstance(x, Registers) for x in targets)
        return Frame(
            stage=s.stage,
            lanes=lanes,
            dtypes=tuple(self.nest.compute.tensor(x.tensor).dtype for x in s.stage.stores),
            loads=tuple(self._ahead(s, x, point, lanes, reads_only) for x in s.stage.loads),
            targets=tuple(targets),
            squares=squares_of(s.stage, self.places, point),
            features=self.nest.target.features,
            zeros_alike=self.zeros_alike(s.stage),
            along=s.stage.scans and s.reduces_lanes,
            loses_nan=self.loses_nan(s.stage),
            at_most_one=self._are_at_most_one(s.stage),
        )

    def _ahead(self, s: StageNest, x: Load, point: Point, lanes: int, reads_only: bool) -> Source:
        """A load, and with it the request for what lies some bytes further on.

        The foremost of several loads of a tensor asks for all.  Requests to memory stand behind
        their load: in front of one of several vectors they would turn it around, as LLVM then reads
        these from the last to the first, and the processor sees no stream.
        """
        fresh, place = self._source(s, x, point, lanes, reads_only), self.places[x.tensor]
        asked = {request.tensor: request for request in s.ahead}.get(x.tensor)
        if asked is None or not isinstance(place, Place) or self._follows(s.stage, x):
            return fresh
        form = form_of(self.f, place, x, point)
        cache = asked_cache(self.nest, s, asked)

        def found(at: At) -> Found:
            constants, here = constants_of(x.index, at), fresh(at)
            if form.lanes == 1 or not form.is_run(constants):
                return here

            def request() -> None:
                size = BYTES[place.dtype] * form.lanes
                ask(self.f, form.pointer(constants), asked.bytes, size, cache)

            def read() -> Value:
                value = here.read()
                request()
                return value

            if cache == 1:
                request()
                return here
            return Found(here.lanes, read)

        return found

    def _follows(self, stage: Stage, x: Load) -> bool:
        """Whether another load of the stage reads what lies behind, at places that differ in
        constants only."""
        strides = self.nest.compute.tensor(x.tensor).strides

        def offset(load: Load) -> int:
            return sum(e.constant * n for e, n in zip(load.index, strides, strict=True))

        terms = [e.terms for e in x.index]
        alike = (y for y in stage.loads if y.tensor == x.tensor and y.divisors == x.divisors)
        return any(offset(y) > offset(x) for y in alike if [e.terms for e in y.index] == terms)

    def _source(self, s: StageNest, x: Load, point: Point, lanes: int, reads_only: bool) -> Source:
        place = self.places[x.tensor]
        if isinstance(place, Held):
            held = registers_of(self.f, place, x.tensor, x.index, point)
            varies = point.lane and any(point.lane.root in e.coefficients for e in x.index)
            own = lanes if varies else 1
            return lambda at: Found(own, lambda: held.value(at, own))
        if x.beside is not None:
            place = place.with_beside(self.nest.compute.tensor(x.beside.tensor).shape)
        pointers = [self._pointer(s, y, point, lanes, reads_only) for y in x.lookups]
        fresh = (
            source_of(self.f, place, x.whole, pointers, point)
            if pointers
            else source(self.f, place, x.whole, point)
        )
        if not pointers and may_be_hoisted(s, x):
            fresh = hoisted(self.f, place, x.whole, point, fresh)
        if place.constant and not any(p.hoisted is None for p in pointers):
            return self._kept(x.whole, point, fresh, 0)
        # another version, for once a stage writes there again, what was loaded before is stale
        return self._kept(x.whole, point, fresh, self.places.version) if reads_only else fresh

    def _pointer(
        self, s: StageNest, x: Lookup, point: Point, lanes: int, reads_only: bool
    ) -> Pointer:
        read = self._source(s, x.load, point, lanes, reads_only)
        return pointer(self.f, x, self.places[x.load.tensor], read, point)

    def _kept(self, x: Load, point: Point, fresh: Source, version: int) -> Source:
        """A load from what nothing writes to meanwhile: written once a block for each element."""
        key = x, version, point.lane, *(point.spans[a].low.terms for a in x.axes)
        number = self._elements.setdefault(key, len(self._elements))
        pick = _element_of(x)

        def at_constants(at: At) -> Found:
            key = number, pick(at)
            known = self.f.kept.get(key)
            if isinstance(known, Found):
                return known
            found = fresh(at)
            return Found(found.lanes, partial(_read_once, self.f, key, found))

        return at_constants


def _element_of(x: Load) -> Callable[[At], Any]:
    """Tells elements apart at positions of the same variables; taps of a window share some."""
    if any(len(e.terms) > 1 for e in x.index) and not x.lookups:
        return lambda at: tuple(constants_of(x.index, at))
    return itemgetter(*x.axes) if x.axes else lambda _: ()


def _read_once(f: Function, key: object, found: Found) -> Value:
    known = f.kept.get(key)
    if not isinstance(known, Found):
        value = found.read()
        known = f.kept[key] = Found(found.lanes, lambda: value)
    return known.read()


@dataclass(frozen=True, eq=False)
class Registers:
    """Registers of a tensor as an index goes through them."""

    f: Function
    tensor: str
    dtype: str
    index: tuple[Affine, ...]
    origin: tuple[int, ...]

    def key(self, at: At) -> tuple[str, Key]:
        constants = constants_of(self.index, at)
        return self.tensor, tuple([c - n for c, n in zip(constants, self.origin, strict=True)])

    def value(self, at: At, lanes: int) -> Value:
        """Raises BuildError where there is no such register."""
        key = self.key(at)
        register = self.f.registers.get(key)
        if register is None or register.type != vector(HELD[self.dtype], lanes):
            raise BuildError(
                f"expected {self.tensor} at {key[1]} in registers, as {lanes} lanes, got "
                f"{register.type if register else 'nothing'}; unroll producer and consumer alike"
            )
        return Value(register.value, self.dtype, lanes)

    def put(self, at: At, value: Value) -> None:
        self.f.registers[self.key(at)] = Register(value.name, value.type)


def registers_of(
    f: Function, place: Held, tensor: str, index: tuple[Affine, ...], point: Point
) -> Registers:
    """Raises BuildError where it is not known while emitting which register is meant."""
    for (axis, origin), e in zip(place.origin.items(), index, strict=True):
        offset = e.substitute(point.positions) - origin
        if offset.terms:
            raise BuildError(
                f"{place.stage}: expected a register's place known while emitting, got {offset} "
                f"along {axis}; unroll its loops"
            )
    origins = tuple(e.constant for e in place.origin.values())
    return Registers(f, tensor, place.dtype, index, origins)
