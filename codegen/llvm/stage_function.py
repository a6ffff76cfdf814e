"""A root stage, and the stages inside it, as one function over a range of tasks."""

from math import prod

from hlotune.codegen.llvm.buffers import Places, Scratch
from hlotune.codegen.llvm.function import Function, Module
from hlotune.codegen.llvm.idioms.amx_tiles import Tiles
from hlotune.codegen.llvm.loop_splitting import special_positions
from hlotune.codegen.llvm.loops import Loops
from hlotune.codegen.llvm.points import Point, Span, moved, with_digits
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.nest import Loop, LoopNest, StageNest, region


def tasks(nest: LoopNest, s: StageNest) -> list[tuple[Loop, int]]:
    """Parallel loops of a root stage with the number of their iterations."""
    trips = s.trips(region(nest, s))
    return [(x, n) for x, n in zip(s.loops, trips, strict=True) if x.kind == "parallel"]


class StageFunction:
    """Writes a root stage as `void f(ptr call, i64 begin, i64 end, i64 slot)`."""

    def __init__(
        self, nest: LoopNest, root: StageNest, module: Module, scratch: Scratch, name: str
    ) -> None:
        self.nest, self.root = nest, root
        header = f"define internal void @{name}(ptr %call, i64 %begin, i64 %end, i64 %slot)"
        self.f = Function(module, header)
        self.places = Places(nest, root, self.f, scratch)
        self.tiles = Tiles(nest, root, self.f, self.places)
        self.loops = Loops(nest, root, self.f, self.places, self.tiles)

    def write(self) -> None:
        parallel = tasks(self.nest, self.root)
        extents = region(self.nest, self.root)
        spans = {a: Span(Affine(), n, n) for a, n in extents.items()}
        self.places.open(self.root, spans)
        self.tiles.open()
        count = prod(n for _, n in parallel)
        if count == 1:
            self._task(parallel, spans, Affine())
        else:
            self.f.loop(
                "%begin", "%end", 1, (0, count - 1),
                lambda t: self._task(parallel, spans, t), nonempty=True,
            )  # fmt: skip
        self.tiles.close()
        if self.root.non_temporal and self.nest.target.triple.startswith("x86_64"):
            # others may read results as soon as a task ends, and these stores keep no order
            self.f.intrinsic("llvm.x86.sse.sfence", "void")
        self.f.finish()

    def _task(self, parallel: list[tuple[Loop, int]], spans: dict[str, Span], task: Affine) -> None:
        """Takes a task's number apart, row by row, into a position for each parallel loop."""
        below, spans = prod(n for _, n in parallel), dict(spans)
        starts: list[tuple[Loop, Affine]] = []
        for loop, n in parallel:
            below //= n
            start = self._digit(task, below, n) * loop.step if n > 1 else Affine()
            base = spans[loop.root]
            starts.append((loop, start))
            spans[loop.root] = Span(base.low + start, loop.step, base.extent)
        point = Point(spans)
        for loop in (x for x, _ in parallel if x.step == 1):
            point = with_digits(self.f, self.root.stage, loop.root, point)
        self._specialised(len(parallel) - 1, point, starts)

    def _digit(self, task: Affine, below: int, n: int) -> Affine:
        name, depth = self.f.integer(task), self.f.depth
        if below > 1:
            name = self.f.hoisted(depth, f"udiv i64 {name}, {below}")
        return self.f.variable(self.f.hoisted(depth, f"urem i64 {name}, {n}"), (0, n - 1))

    def _specialised(self, k: int, point: Point, starts: list[tuple[Loop, Affine]]) -> None:
        """A task whose body is static right away: the ragged last one is written apart."""
        if not starts:
            self.loops.body(k, point)
            return
        (loop, start), rest = starts[0], starts[1:]
        whole = Span(Affine(), loop.step, point.spans[loop.root].extent)
        special = special_positions(self.nest, self.root, self.root.index(loop.axis), whole)
        if not special or not start.terms:
            self._specialised(k, point, rest)
            return
        position, last = self.f.integer(start), min(special)
        for p in special:
            at = moved(point, loop.root, Affine((), p))
            self._specialised_when(f"icmp eq i64 {position}, {p}", k, at, rest)
        copy = self.f.hoisted(self.f.depth, f"add i64 {position}, 0")
        low = self.f.variable(copy, (0, last - loop.step), multiple=loop.step)
        at = moved(point, loop.root, low)
        self._specialised_when(f"icmp slt i64 {position}, {last}", k, at, rest)

    def _specialised_when(
        self, condition: str, k: int, point: Point, rest: list[tuple[Loop, Affine]]
    ) -> None:
        self.f.when(self.f.op(condition), lambda: self._specialised(k, point, rest))
