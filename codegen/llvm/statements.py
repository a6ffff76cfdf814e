"""The statements of a stage: values, combined into registers or memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hlotune.codegen.llvm.access_forms import constants_of, form_of
from hlotune.codegen.llvm.buffers import Held, Place, Places
from hlotune.codegen.llvm.function import Function, Register
from hlotune.codegen.llvm.idioms.transposed_loads import read_in_squares
from hlotune.codegen.llvm.idioms.transposed_stores import Waiting
from hlotune.codegen.llvm.loads import At, Found, source
from hlotune.codegen.llvm.looked_up import Scattered
from hlotune.codegen.llvm.masked_access import lanes_in_use
from hlotune.codegen.llvm.math.values import Value, literal, splat, vector
from hlotune.codegen.llvm.merging import across_lanes, last_lane, merged
from hlotune.codegen.llvm.points import Lane, Point, known_sizes, lane_of, moved, standing
from hlotune.codegen.llvm.statement_access import Frame, Frames, Key, Registers
from hlotune.codegen.llvm.stores import put
from hlotune.codegen.llvm.templates import Block, Old, Once, Put, Read
from hlotune.codegen.llvm.unrolled_copies import Copy
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.monoids import Monoid
from hlotune.schedules.ir.nest import LoopNest, StageNest


class Statements:
    """Writes statements into a function; `places` says where each tensor lies at the moment."""

    def __init__(self, nest: LoopNest, f: Function, places: Places) -> None:
        self.nest, self.f, self.places = nest, f, places
        self.frames = Frames(nest, f, places)
        self.waiting: Waiting | None = None
        """Rows that are to be stored together."""
        self.scanned: dict[str, Place] = {}
        """Where the results of scans lie that go on from registers."""

    def written(self, s: StageNest, point: Point, copies: Sequence[Copy]) -> None:
        """Copies of one point, or one vector of points, of a stage."""
        frames = dict[Lane | None, tuple[Point, Frame]]()
        for copy in copies:
            for _ in range(copy.fences):
                self.f.fence()
            if copy.rolls:
                self.f.barrier()
            if copy.lane not in frames:
                like = replace(point, lane=copy.lane)
                frames[copy.lane] = like, self.frames(s, like)
            at = dict(point.constants)
            for root, offset in copy.offsets.items():
                at[root] += offset
            self._statement(s, *frames[copy.lane], at)

    def _statement(self, s: StageNest, like: Point, frame: Frame, at: At) -> None:
        loads, names = self._loaded(frame, like, at), list[str]()
        for step in frame.steps(tuple([x.lanes for x in loads])):
            match step:
                case Block():
                    step.write(self.f, names)
                case Read():
                    names.append(loads[step.load].read().name)
                case Once():
                    names.append(self.f.once_for_its_operands(step.line.filled(names)))
                case Old():
                    names.append(self._old(s, step.store, frame, like, at).name)
                case Put():
                    self._put(s, step.store, frame, step.value_of(names), like, at)

    def _loaded(self, frame: Frame, like: Point, at: At) -> list[Found]:
        loads = [x(at) for x in frame.loads]
        for square in frame.squares:
            turned = read_in_squares(self.f, square, like, at)
            for k, found in zip(square.loads, turned, strict=True):
                if loads[k].lanes == frame.lanes:
                    loads[k] = found
        return loads

    def _old(self, s: StageNest, k: int, frame: Frame, like: Point, at: At) -> Value:
        target = frame.targets[k]
        if isinstance(target, Registers):
            return target.value(at, frame.lanes)
        if isinstance(target, Scattered):
            dtype = self._dtype(s.stage.stores[k].tensor)
            return splat(self.f, target.old(dtype, at), frame.lanes)
        return self._stored(s, k, target.place, self.first(s, like, at), like, at)

    def _put(self, s: StageNest, k: int, frame: Frame, value: Value, like: Point, at: At) -> None:
        x, target = s.stage.stores[k], frame.targets[k]
        if isinstance(target, Registers) and s.stage.scans:
            place = self.scanned[x.tensor]
            past = _passes(s, like) and not _is_gone_on_from(s, at)
            form = form_of(self.f, place, x, like)
            put(self.f, form, constants_of(x.index, at), value, past=past)
            active = like.lane.active if like.lane else 1
            target.put(at, last_lane(self.f, value, active) if s.reduces_lanes else value)
        elif isinstance(target, Registers):
            target.put(at, self._of_lanes_in_use(s, target, value, like, at))
        elif isinstance(target, Scattered):
            target.put(at, value)
        elif self.waiting and self.waiting.takes(target.place, x, like):
            self.waiting.add(self.f, target.place, x, value, standing(like, at))
        else:
            constants = constants_of(x.index, at)
            put(self.f, target, constants, value, past=_passes(s, like))

    def _of_lanes_in_use(
        self, s: StageNest, target: Registers, value: Value, like: Point, at: At
    ) -> Value:
        """Points of a reduction beyond its end leave what has come together in their lanes."""
        lane = like.lane
        if lane is None or not s.reduces_lanes or lane.active == lane.lanes:
            return value
        old, mask = target.value(at, lane.lanes), vector("i1", lane.lanes)
        choice = f"{value.type} {value.name}, {old.type} {old.name}"
        chosen = self.f.op(f"select {mask} {lanes_in_use(lane)}, {choice}")
        return Value(chosen, value.dtype, lane.lanes)

    def together(self, waiting: Waiting, inside: Callable[[], None]) -> None:
        """What `inside` writes, with neighbouring rows stored at once at its end."""
        before, self.waiting = self.waiting, waiting
        inside()
        waiting.write(self.f)
        self.waiting = before

    def accumulated(self, s: StageNest, point: Point, inside: Callable[[], None]) -> None:
        """What `inside` writes, with the results in registers; loaded before, stored after."""
        origin = {a.name: point.spans[a.name].low for a in s.stage.parallel}
        tile, memory, first = self._tile(s, point), {}, self.first(s, point, point.constants)
        apart = s.adds_up or (s.reduces_lanes and not s.stage.scans)
        begins = "true" if apart else first
        for k, x in enumerate(s.stage.stores):
            place = self.places[x.tensor]
            for r in tile:
                value = self._stored(s, k, place, begins, r.like, r.at)
                value = splat(self.f, value, r.lanes(s))
                self.f.registers[x.tensor, r.key] = Register(value.name, value.type)
            memory[x.tensor] = place
            self.places[x.tensor] = Held(s.stage.name, origin, self._dtype(x.tensor))
        if s.stage.scans:
            self._scanned(memory, tile, inside)
            return
        inside()
        if s.reduces_lanes and s.stage.combine:
            self._merge_lanes(s, s.stage.combine, tile)
        for group in s.stage.groups:
            found = [memory[s.stage.stores[k].tensor] for k in group]
            places = [place for place in found if isinstance(place, Place)]
            if len(places) == len(found):  # others stay in registers, for who reads them there
                self._flush(s, group, places, tile, first if apart else "true")

    def _scanned(
        self, memory: "dict[str, Place | Held]", tile: "list[_Part]", inside: Callable[[], None]
    ) -> None:
        """What `inside` writes of a scan, which stores each result as it comes about."""
        places = {name: place for name, place in memory.items() if isinstance(place, Place)}
        self.scanned |= places
        inside()
        for name, place in places.items():
            self.places[name] = place
            for r in tile:
                del self.f.registers[name, r.key]

    def _merge_lanes(self, s: StageNest, monoid: Monoid, tile: "list[_Part]") -> None:
        """One lane in the place of each register."""
        self.f.zeros_alike = self.frames.zeros_alike(s.stage)
        self.f.loses_nan = self.frames.loses_nan(s.stage)
        for group in s.stage.groups:
            names = [s.stage.stores[k].tensor for k in group]
            for r in tile:
                registers = [self.f.registers[name, r.key] for name in names]
                pairs = zip(registers, names, strict=True)
                values = [Value(x.value, self._dtype(name), s.lanes) for x, name in pairs]
                found = across_lanes(self.f, monoid, values)
                for name, value in zip(names, found, strict=True):
                    self.f.registers[name, r.key] = Register(value.name, value.type)
        self.f.zeros_alike = self.f.loses_nan = False

    def _flush(
        self, s: StageNest, group: range, places: Sequence[Place], tile: "list[_Part]", first: str
    ) -> None:
        """Stores the registers of a tile and gives them up, merged with what is there unless
        `first` says that nothing is."""
        stores = [s.stage.stores[k] for k in group]
        for x, place in zip(stores, places, strict=True):
            self.places[x.tensor] = place
        for r in tile:
            lanes = 1 if s.reduces_lanes else r.lanes(s)
            values = [
                Value(self.f.registers.pop((x.tensor, r.key)).value, place.dtype, lanes)
                for x, place in zip(stores, places, strict=True)
            ]
            if first != "true" and s.stage.combine:
                before = [
                    splat(self.f, self._stored(s, k, place, first, r.like, r.at), lanes)
                    for k, place in zip(group, places, strict=True)
                ]
                values = merged(self.f, s.stage.combine, before, values)
            for x, place, value in zip(stores, places, values, strict=True):
                form, constants = form_of(self.f, place, x, r.like), constants_of(x.index, r.at)
                put(self.f, form, constants, value, past=_passes(s, r.like))

    def _dtype(self, tensor: str) -> str:
        return self.nest.compute.tensor(tensor).dtype

    def _tile(self, s: StageNest, point: Point) -> "list[_Part]":
        """The registers of a tile, in order."""
        sizes = known_sizes(self.f, s.stage, point.spans, "a register tile")
        lanes, root = s.lanes, s.vector_root
        likes, parts = dict[Lane | None, Point](), []
        for key in product(*(range(0, n, lanes if a == root else 1) for a, n in sizes.items())):
            at, lane = dict(point.constants), None
            for axis, p in zip(sizes, key, strict=True):
                at[axis] += p
                if axis == root:
                    lane = lane_of(s, root, min(sizes[root] - p, lanes))
            like = likes.get(lane)
            if like is None:
                like = likes[lane] = Point(point.spans, lane)
            parts.append(_Part(key, like, at))
        return parts

    def _stored(
        self, s: StageNest, k: int, place: Place | Held, first: str, like: Point, at: At
    ) -> Value:
        """What a result has come to so far: nothing, where all reductions stand at their start.

        `first` says whether they do.
        """
        x, lanes = s.stage.stores[k], like.lane.lanes if like.lane else 1
        start = self._start(s, k, lanes)
        if s.stage.begins and not isinstance(place, Held):
            start = self._begun(s, k, like, at)
        if first == "true" or isinstance(place, Held):
            return start
        if s.stage.scans:
            like, at = self._before(s, like, at)
        stored = source(self.f, place, Load(x.tensor, x.index, start.dtype), like)(at).read()
        old = splat(self.f, stored, lanes)
        chosen = f"select i1 {first}, {start.type} {start.name}, {start.type} {old.name}"
        return Value(self.f.op(chosen), start.dtype, lanes)

    def _before(self, s: StageNest, like: Point, at: At) -> tuple[Point, At]:
        """Where a scan stored the result of the point before; at the first one the point itself."""
        (axis,) = s.stage.reduce
        low = Affine(like.spans[axis.name].low.terms, at[axis.name])
        if not low.terms:
            return like, {**at, axis.name: low.constant - 1}
        depth, before = self.f.depth_of(low), self.f.integer(low + -1)
        self.f.module.declare("llvm.smax.i64", "declare i64 @llvm.smax.i64(i64, i64)")
        name = self.f.hoisted(depth, f"call i64 @llvm.smax.i64(i64 {before}, i64 0)")
        place = self.f.variable(name, (0, axis.extent - 1), depth=depth)
        return moved(like, axis.name, place), {**at, axis.name: 0}

    def _begun(self, s: StageNest, k: int, like: Point, at: At) -> Value:
        """What a scan begins with, where that is no identity."""
        x = s.stage.begins[k]
        place = self.places[x.tensor]
        if not isinstance(place, Place):
            raise BuildError(f"expected {x.tensor} in memory, got registers; store it for the scan")
        read = source(self.f, place, x, like)(at).read()
        return splat(self.f, read, like.lane.lanes if like.lane else 1)

    def _start(self, s: StageNest, k: int, lanes: int) -> Value:
        """What a result is before anything has come to it."""
        if s.stage.combine is None:
            return literal(0, self._dtype(s.stage.stores[k].tensor), lanes)
        group = next(g for g in s.stage.groups if k in g)
        dtypes = tuple(self._dtype(s.stage.stores[n].tensor) for n in group)
        found = s.stage.combine.identities(dtypes)[k - group.start]
        return literal(found.value, found.dtype, lanes)

    def first(self, s: StageNest, like: Point, at: At) -> str:
        """Whether all reductions stand at their first position: "true", "false", an SSA name."""
        condition = "true"
        for axis in s.stage.reduce:
            low = Affine(like.spans[axis.name].low.terms, at[axis.name])
            if low.terms:
                depth = self.f.depth_of(low)
                zero = self.f.hoisted(depth, f"icmp eq i64 {self.f.integer(low)}, 0")
                both = f"and i1 {condition}, {zero}"
                condition = zero if condition == "true" else self.f.once(both)
            elif low.constant:
                return "false"
        return condition


def _passes(s: StageNest, like: Point) -> bool:
    """Whether a result goes past the caches: whole vectors do, as parts of lines would be written
    one by one."""
    return s.non_temporal and (like.lane is None or like.lane.lanes >= s.lanes)


def _is_gone_on_from(s: StageNest, at: At) -> bool:
    """Whether a scan may go on from this point's result as it lies in memory: from that of the last
    point written out together, unless registers hold results along the whole axis."""
    (axis,) = s.stage.reduce
    own = [x for x in s.loops if x.root == axis.name]
    outside = s.loops[: s.index(s.accumulate) + 1] if s.accumulate else ()
    if all(x.step >= axis.extent for x in own if x in outside):
        return False
    together = min((x.step for x in own if x.kind == "serial"), default=axis.extent)
    return (at[axis.name] + (s.lanes if s.reduces_lanes else 1)) % together == 0


@dataclass(frozen=True, slots=True)
class _Part:
    """A register of a tile: its key, and where its elements are stored."""

    key: Key
    like: Point
    """A point of the same variables and lanes."""
    at: At

    def lanes(self, s: StageNest) -> int:
        """Lanes of the register: those of its point, where that has lanes."""
        return self.like.lane.lanes if self.like.lane else s.lanes
