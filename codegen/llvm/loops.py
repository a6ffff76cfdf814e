"""The loops of a root stage, and of the stages inside it.

Loops are written as the nest says.  Where an unrolled or vectorized loop would be cut at the end of
its axis, or a border is peeled, the enclosing loop is split, so that each copy of the body has
static sizes.
"""

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

from hlotune.codegen.llvm.buffers import Place, Places
from hlotune.codegen.llvm.clipped_reductions import clipped_range
from hlotune.codegen.llvm.function import Function
from hlotune.codegen.llvm.idioms import transposed_copies
from hlotune.codegen.llvm.idioms.amx_tiles import Tiles
from hlotune.codegen.llvm.idioms.side_by_side import has_long_chains, side_by_side
from hlotune.codegen.llvm.idioms.transposed_stores import Waiting, waits
from hlotune.codegen.llvm.idioms.values_as_stored import AsStored, as_stored
from hlotune.codegen.llvm.idioms.window_reuse import rolled
from hlotune.codegen.llvm.loop_splitting import (
    is_static_inside,
    position_range,
    runs,
    seams,
    special_positions,
    static_size,
)
from hlotune.codegen.llvm.points import (
    Point,
    Span,
    end_of,
    known_sizes,
    lane_of,
    resized,
    smaller_of,
    with_digits,
)
from hlotune.codegen.llvm.prefetch import Entered, prefetch, rows_ahead, stream
from hlotune.codegen.llvm.region_spans import ends_in, region_at
from hlotune.codegen.llvm.statements import Statements
from hlotune.codegen.llvm.unrolled_copies import Copy, copies
from hlotune.schedules.errors import BuildError
from hlotune.schedules.ir.expr import Affine
from hlotune.schedules.ir.nest import Loop, LoopNest, StageNest, region


def _inside(nest: LoopNest, root: StageNest) -> list[StageNest]:
    """A root stage and those inside of it; a consumer stands behind what it has inside."""
    found, names = [root], {root.stage.name}
    for s in reversed(nest.stages):
        if s.at is not None and s.at[0] in names:
            found.append(s)
            names.add(s.stage.name)
    return found


class Loops:
    """Writes the loops of a root stage, and of the stages inside it, into a function."""

    def __init__(
        self, nest: LoopNest, root: StageNest, f: Function, places: Places, tiles: Tiles
    ) -> None:
        self.nest, self.root, self.f, self.places, self.tiles = nest, root, f, places, tiles
        self.statements = Statements(nest, f, places)
        self.entered: list[Entered] = []
        self.run: transposed_copies.Run | None = None
        """What the copy being written is turned along."""
        self.in_front: dict[str, AsStored] = {}
        """By reduction, the stage in front of it that is computed in its loops."""
        self.copies: dict[object, tuple[Copy, ...]] = {}
        """Copies of a stage's statement, by the loop that they begin with and sizes."""
        self.limits: dict[tuple[str, str], Affine] = {}
        """Where loops of a stage along an axis end, before its span does."""
        own = _inside(nest, root)
        self.reduced = {s.stage.name: {a.name for a in s.stage.reduce} for s in own}
        self.written_out = {s.stage.name: s.written_out for s in own}
        """The first loop of each stage from which on all are unrolled or vectorized."""
        self.attached = {
            (s.stage.name, x.axis): nest.attached(s.stage.name, x.axis)
            for s in own
            for x in s.loops
        }
        self.trips = {s.stage.name: s.trips(region(nest, s)) for s in own}

    def body(self, k: int, point: Point) -> None:
        """The body of loop `k` of the root stage; -1 is the stage itself."""
        self._inside(self.root, k, point)

    # stages -------------------------------------------------------------------------------------

    def _stage(self, s: StageNest, at: StageNest, point: Point) -> None:
        """A stage inside a loop of another: the region that is read from here on."""
        spans = region_at(self.f, self.nest, s, at, point.spans)
        self.limits |= {(s.stage.name, a): end for a, end in ends_in(self.f, s, spans).items()}
        self.places.open(s, spans)
        with self.f.settled():
            self._inside(s, -1, Point(spans))

    def _joins(self, s: StageNest, reduction: StageNest, at: StageNest, point: Point) -> bool:
        """Leaves a stage to the loops of the reduction behind it, where these compute it."""
        joined = as_stored(self.nest, s, reduction)
        if joined is None:
            return False
        own, read = (region_at(self.f, self.nest, x, at, point.spans) for x in (s, reduction))
        if any(own[a].low != read[b].low for a, b in joined.axes.items()):
            return False
        self.places.open(s, own)
        self.in_front[reduction.stage.name] = joined
        return True

    def _values(self, joined: AsStored, reduction: Point) -> None:
        """What a reduction is about to read, computed and stored over one body of it."""
        s, point = joined.stage, joined.point(reduction)
        sizes = known_sizes(self.f, s.stage, point.spans, "a body")
        self.statements.written(s, point, copies(s, 0, sizes))

    # loops --------------------------------------------------------------------------------------

    def _inside(self, s: StageNest, k: int, point: Point) -> None:
        """The body of loop `k` of a stage; -1 is the stage itself."""
        name = s.loops[k].axis if k >= 0 else ""
        inside = self.attached[s.stage.name, name] if k >= 0 else ()
        for inner, behind in pairwise((*inside, None)):
            if inner and not (behind and self._joins(inner, behind, s, point)):
                self._stage(inner, s, point)
        with self.f.settled() if inside else nullcontext():
            self._own(s, k, name, point)

    def _own(self, s: StageNest, k: int, name: str, point: Point) -> None:
        """The body of loop `k` of a stage, behind the stages inside of it."""
        if s.accumulate == name and s.tiles:
            self._tensorized(s, k + 1, point)
        elif s.accumulate == name:
            self.statements.accumulated(s, point, lambda: self._rest(s, k + 1, point))
        else:
            self._rest(s, k + 1, point)

    def _tensorized(self, s: StageNest, k: int, point: Point) -> None:
        """The loops from `k` on, with the results in tiles."""
        self.tiles.begin(s, point, self.statements.first(s, point, point.constants))
        self._rest(s, k, point)
        self.tiles.end(s, point)

    def _rest(self, s: StageNest, k: int, point: Point) -> None:
        """Loop `k` and all inside it; the statement, when there is no such loop."""
        if self._holds_back(s, k):
            waiting = Waiting(s.stage.name)
            self.statements.together(waiting, lambda: self._rest(s, k, point))
            return
        if (s.prefetch or s.stream) and k == self.written_out[s.stage.name]:
            self._prefetch(s)
        if s.stage.name in self.in_front and k == self.written_out[s.stage.name]:
            self._values(self.in_front[s.stage.name], point)
        if s.tiles and k == self.written_out[s.stage.name]:
            groups = next(n for n, x in enumerate(s.loops) if n >= k and x.root == s.tiles[1])
            size = static_size(self.f, s, groups, point.spans[s.tiles[1]])
            self.tiles.product(s, point, size)
            return
        if self._is_copied(s, k):
            self.statements.written(s, point, self._copies(s, k, point))
            return
        if k == len(s.loops):
            self._statement(s, point)
            return
        if self.run is None and k and s.layout and self._turns(s, k, point):
            return
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        if loop.kind == "unroll":
            for p in range(0, static_size(self.f, s, k, span), loop.step):
                if loop.root in self.reduced[s.stage.name]:
                    self.f.fence()
                self._step(s, k, point, span.low + p)
        elif loop.kind == "vectorize":
            lane = lane_of(s, loop.root, static_size(self.f, s, k, span))
            self._inside(s, k, Point(point.spans, lane, point.discharged))
        elif loop.border == "clip":
            self._clipped(s, k, point)
        else:
            self._loop(s, k, point)

    def _holds_back(self, s: StageNest, k: int) -> bool:
        """Whether what is written out from loop `k` on is to be stored in blocks of rows."""
        before = self.statements.waiting
        begun = before is not None and before.stage == s.stage.name
        return not begun and k == self.written_out[s.stage.name] and waits(s, k)

    def _is_copied(self, s: StageNest, k: int) -> bool:
        """Whether all from loop `k` on are copies that differ in constants."""
        if self.run is not None or k < self.written_out[s.stage.name]:
            return False
        inner = s.loops[k:]
        digits = {x.axis for x in s.stage.digits}
        return not any(x.axis == s.accumulate or x.root in digits for x in inner)

    def _copies(self, s: StageNest, k: int, point: Point) -> tuple[Copy, ...]:
        sizes = dict[str, int]()
        for n, loop in enumerate(s.loops[k:], k):
            if loop.root not in sizes:
                sizes[loop.root] = static_size(self.f, s, n, point.spans[loop.root])
        key = s.stage.name, k, *sizes.values()
        if key not in self.copies:
            found, target = copies(s, k, sizes), self.nest.target
            in_memory = all(isinstance(self.places[x.tensor], Place) for x in s.stage.loads)
            if in_memory and has_long_chains(self.nest, s):
                found = side_by_side(found)
            self.copies[key] = rolled(found, s, target.vector_registers, target.rates)
        return self.copies[key]

    def _statement(self, s: StageNest, point: Point) -> None:
        if self.run is None:
            self.statements.written(s, point, (Copy({}, point.lane),))
        else:
            transposed_copies.copy(self.f, self.places, s, point, self.run)

    def _turns(self, s: StageNest, k: int, point: Point) -> bool:
        """Writes a copy from loop `k` on in squares, where these are the loops to turn it along.

        What is computed inside of them is there for single elements only.
        """
        if any(self.attached[s.stage.name, x.axis] for x in s.loops[k:]):
            return False
        run = transposed_copies.run_of(self.nest, self.f, self.places, s, point)
        if run is None or run.first != k:
            return False
        self.run = run
        self._rest(s, len(s.loops) - 2, point)
        self.run = None
        return True

    def _step(self, s: StageNest, k: int, point: Point, low: Affine) -> None:
        """One iteration of loop `k`, at a position."""
        loop, outer = s.loops[k], point.spans[s.loops[k].root]
        left = outer.size
        if low.terms == outer.low.terms:
            left -= low.constant - outer.low.constant
        inside = resized(point, loop.root, low, min(loop.step, left))
        if loop.step == 1:
            inside = with_digits(self.f, s.stage, loop.root, inside)
        if loop.kind == "serial":
            self.entered.append(Entered(loop, self.trips[s.stage.name][k], point, inside))
        self._inside(s, k, inside)
        if loop.kind == "serial":
            self.entered.pop()

    def _prefetch(self, s: StageNest) -> None:
        for tensor in s.prefetch:
            place = self.places[tensor]
            if isinstance(place, Place):
                x = next(x for x in s.stage.loads if x.tensor == tensor)
                prefetch(self.f, place, x, self.entered)
        for tensor, axis in s.stream:
            place = self.places[tensor]
            if isinstance(place, Place):
                x = next(x for x in s.stage.loads if x.tensor == tensor)
                if self.nest.producer(tensor) is None:
                    rows_ahead(self.f, place, x, axis, s, self.entered)
                else:
                    stream(self.f, place, x, axis, self.entered)

    def _loop(self, s: StageNest, k: int, point: Point) -> None:
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        if is_static_inside(s, k) and span.size > loop.step and span.size % loop.step:
            full = span.size // loop.step * loop.step
            self._rest(s, k, resized(point, loop.root, span.low, full))
            self._remainder(s, k, point, full)
            return
        special, high = special_positions(self.nest, s, k, span), self._high(s, loop, span)
        cuts = seams(self.nest, s, k, span)
        if not special and len(cuts) < 2 and span.size <= loop.step:
            self._step(s, k, point, span.low)
        elif span.low.terms or high.terms:
            self._dynamic_loop(s, k, point, high, special, cuts)
        else:
            self._static_loop(s, k, point, high.constant, special, cuts)

    def _high(self, s: StageNest, loop: Loop, span: Span) -> Affine:
        """Where a loop ends: with its span, or where the stage needs no more."""
        high, limit = end_of(self.f, span), self.limits.get((s.stage.name, loop.root))
        return high if limit is None else smaller_of(self.f, high, limit)

    def _remainder(self, s: StageNest, k: int, point: Point, full: int) -> None:
        """The ragged last tile of a region whose size is no multiple of the step."""
        span = point.spans[s.loops[k].root]
        low = span.low + full
        limit = self.limits.get((s.stage.name, s.loops[k].root))
        if limit is not None:
            exists = self.f.op(f"icmp slt i64 {self.f.integer(low)}, {self.f.integer(limit)}")
            self.f.when(exists, lambda: self._step(s, k, point, low))
        elif span.extent is None or self.f.bounds(low)[1] < span.extent:
            self._step(s, k, point, low)
        elif low.terms:
            exists = self.f.op(f"icmp slt i64 {self.f.integer(low)}, {span.extent}")
            self.f.when(exists, lambda: self._step(s, k, point, low))

    def _static_loop(
        self, s: StageNest, k: int, point: Point, high: int, special: list[int], cuts: list[int]
    ) -> None:
        step = s.loops[k].step
        positions = range(point.spans[s.loops[k].root].low.constant, high, step)
        for run in runs(positions, special, cuts):
            if len(run) == 1:
                self._step(s, k, point, Affine((), run[0]))
            else:
                self.f.loop(
                    str(run[0]), str(run[-1] + 1), step, (run[0], run[-1]),
                    lambda v: self._step(s, k, point, v),
                    nonempty=True, multiple=1 if run[0] % step else step,
                )  # fmt: skip

    def _dynamic_loop(
        self, s: StageNest, k: int, point: Point, high: Affine, special: list[int], cuts: list[int]
    ) -> None:
        span, f, step = point.spans[s.loops[k].root], self.f, s.loops[k].step
        low_text, high_text = f.integer(span.low), f.integer(high)
        least, most = position_range(self.f, span, step)
        aligned = span.low.constant % step == 0 and f.multiple_of(span.low, step)
        if not special and len(cuts) < 2:
            f.loop(
                low_text, high_text, step, (least, most), lambda v: self._step(s, k, point, v),
                nonempty=True, multiple=step if aligned else 1,
            )  # fmt: skip
            return
        if not aligned:
            raise BuildError(
                f"{s.stage.name}: expected {s.loops[k].axis} to start at a multiple of {step}, "
                f"got {span.low}; split its consumer by a multiple of the step"
            )
        for run in runs(range(0, most + 1, step), special, cuts):
            if run[0] in special:
                self._special(s, k, point, run[0], low_text, high_text)
            elif run[-1] >= least:
                start, end = f.larger(low_text, str(run[0])), f.smaller(high_text, str(run[-1] + 1))
                f.loop(
                    start, end, step, (max(least, run[0]), run[-1]),
                    lambda v: self._step(s, k, point, v), nonempty=False, multiple=step,
                )  # fmt: skip

    def _special(self, s: StageNest, k: int, point: Point, p: int, low: str, high: str) -> None:
        """The iteration at a position that is written apart, where the loop comes to it at all."""
        above, below = self.f.op(f"icmp sle i64 {low}, {p}"), self.f.op(f"icmp sgt i64 {high}, {p}")
        both = self.f.op(f"and i1 {above}, {below}")
        self.f.when(both, lambda: self._step(s, k, point, Affine((), p)))

    def _clipped(self, s: StageNest, k: int, point: Point) -> None:
        """A reduction over those positions only at which its loads may be real."""
        loop, span = s.loops[k], point.spans[s.loops[k].root]
        low, high, discharged = clipped_range(self.nest, self.f, s, loop.root, point)
        inside = replace(point, discharged=point.discharged | discharged)
        least, most = self.f.bounds(span.low)
        most = min(most + span.size, s.stage.extents[loop.root]) - 1
        self.f.loop(
            low, high, loop.step, (least, most), lambda v: self._step(s, k, inside, v),
            nonempty=False,
        )  # fmt: skip
