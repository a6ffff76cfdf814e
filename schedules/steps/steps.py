"""Scheduling primitives: frozen values whose `apply` is a pure function on loop nests.

It raises ScheduleError where the step does not apply.  Each docstring shows the nest before ->
after.  A step looks only at what it changes; limits that hang on several steps at once (registers,
scratch, code size) are in `limits.py`.  Steps that have a file of their own: `Pack` is in
`pack.py`, `Narrow` in `narrow.py`, `Tensorize` in `tensorize.py`, `Overrun` in
`overrun.py`, `EndAt` in `end_at.py`, `VectorizeReduction` in `vectorize_reduction.py`, what holds
sums in registers in `accumulate.py`, what says where results lie in `layout.py`, what asks for
operands ahead in `prefetch.py`, what is for tensors larger than the caches in `streaming.py`.
"""

from dataclasses import dataclass, replace
from typing import get_args

from hlotune.schedules.errors import require
from hlotune.schedules.ir.borders import ends_along, guarded, is_zero_outside, windows_along
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.ir.nest import (
    Border,
    Loop,
    LoopKind,
    LoopNest,
    StageNest,
    encloses,
    is_in_own_order,
    readers,
    reads,
    region,
)
from hlotune.schedules.steps.accumulate import Accumulate as Accumulate
from hlotune.schedules.steps.accumulate import AddUp as AddUp
from hlotune.schedules.steps.end_at import EndAt as EndAt
from hlotune.schedules.steps.layout import LayOut as LayOut
from hlotune.schedules.steps.layout import Preload as Preload
from hlotune.schedules.steps.layout import Spread as Spread
from hlotune.schedules.steps.narrow import Narrow as Narrow
from hlotune.schedules.steps.overrun import Overrun as Overrun
from hlotune.schedules.steps.pack import Pack as Pack
from hlotune.schedules.steps.prefetch import Prefetch as Prefetch
from hlotune.schedules.steps.prefetch import Stream as Stream
from hlotune.schedules.steps.streaming import Ahead as Ahead
from hlotune.schedules.steps.streaming import NonTemporal as NonTemporal
from hlotune.schedules.steps.tensorize import Tensorize as Tensorize
from hlotune.schedules.steps.vectorize_reduction import VectorizeReduction as VectorizeReduction


@dataclass(frozen=True, slots=True)
class Split:
    """Splits a loop into nested ones; the factors are the trips of the inner loops.

    for i0 in 56: s   ->  Split("i0", (2, 14))  ->  for i0.0 in 2: for i0.1 in 2: for i0.2 in 14: s

    Any factor is legal: the last tiles are cut at the end of the axis.
    """

    stage: str
    axis: str
    factors: tuple[int, ...]

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        require(bool(self.factors), "split", "needs at least one factor")
        require(min(self.factors) >= 1, "split", f"factors must be positive, got {self.factors}")
        require(
            s.loops[k].step == 1 and s.loops[k].axis == s.loops[k].root,
            "split",
            f"{self.axis} is split already",
        )
        steps, step = [1], 1
        for factor in reversed(self.factors):
            step *= factor
            steps.insert(0, step)
        loops = tuple(
            replace(s.loops[k], axis=f"{self.axis}.{n}", step=x) for n, x in enumerate(steps)
        )
        return nest.put(replace(s, loops=(*s.loops[:k], *loops, *s.loops[k + 1 :])))


@dataclass(frozen=True, slots=True)
class Reorder:
    """Puts all loops of a stage in a new order.

    for i: for j: for k: s   ->  Reorder(("k", "i", "j"))  ->  for k: for i: for j: s

    Loops of one root keep their order, the outer before the inner.
    """

    stage: str
    loops: tuple[str, ...]

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        names = [x.axis for x in s.loops]
        require(
            sorted(names) == sorted(self.loops),
            "reorder",
            f"expected all of {names}, got {list(self.loops)}",
        )
        loops = tuple(s.loops[s.index(a)] for a in self.loops)
        for root in dict.fromkeys(x.root for x in loops):
            steps = [x.step for x in loops if x.root == root]
            names = [x.axis for x in loops if x.root == root]
            require(
                names == [x.axis for x in s.loops if x.root == root],
                "reorder",
                f"loops of {root} must go from outer to inner, got steps {steps}",
            )
        return nest.put(replace(s, loops=loops))


@dataclass(frozen=True, slots=True)
class Parallel:
    """Runs the iterations of the outermost loops as tasks, down to `axis`.

    for i: for j: s   ->  Parallel("i")  ->  parallel i: for j: s

    The tasks are numbered row by row.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        require(s.at is None, "parallel", f"stage {self.stage} stands inside another stage")
        reduce = {a.name for a in s.stage.reduce}
        for loop in s.loops[: k + 1]:
            require(
                loop.root not in reduce, "parallel", f"{loop.axis} is a reduction: tasks would race"
            )
            require(loop.kind in ("serial", "parallel"), "parallel", f"{loop.axis} is {loop.kind}")
        loops = tuple(replace(x, kind="parallel") for x in s.loops[: k + 1])
        return nest.put(replace(s, loops=loops + s.loops[k + 1 :]))


@dataclass(frozen=True, slots=True)
class Vectorize:
    """Computes the iterations of the innermost loop at once, as the lanes of a vector.

    for j in 16: s   ->  Vectorize("j")  ->  vectorize j x16: s
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        reduce = {a.name for a in s.stage.reduce}
        require(k == len(s.loops) - 1, "vectorize", f"{self.axis} is not innermost")
        require(s.loops[k].step == 1, "vectorize", f"{self.axis} does not walk element by element")
        reduces = s.loops[k].root in reduce
        require(not reduces, "vectorize", f"{self.axis} is a reduction: use VectorizeReduction")
        digits = [x.name for x in s.stage.digits if x.axis == s.loops[k].root]
        plain = f"{self.axis} is read by its digits {' '.join(digits)}, which lanes do not have"
        require(not digits, "vectorize", plain)
        return nest.put(_kind(s, k, "vectorize"))


@dataclass(frozen=True, slots=True)
class Unroll:
    """Writes out the iterations of a loop.  All loops inside it must be unrolled or vectorized.

    for i in 2: s(i)   ->  Unroll("i")  ->  s(0); s(1)
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        inner = [x.axis for x in s.loops[k + 1 :] if x.kind not in ("unroll", "vectorize")]
        require(
            not inner,
            "unroll",
            f"{self.axis} encloses loops that are not unrolled: {' '.join(inner)}",
        )
        return nest.put(_kind(s, k, "unroll"))


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Computes a stage inside a loop of its consumer: only the region that the loop's body reads.

    That region may reach over the end of its tensor, so the stage stores no result of the kernel.

    Several stages may read it there, each computed inside the loop as well.

    for i: a[i] = f(i)             for i.0: for i.1: a[i] = f(i)
    for i: b[i] = g(a[i])     ->            for i.1: b[i] = g(a[i])
    """

    stage: str
    consumer: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s, c = nest.stage(self.stage), nest.stage(self.consumer)
        k = c.index(self.axis)
        users = readers(nest, s)
        inside = [x for x in users if x is c or _is_within(nest, x, (self.consumer, self.axis))]
        require(bool(inside), "compute_at", f"{self.consumer} reads nothing of {self.stage}")
        others = [x.stage.name for x in users if x not in inside]
        require(not others, "compute_at", f"{self.stage} is read by {' '.join(others)} too")
        for loop in c.loops[: k + 1]:
            require(
                loop.kind in ("serial", "parallel"), "compute_at", f"{loop.axis} is {loop.kind}"
            )
        for user in inside:
            _check_reading(nest, s, user)
        ordered = is_in_own_order(s.stage)
        require(ordered, "compute_at", f"{self.stage} does not store along its axes in order")
        given = [t for t in s.stage.stored if nest.compute.tensor(t).role == "result"]
        require(not given, "compute_at", f"{self.stage} stores the result {' '.join(given)}")
        changed = replace(s, at=(self.consumer, self.axis), scope="task")
        after = nest.put(changed)
        region(after, changed)  # it has one where its readers go along it alike
        return after


@dataclass(frozen=True, slots=True)
class Clip:
    """Leaves out the iterations of a reduction loop in which a load lies outside its tensor.

    for r in 3: c += x[i + r - 1] * w[r]   ->   for r in max(0, 1 - i)..min(3, n + 1 - i): c += ...
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        loop = s.loops[k]
        require(
            loop.root in {a.name for a in s.stage.reduce}, "clip", f"{self.axis} is no reduction"
        )
        require(loop.kind == "serial", "clip", f"{self.axis} is {loop.kind}")
        require(
            loop.step == 1,
            "clip",
            f"{self.axis} goes in steps of {loop.step}, which clipping would break",
        )
        windows = windows_along(nest.compute, s.stage, loop.root)
        leaving = (*windows, *ends_along(nest.compute, s.stage, loop.root))
        require(bool(leaving), "clip", f"no load leaves its tensor along {loop.root}")
        require(s.stage.combine is SUM, "clip", "what lies outside adds nothing only to a sum")
        for x in leaving:
            zero = is_zero_outside(s.stage, x)
            require(zero, "clip", f"where {x} lies outside, there are values to add all the same")
        return nest.put(_border(s, k, "clip"))


@dataclass(frozen=True, slots=True)
class Peel:
    """Writes the iterations at the borders of a tensor apart, so that those inside need no checks.

    for i in 56: s   ->   s(0); for i in 1..55: s; s(55)
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        require(s.loops[k].kind == "serial", "peel", f"{self.axis} is {s.loops[k].kind}")
        return nest.put(_border(s, k, "peel"))


def _check_reading(nest: LoopNest, s: StageNest, user: StageNest) -> None:
    """Raises ScheduleError where what a stage reads of another is no region of it."""
    name, found = s.stage.name, reads(s.stage, user.stage)
    for x in found:
        plain = not guarded(nest.compute, user.stage, x)
        require(plain, "compute_at", f"{x} leaves what {name} stores, or skips in it")
    maps = {tuple(e.terms for e in x.index) for x in found}
    require(len(maps) == 1, "compute_at", f"{name} is read at several places at once")


def _is_within(nest: LoopNest, s: StageNest, place: tuple[str, str]) -> bool:
    return s.at is not None and encloses(nest, place, s)


def _kind(s: StageNest, k: int, kind: LoopKind) -> StageNest:
    return _with_loop(s, k, replace(s.loops[k], kind=kind))


def _border(s: StageNest, k: int, border: Border) -> StageNest:
    return _with_loop(s, k, replace(s.loops[k], border=border))


def _with_loop(s: StageNest, k: int, loop: Loop) -> StageNest:
    return replace(s, loops=(*s.loops[:k], loop, *s.loops[k + 1 :]))


Step = (
    Split
    | Reorder
    | Parallel
    | Vectorize
    | Unroll
    | ComputeAt
    | Accumulate
    | AddUp
    | Clip
    | Peel
    | Pack
    | Prefetch
    | LayOut
    | Preload
    | Overrun
    | Stream
    | Spread
    | Narrow
    | Tensorize
    | VectorizeReduction
    | Ahead
    | NonTemporal
    | EndAt
)
STEPS: dict[str, type[Step]] = {c.__name__: c for c in get_args(Step)}
"""By the names that stand in schedules' JSON."""
