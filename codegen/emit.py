"""Loop nests to LLVM text.

A root stage becomes a function over a range of tasks; `kernel` runs them in order, through the host where there are
several tasks.  Inside, loops are written as the nest says; where an unrolled or vectorized loop would be cut at the
end of its axis, or a border is peeled, the enclosing loop is split so that each copy of the body has static sizes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from hlotune.codegen.access import Lane, Place, Point, Span, load, store
from hlotune.codegen.text import Function, Module, Register
from hlotune.codegen.values import Value, apply, convert, literal, splat, suffix
from hlotune.schedules.compute import Combine, Tensor
from hlotune.schedules.dtypes import is_float
from hlotune.schedules.errors import BuildError
from hlotune.schedules.expr import Affine, Apply, Const, Expr, Load
from hlotune.schedules.nest import (
    Loop,
    LoopNest,
    StageNest,
    bordering,
    guarded,
    hull,
    reader,
    reads,
    region,
    stored_bytes,
    stored_shape,
)

COMBINE: dict[Combine, str] = {
    "sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Emitted:
    text: str
    scratch_bytes: int
    packed: tuple[tuple[str, str, int], ...]
    """(constant argument, entry that packs it, bytes)."""


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor in registers: the position of its first element on each axis."""

    stage: str
    origin: dict[str, Affine]
    dtype: str


def emit(nest: LoopNest) -> Emitted:
    """Raises BuildError where the nest has a form that has no code."""
    module, scratch = Module(), _Scratch(nest)
    packs = [s for s in nest.stages if s.scope == "load"]
    roots = [s for s in nest.stages if s.at is None and s.scope != "load"]
    packed = []
    for k, s in enumerate(packs):
        _StageFunction(nest, s, module, scratch, f"pack_stage_{k}").write()
        _entry(nest, module, f"prepack_{k}", [(f"pack_stage_{k}", s)])
        packed.append((s.stage.loads[0].tensor, f"prepack_{k}", stored_bytes(nest, s)))
    names = [(f"stage_{k}", s) for k, s in enumerate(roots)]
    for name, s in names:
        _StageFunction(nest, s, module, scratch, name).write()
    _entry(nest, module, "kernel", names)
    return Emitted(str(module), scratch.bytes, tuple(packed))


def tasks(nest: LoopNest, s: StageNest) -> list[tuple[Loop, int]]:
    """Parallel loops of a root stage with the number of their iterations."""
    trips = s.trips(region(nest, s))
    return [(x, n) for x, n in zip(s.loops, trips, strict=True) if x.kind == "parallel"]


def _entry(nest: LoopNest, module: Module, name: str, stages: list[tuple[str, StageNest]]) -> None:
    f = Function(module, f"define i32 @{name}(ptr %call)")
    for function, s in stages:
        count = prod(n for _, n in tasks(nest, s))
        if count == 1:
            f.emit(f"call void @{function}(ptr %call, i64 0, i64 1, i64 0)")
            continue
        host = f.op(f"load ptr, ptr {f.op('getelementptr i8, ptr %call, i64 24')}")
        run = f.op(f"load ptr, ptr {host}")
        f.emit(f"call void {run}(ptr {host}, i64 {count}, ptr @{function}, ptr %call)")
    f.finish("ret i32 0")


class _Scratch:
    """Where temporaries lie: those of a call first, then for each slot those of its task."""

    def __init__(self, nest: LoopNest) -> None:
        self.offsets: dict[str, int] = {}
        self.call_bytes = self.slot_bytes = 0
        for s in nest.stages:
            if s.scope == "call":
                self.call_bytes = self._place(s, stored_bytes(nest, s), self.call_bytes)
            elif s.scope == "task":
                self.slot_bytes = self._place(s, stored_bytes(nest, s), self.slot_bytes)
        self.bytes = self.call_bytes + nest.target.threads * self.slot_bytes

    def _place(self, s: StageNest, size: int, used: int) -> int:
        self.offsets[s.stage.name] = used
        # a line between buffers keeps equal offsets in two of them out of one set of the cache
        return used + ceil(size / 64) * 64 + (64 if size else 0)


class _StageFunction:
    """Writes one root stage, and the stages inside it, as `void f(ptr call, i64 begin, i64 end, i64 slot)`."""

    def __init__(
        self, nest: LoopNest, root: StageNest, module: Module, scratch: _Scratch, name: str
    ) -> None:
        self.nest, self.root, self.scratch = nest, root, scratch
        header = f"define internal void @{name}(ptr %call, i64 %begin, i64 %end, i64 %slot)"
        self.f = Function(module, header)
        self.places: dict[str, Place | Held] = {}

    def write(self) -> None:
        parallel = tasks(self.nest, self.root)
        extents = region(self.nest, self.root)
        spans = {a: Span(Affine(), n, n) for a, n in extents.items()}
        self._open(self.root, spans)
        count = prod(n for _, n in parallel)
        if count == 1:
            self._run_tasks(parallel, spans, Affine())
        else:
            self.f.loop(
                "%begin",
                "%end",
                1,
                (0, count - 1),
                lambda t: self._run_tasks(parallel, spans, t),
                nonempty=True,
            )
        self.f.finish()

    def _run_tasks(
        self, parallel: list[tuple[Loop, int]], spans: dict[str, Span], task: Affine
    ) -> None:
        """Takes a task's number apart, row by row, into a position for each parallel loop."""
        below, spans = prod(n for _, n in parallel), dict(spans)
        starts: list[tuple[Loop, Affine]] = []
        for loop, n in parallel:
            below //= n
            index = Affine()
            if n > 1:
                name = self.f.integer(task)
                depth = self.f.depth
                quotient = self.f.hoisted(depth, f"udiv i64 {name}, {below}") if below > 1 else name
                index = self.f.variable(
                    self.f.hoisted(depth, f"urem i64 {quotient}, {n}"), (0, n - 1)
                )
            base = spans[loop.root]
            starts.append((loop, index * loop.step))
            position = base.low + index * loop.step
            spans[loop.root] = Span(position, loop.step, base.extent)
        self._specialised(self.root, len(parallel) - 1, Point(spans), starts)

    def _specialised(
        self, s: StageNest, k: int, point: Point, starts: list[tuple[Loop, Affine]]
    ) -> None:
        """A parallel loop right around a static body: the ragged last task is written apart."""
        for n, (loop, start) in enumerate(starts):
            special = self._specials(
                s, s.index(loop.axis), Span(Affine(), loop.step, point.spans[loop.root].extent)
            )
            if not special or not start.terms:
                continue
            position = self.f.integer(start)
            rest = starts[n + 1 :]
            for p in special:
                same = self.f.op(f"icmp eq i64 {position}, {p}")
                at = _moved(point, loop.root, Affine((), p))
                self.f.when(same, lambda at=at: self._specialised(s, k, at, rest))  # type: ignore[misc]
            inside = self.f.op(f"icmp slt i64 {position}, {min(special)}")
            copy = self.f.hoisted(self.f.depth, f"add i64 {position}, 0")
            low = self.f.variable(copy, (0, min(special) - loop.step), multiple=loop.step)
            self.f.when(
                inside, lambda: self._specialised(s, k, _moved(point, loop.root, low), rest)
            )
            return
        self._inside(s, k, point)

    # stages -------------------------------------------------------------------------------------------------------

    def _stage(self, s: StageNest, consumer: StageNest, point: Point) -> None:
        """A stage inside a loop of another: the region that is read from here on."""
        user = reader(self.nest, s)
        spans = self._region(s, user, self._seen(user, consumer, point.spans))
        self._open(s, spans)
        self._inside(s, -1, Point(spans))

    def _seen(
        self, user: StageNest, at: StageNest, spans: Mapping[str, Span]
    ) -> Mapping[str, Span]:
        """What `user` will walk while `at` stands where its spans say: `user` is `at` or stands further inside."""
        if user is at or user.at is None:
            return spans
        outer = self.nest.stage(user.at[0])
        return self._region(user, outer, self._seen(outer, at, spans))

    def _region(self, s: StageNest, user: StageNest, seen: Mapping[str, Span]) -> dict[str, Span]:
        """Spans of a producer's axes: the hull of what its user reads over its own spans, reductions whole."""
        sizes = {root: self._known_size(span) or span.size for root, span in seen.items()}
        needed = hull(s.stage, user.stage, sizes)
        spans = {a.name: Span(Affine(), a.extent, a.extent) for a in s.stage.reduce}
        positions = {root: span.low for root, span in seen.items()}
        x = reads(s.stage, user.stage)[0]
        for axis, index in zip(s.stage.parallel, x.index, strict=True):
            same = len(index.terms) == 1 and index.terms[0][1] == 1 and not index.constant
            # a copy is cut off by the checks of its loads, which need no aligned tiles
            same = same and s.stage.combine is not None
            extent = seen[index.terms[0][0]].extent if same else None
            low = index.substitute(positions) + sum(
                c * (sizes[a] - 1) for a, c in index.terms if c < 0
            )
            spans[axis.name] = Span(low, needed[axis.name], extent)
        return spans

    def _open(self, s: StageNest, spans: dict[str, Span]) -> None:
        """Says where the stage's results go, and where its loads from outside the nest come from."""
        origin = {a.name: spans[a.name].low for a in s.stage.parallel}
        for k, x in enumerate(s.stage.stores):
            tensor = self.nest.compute.tensor(x.tensor)
            if s.scope == "register":
                self.places[tensor.name] = Held(s.stage.name, origin, tensor.dtype)
            elif tensor.role == "result":
                self.places[tensor.name] = self._argument(tensor)
            else:
                self.places[tensor.name] = self._temporary(s, tensor, k, tuple(origin.values()))
        for load_ in s.stage.loads:
            maker = self.nest.producer(load_.tensor)
            if load_.tensor not in self.places and (maker is None or maker.at is None):
                self.places[load_.tensor] = self._source(load_.tensor)

    def _argument(self, tensor: Tensor) -> Place:
        compute = self.nest.compute
        is_result = tensor.role == "result"
        position = (compute.results if is_result else compute.arguments).index(tensor)
        if self.root.scope == "load":
            position = 0
        base = self._call_pointer(8 if is_result else 0, position)
        return Place.of(
            base, tensor.shape, tensor.dtype, checked=not is_result, constant=not is_result
        )

    def _call_pointer(self, field: int, position: int) -> str:
        table = self.f.hoisted(0, f"load ptr, ptr {self._at('%call', field)}")
        return self.f.hoisted(0, f"load ptr, ptr {self._at(table, 8 * position)}")

    def _at(self, pointer: str, offset: int) -> str:
        return (
            self.f.hoisted(0, f"getelementptr i8, ptr {pointer}, i64 {offset}")
            if offset
            else pointer
        )

    def _source(self, name: str) -> Place:
        """A tensor that an earlier root stage made, or an argument."""
        tensor, maker = self.nest.compute.tensor(name), self.nest.producer(name)
        if maker is None:
            return self._argument(tensor)
        k = [x.tensor for x in maker.stage.stores].index(name)
        return self._temporary(maker, tensor, k, tuple(Affine() for _ in tensor.shape))

    def _temporary(self, s: StageNest, tensor: Tensor, k: int, origin: tuple[Affine, ...]) -> Place:
        shape = stored_shape(self.nest, s)
        layout = s.layout or _vector_last(s, len(shape))
        if s.scope == "load":
            if self.root is s:
                base = self._call_pointer(8, 0)
            else:
                source = self.nest.compute.tensor(s.stage.loads[0].tensor)
                base = self._call_pointer(0, self.nest.compute.arguments.index(source))
        else:
            base = self._scratch(s, k * stored_bytes(self.nest, s) // len(s.stage.stores))
        return Place.of(
            base,
            shape,
            tensor.dtype,
            origin=origin,
            layout=layout,
            constant=self.root is not s and s.at is None,
        )

    def _scratch(self, s: StageNest, offset: int) -> str:
        start = self.f.hoisted(0, f"load ptr, ptr {self._at('%call', 16)}")
        offset += self.scratch.offsets[s.stage.name]
        if s.scope == "call":
            return self._at(start, offset)
        slot = self.f.hoisted(0, f"mul nsw i64 %slot, {self.scratch.slot_bytes}")
        mine = self.f.hoisted(0, f"getelementptr i8, ptr {start}, i64 {slot}")
        return self._at(mine, self.scratch.call_bytes + offset)

    # loops --------------------------------------------------------------------------------------------------------

    def _inside(self, s: StageNest, k: int, point: Point) -> None:
        """The body of loop `k` of a stage; -1 is the stage itself."""
        name = s.loops[k].axis if k >= 0 else ""
        if k >= 0:
            for inner in self.nest.attached(s.stage.name, name):
                self._stage(inner, s, point)
        if s.accumulate == name:
            self._accumulated(s, k, point)
        else:
            self._rest(s, k + 1, point)

    def _rest(self, s: StageNest, k: int, point: Point) -> None:
        if k == len(s.loops):
            self._statement(s, point)
        elif s.loops[k].kind == "unroll":
            span = point.spans[s.loops[k].root]
            for p in range(0, self._static_size(s, k, span), s.loops[k].step):
                self._step(s, k, point, span, span.low + p)
        elif s.loops[k].kind == "vectorize":
            root = s.loops[k].root
            size = self._static_size(s, k, point.spans[root])
            self._inside(s, k, replace(point, lane=Lane(root, s.lanes, size)))
        else:
            self._loop(s, k, point)

    def _step(self, s: StageNest, k: int, point: Point, outer: Span, low: Affine) -> None:
        loop, left = s.loops[k], outer.size
        if low.terms == outer.low.terms:
            left -= low.constant - outer.low.constant
        spans = {**point.spans, loop.root: Span(low, min(loop.step, left), outer.extent)}
        self._inside(s, k, replace(point, spans=spans))

    def _loop(self, s: StageNest, k: int, point: Point) -> None:
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        if loop.border == "clip":
            self._clipped(s, k, point)
            return
        if self._is_static_inside(s, k) and span.size > loop.step and span.size % loop.step:
            full = span.size // loop.step * loop.step
            self._rest(s, k, _resized(point, loop.root, span.low, full))
            self._remainder(s, k, point, full)
            return
        special = self._specials(s, k, span)
        high = self._end(span)
        if not special and span.size <= loop.step:
            self._step(s, k, point, span, span.low)
            return
        if isinstance(high, int) and not span.low.terms:
            self._static_loop(s, k, point, span.low.constant, high, special)
        else:
            self._dynamic_loop(s, k, point, high, special)

    def _remainder(self, s: StageNest, k: int, point: Point, full: int) -> None:
        """The ragged last tile of a region whose size is no multiple of the step."""
        span = point.spans[s.loops[k].root]
        low = span.low + full
        if span.extent is None or self.f.bounds(low)[1] < span.extent:
            self._step(s, k, point, span, low)
        elif low.terms:
            exists = self.f.op(f"icmp slt i64 {self.f.integer(low)}, {span.extent}")
            self.f.when(exists, lambda: self._step(s, k, point, span, low))

    def _is_static_inside(self, s: StageNest, k: int) -> bool:
        """Whether the next loop of the same root must know its size while emitting."""
        inner = next((x for x in s.loops[k + 1 :] if x.root == s.loops[k].root), None)
        return inner is not None and inner.kind in ("unroll", "vectorize")

    def _static_loop(
        self, s: StageNest, k: int, point: Point, low: int, high: int, special: list[int]
    ) -> None:
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        positions = range(low, high, loop.step)
        middle = [p for p in positions if p not in special]
        for p in (p for p in positions if p in special and middle and p < middle[0]):
            self._step(s, k, point, span, Affine((), p))
        if len(middle) == 1:
            self._step(s, k, point, span, Affine((), middle[0]))
        elif middle:
            end = middle[-1] + 1
            self.f.loop(
                str(middle[0]), str(end), loop.step, (middle[0], middle[-1]),
                lambda v: self._step(s, k, point, span, v),
                nonempty=True, multiple=loop.step if middle[0] % loop.step == 0 else 1,
            )  # fmt: skip
        for p in (p for p in positions if p in special and (not middle or p > middle[0])):
            self._step(s, k, point, span, Affine((), p))

    def _dynamic_loop(
        self, s: StageNest, k: int, point: Point, high: Affine | int, special: list[int]
    ) -> None:
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        f, step = self.f, loop.step
        low_text = f.integer(span.low)
        high_text = str(high) if isinstance(high, int) else f.integer(high)
        least, most = f.bounds(span.low)
        most = most + (ceil(span.size / step) - 1) * step
        if span.extent is not None:
            most = min(most, (span.extent - 1) // step * step)
        aligned = span.low.constant % step == 0 and f.multiple_of(span.low, step)
        body = self._body(s, k, point, span)
        if not special:
            f.loop(
                low_text,
                high_text,
                step,
                (least, most),
                body,
                nonempty=True,
                multiple=step if aligned else 1,
            )
            return
        if not aligned:
            raise BuildError(
                f"{s.stage.name}: {loop.axis} starts at {span.low}, which is no multiple of its step"
            )
        middle = [p for p in range(0, most + 1, step) if p not in special]
        if middle:
            first, last = middle[0], middle[-1]
            start = f.intrinsic("llvm.smax.i64", "i64", ("i64", low_text), ("i64", str(first)))
            end = f.intrinsic("llvm.smin.i64", "i64", ("i64", high_text), ("i64", str(last + 1)))
            f.loop(start, end, step, (max(least, first), last), body, nonempty=False, multiple=step)
        for p in special:
            above = f.op(f"icmp sle i64 {low_text}, {p}")
            below = f.op(f"icmp sgt i64 {high_text}, {p}")
            f.when(f.op(f"and i1 {above}, {below}"), lambda p=p: body(Affine((), p)))  # type: ignore[misc]

    def _body(self, s: StageNest, k: int, point: Point, span: Span) -> Callable[[Affine], None]:
        return lambda low: self._step(s, k, point, span, low)

    def _specials(self, s: StageNest, k: int, span: Span) -> list[int]:
        """Positions whose bodies are written apart: a ragged end that a static body would meet, peeled borders."""
        loop, result = s.loops[k], set[int]()
        if span.extent is None:
            return []
        if self._is_static_inside(s, k) and span.extent % loop.step:
            result.add(span.extent // loop.step * loop.step)
        if loop.border == "peel":
            result.update(bordering(self.nest, s, k))
        return sorted(result)

    def _end(self, span: Span) -> Affine | int:
        """Where a span stops: at its own size, or at the end of the axis."""
        end = span.low + span.size
        if not span.low.terms:
            return end.constant if span.extent is None else min(end.constant, span.extent)
        if span.extent is None or self.f.bounds(end)[1] <= span.extent:
            return end
        depth = self.f.depth_of(end)
        text = self.f.integer(end)
        less = self.f.hoisted(depth, f"icmp slt i64 {text}, {span.extent}")
        cut = self.f.hoisted(depth, f"select i1 {less}, i64 {text}, i64 {span.extent}")
        return self.f.variable(cut, (0, span.extent), depth=depth)

    def _known_size(self, span: Span) -> int | None:
        if span.extent is None or self.f.bounds(span.low)[1] + span.size <= span.extent:
            return span.size
        return min(span.size, span.extent - span.low.constant) if not span.low.terms else None

    def _static_size(self, s: StageNest, k: int, span: Span) -> int:
        size = self._known_size(span)
        if size is None:
            raise BuildError(
                f"{s.stage.name}: the size of {s.loops[k].kind} {s.loops[k].axis} is not known; split it"
            )
        return size

    def _clipped(self, s: StageNest, k: int, point: Point) -> None:
        """A reduction over those positions only in which its loads may be real."""
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        end = self._end(span)
        low, high = self.f.integer(span.low), str(end) if isinstance(end, int) else self.f.integer(end)
        discharged = set(point.discharged)
        for x in s.stage.loads:
            for d in guarded(self.nest, s.stage, x):
                c = x.index[d].coefficients.get(loop.root, 0)
                if c <= 0 or x.divisor(d) > 1:
                    continue
                rest = Affine.of(
                    {a: n for a, n in x.index[d].terms if a != loop.root}, x.index[d].constant
                )
                sizes = {
                    a: (self._known_size(point.spans[a]) or point.spans[a].size) - 1
                    for a, _ in rest.terms
                }
                slack = (
                    sum(max(0, n * sizes[a]) for a, n in rest.terms),
                    sum(min(0, n * sizes[a]) for a, n in rest.terms),
                )
                extent = self.nest.compute.tensor(x.tensor).shape[d]
                low, high = self._clip(
                    rest.substitute(point.positions), c, slack, extent, low, high
                )
                if slack == (0, 0):
                    discharged.add((x, d))
        inside = replace(point, discharged=frozenset(discharged))
        last = min(self.f.bounds(span.low)[1] + span.size, s.stage.extents[loop.root]) - 1
        self.f.loop(
            low, high, loop.step, (self.f.bounds(span.low)[0], last),
            lambda v: self._step(s, k, inside, span, v), nonempty=False,
        )  # fmt: skip

    def _clip(
        self, rest: Affine, c: int, slack: tuple[int, int], extent: int, low: str, high: str
    ) -> tuple[str, str]:
        """Bounds of r in which `0 <= c*r + rest + (slack) < extent` can hold."""
        f = self.f
        first = f.integer(rest * -1 + (-slack[0] + c - 1))
        last = f.integer(rest * -1 + (extent - 1 - slack[1] + c))
        for_low = f.intrinsic("llvm.smax.i64", "i64", ("i64", first), ("i64", "0"))
        for_high = f.intrinsic("llvm.smax.i64", "i64", ("i64", last), ("i64", "0"))
        for_low, for_high = f.op(f"udiv i64 {for_low}, {c}"), f.op(f"udiv i64 {for_high}, {c}")
        return (
            f.intrinsic("llvm.smax.i64", "i64", ("i64", low), ("i64", for_low)),
            f.intrinsic("llvm.smin.i64", "i64", ("i64", high), ("i64", for_high)),
        )

    # statements ---------------------------------------------------------------------------------------------------

    def _accumulated(self, s: StageNest, k: int, point: Point) -> None:
        """The loops inside `k` with the results in registers, loaded before and stored after where need be."""
        origin = {a.name: point.spans[a.name].low for a in s.stage.parallel}
        keys = self._tile(s, k, point)
        held = {x.tensor: self.places[x.tensor] for x in s.stage.stores}
        for n, x in enumerate(s.stage.stores):
            tensor = self.nest.compute.tensor(x.tensor)
            for key in keys:
                value = self._initial(s, n, tensor, key, point, s.lanes)
                self.f.registers[x.tensor, key] = Register(value.name, value.type)
            self.places[x.tensor] = Held(s.stage.name, origin, tensor.dtype)
        self._rest(s, k + 1, point)
        if s.scope == "register":
            return
        self.places.update(held)
        for x in s.stage.stores:
            tensor = self.nest.compute.tensor(x.tensor)
            for key in keys:
                register = self.f.registers.pop((x.tensor, key))
                place = held[x.tensor]
                assert isinstance(place, Place)
                store(
                    self.f,
                    place,
                    x.index,
                    Value(register.value, tensor.dtype, s.lanes),
                    self._at_key(s, point, key),
                )

    def _tile(self, s: StageNest, k: int, point: Point) -> list[tuple[int, ...]]:
        """Offsets on the parallel axes of each register, in order."""
        keys: list[tuple[int, ...]] = [()]
        for axis in s.stage.parallel:
            step = s.lanes if axis.name == s.vector_root else 1
            size = self._known_size(point.spans[axis.name])
            if size is None:
                raise BuildError(
                    f"{s.stage.name}: the size of the register tile along {axis.name} is not known"
                )
            keys = [(*key, p) for key in keys for p in range(0, size, step)]
        return keys

    def _at_key(self, s: StageNest, point: Point, key: tuple[int, ...]) -> Point:
        spans, lane = dict(point.spans), None
        for axis, p in zip(s.stage.parallel, key, strict=True):
            span = spans[axis.name]
            size = (self._known_size(span) or span.size) - p
            spans[axis.name] = Span(span.low + p, size, span.extent)
            if axis.name == s.vector_root:
                lane = Lane(axis.name, s.lanes, min(size, s.lanes))
        return Point(spans, lane)

    def _initial(
        self, s: StageNest, n: int, tensor: Tensor, key: tuple[int, ...], point: Point, lanes: int
    ) -> Value:
        start = _identity(s.stage.combine, tensor.dtype, lanes)
        first = self._first(s, point)
        place = self.places[tensor.name]
        if first == "true" or isinstance(place, Held):
            return start
        x = s.stage.stores[n]
        old = load(
            self.f, place, Load(x.tensor, x.index, tensor.dtype), self._at_key(s, point, key)
        )
        name = self.f.op(f"select i1 {first}, {start.type} {start.name}, {start.type} {old.name}")
        return Value(name, tensor.dtype, lanes)

    def _first(self, s: StageNest, point: Point) -> str:
        """Whether all reductions stand at their first position: "true", or an SSA name."""
        condition = "true"
        for axis in s.stage.reduce:
            low = point.spans[axis.name].low
            if low.terms:
                depth = self.f.depth_of(low)
                zero = self.f.hoisted(depth, f"icmp eq i64 {self.f.integer(low)}, 0")
                condition = (
                    zero if condition == "true" else self.f.once(f"and i1 {condition}, {zero}")
                )
            elif low.constant:
                return "false"
        return condition

    def _statement(self, s: StageNest, point: Point) -> None:
        lanes = point.lane.lanes if point.lane else 1
        for n, (x, expr) in enumerate(zip(s.stage.stores, s.stage.values, strict=True)):
            place = self.places[x.tensor]
            dtype = self.nest.compute.tensor(x.tensor).dtype
            if isinstance(place, Held):
                key = (
                    x.tensor,
                    _key(place, {a.name: point.spans[a.name].low for a in s.stage.parallel}),
                )
                old = self._register(*key, dtype, lanes) if s.stage.combine else None
                value = self._combined(s, expr, old, lanes, point)
                self.f.registers[key] = Register(value.name, value.type)
                continue
            old = None
            if s.stage.combine:
                old = self._old(s, n, point, lanes)
            store(self.f, place, x.index, self._combined(s, expr, old, lanes, point), point)

    def _old(self, s: StageNest, n: int, point: Point, lanes: int) -> Value:
        """What a result held in memory has come to so far."""
        x = s.stage.stores[n]
        dtype, place = self.nest.compute.tensor(x.tensor).dtype, self.places[x.tensor]
        start, first = _identity(s.stage.combine, dtype, lanes), self._first(s, point)
        assert isinstance(place, Place)
        if first == "true":
            return start
        old = splat(self.f, load(self.f, place, Load(x.tensor, x.index, dtype), point), lanes)
        return Value(
            self.f.op(f"select i1 {first}, {start.type} {start.name}, {start.type} {old.name}"),
            dtype,
            lanes,
        )

    def _combined(
        self, s: StageNest, expr: Expr, old: Value | None, lanes: int, point: Point
    ) -> Value:
        if old is None or s.stage.combine is None:
            return splat(self.f, self._value(expr, point, lanes), lanes)
        fused = (
            isinstance(expr, Apply)
            and expr.op == "multiply"
            and s.stage.combine == "sum"
            and is_float(old.dtype)
        )
        if not fused:
            value = splat(self.f, self._value(expr, point, lanes), lanes)
            return apply(self.f, COMBINE[s.stage.combine], (old, value), old.dtype)
        a, b = (self._value(x, point, lanes) for x in expr.args)  # type: ignore[union-attr]
        if a.known == 0 or b.known == 0:
            return old
        a, b = splat(self.f, a, lanes), splat(self.f, b, lanes)
        name = self.f.intrinsic(
            f"llvm.fma.{suffix('double' if old.dtype == 'f64' else 'float', lanes)}", old.type,
            (a.type, a.name), (b.type, b.name), (old.type, old.name),
        )  # fmt: skip
        return Value(name, old.dtype, lanes)

    def _value(self, expr: Expr, point: Point, lanes: int) -> Value:
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype, 1)
        if isinstance(expr, Load):
            place = self.places[expr.tensor]
            if isinstance(place, Place):
                return load(self.f, place, expr, point)
            origin = {
                a: e.substitute(point.positions)
                for a, e in zip(place.origin, expr.index, strict=True)
            }
            return self._register(expr.tensor, _key(place, origin), place.dtype, lanes)
        if expr.op == "convert":
            return self._converted(self._value(expr.args[0], point, lanes), expr.dtype)
        args = tuple(self._value(a, point, lanes) for a in expr.args)
        wide = max(a.lanes for a in args)
        return apply(self.f, expr.op, tuple(splat(self.f, a, wide) for a in args), expr.dtype)

    def _register(self, tensor: str, key: tuple[int, ...], dtype: str, lanes: int) -> Value:
        register = self.f.registers.get((tensor, key))
        value = Value(register.value, dtype, lanes) if register else None
        if value is None or register is None or value.type != register.type:
            raise BuildError(
                f"{tensor} is not held at {key} in vectors of {lanes}: producer and consumer differ"
            )
        return value

    def _converted(self, value: Value, dtype: str) -> Value:
        if value.known == 0:
            return literal(0, dtype, value.lanes)
        return convert(self.f, value, dtype)


def _key(place: Held, at: dict[str, Affine]) -> tuple[int, ...]:
    """Offsets of an element from the first one held; they are known while emitting, since tiles are unrolled."""
    result = []
    for axis, origin in place.origin.items():
        offset = at[axis] + origin * -1
        if offset.terms:
            raise BuildError(
                f"{place.stage}: a register is indexed by {offset}, which is not known; unroll its loops"
            )
        result.append(offset.constant)
    return tuple(result)


def _identity(combine: Combine | None, dtype: str, lanes: int) -> Value:
    if combine in ("sum", "or", None):
        return literal(0, dtype, lanes)
    if combine == "prod":
        return literal(1, dtype, lanes)
    if combine == "and":
        return literal(-1, dtype, lanes)
    if is_float(dtype):
        return literal(float("-inf") if combine == "max" else float("inf"), dtype, lanes)
    raise BuildError(f"no first value for {combine} of {dtype} yet")


def _vector_last(s: StageNest, rank: int) -> tuple[tuple[int, int], ...]:
    """Row-major, but with the vectorized axis fastest, so that vectors are neighbours."""
    names = [a.name for a in s.stage.parallel]
    order = [d for d in range(rank) if names[d] != s.vector_root]
    order += [d for d in range(rank) if names[d] == s.vector_root]
    return tuple((d, 1) for d in order)


def _moved(point: Point, root: str, low: Affine) -> Point:
    return _resized(point, root, low, point.spans[root].size)


def _resized(point: Point, root: str, low: Affine, size: int) -> Point:
    return replace(point, spans={**point.spans, root: Span(low, size, point.spans[root].extent)})
