"""Scheduling primitives: frozen values, pure functions on loop nests, which raise where they do not apply.

Each docstring shows the nest before -> after.  A step looks only at what it changes; limits that hang on several
steps at once (registers, scratch, code size) are in `limits.py`.
"""

from dataclasses import dataclass, replace
from math import gcd
from typing import Protocol

from hlotune.schedules.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.expr import Affine, Load, map_loads
from hlotune.schedules.nest import Layout, Loop, LoopNest, StageNest, guarded, index_ranges, reads


class Step(Protocol):
    def apply(self, nest: LoopNest) -> LoopNest:
        """Raises ScheduleError where the step does not apply."""
        ...


def _require(condition: bool, step: str, message: str) -> None:
    if not condition:
        raise ScheduleError(f"{step}: {message}")


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
        _require(bool(self.factors), "split", "needs at least one factor")
        _require(min(self.factors) >= 1, "split", f"factors must be positive, got {self.factors}")
        _require(
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
        return nest.put(replace(s, loops=s.loops[:k] + loops + s.loops[k + 1 :]))


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
        _require(
            sorted(names) == sorted(self.loops),
            "reorder",
            f"expected all of {names}, got {list(self.loops)}",
        )
        loops = tuple(s.loops[s.index(a)] for a in self.loops)
        for root in {x.root for x in loops}:
            steps = [x.step for x in loops if x.root == root]
            names = [x.axis for x in loops if x.root == root]
            ordered = sorted(names, key=lambda a: int(a.rpartition(".")[2]) if "." in a else 0)
            _require(
                names == ordered,
                "reorder",
                f"loops of {root} must go from outer to inner, got steps {steps}",
            )
        return nest.put(replace(s, loops=loops))


@dataclass(frozen=True, slots=True)
class Parallel:
    """Runs the iterations of the outermost loops as tasks, down to `axis`; the tasks are numbered row by row.

    for i: for j: s   ->  Parallel("i")  ->  parallel i: for j: s
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        k = s.index(self.axis)
        _require(s.at is None, "parallel", f"stage {self.stage} stands inside another stage")
        reduce = {a.name for a in s.stage.reduce}
        for loop in s.loops[: k + 1]:
            _require(
                loop.root not in reduce, "parallel", f"{loop.axis} is a reduction: tasks would race"
            )
            _require(loop.kind in ("serial", "parallel"), "parallel", f"{loop.axis} is {loop.kind}")
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
        _require(k == len(s.loops) - 1, "vectorize", f"{self.axis} is not innermost")
        _require(s.loops[k].step == 1, "vectorize", f"{self.axis} does not walk element by element")
        _require(s.loops[k].root not in reduce, "vectorize", f"{self.axis} is a reduction")
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
        _require(
            not inner,
            "unroll",
            f"{self.axis} encloses loops that are not unrolled: {' '.join(inner)}",
        )
        return nest.put(_kind(s, k, "unroll"))


@dataclass(frozen=True, slots=True)
class ComputeAt:
    """Computes a stage inside a loop of its consumer: only the region that the loop's body reads.

    for i: a[i] = f(i)             for i.0: for i.1: a[i] = f(i)
    for i: b[i] = g(a[i])     ->            for i.1: b[i] = g(a[i])
    """

    stage: str
    consumer: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s, c = nest.stage(self.stage), nest.stage(self.consumer)
        k = c.index(self.axis)
        _require(
            bool(reads(s.stage, c.stage)),
            "compute_at",
            f"{self.consumer} reads nothing of {self.stage}",
        )
        others = [
            x.stage.name
            for x in nest.stages
            if x is not c and x is not s and reads(s.stage, x.stage)
        ]
        _require(not others, "compute_at", f"{self.stage} is read by {' '.join(others)} too")
        for loop in c.loops[: k + 1]:
            _require(
                loop.kind in ("serial", "parallel"), "compute_at", f"{loop.axis} is {loop.kind}"
            )
        _check_identity(s.stage)
        return nest.put(replace(s, at=(self.consumer, self.axis), scope="task"))


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Holds the results of a stage in registers inside one of its loops, or ("") over all of them.

    for i: for r: c[i] += a[i, r]   ->   for i: x = 0; for r: x += a[i, r]; c[i] = x

    All loops over parallel axes inside must be unrolled or vectorized.  Where reduction loops stand outside, the
    registers are loaded from the result and stored back.  With "" the whole region lives in registers, for a consumer
    that reads it there.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        start = s.index(self.axis) + 1 if self.axis else 0
        reduce = {a.name for a in s.stage.reduce}
        for loop in s.loops[start:]:
            fixed = loop.root in reduce or loop.kind in ("unroll", "vectorize")
            _require(fixed, "accumulate", f"{loop.axis} is neither a reduction nor unrolled")
        _require(
            bool(self.axis) or s.at is not None,
            "accumulate",
            "a stage at the root has no consumer to hold for",
        )
        scope = s.scope if self.axis else "register"
        return nest.put(replace(s, accumulate=self.axis, scope=scope))


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
        _require(
            loop.root in {a.name for a in s.stage.reduce}, "clip", f"{self.axis} is no reduction"
        )
        _require(loop.kind == "serial", "clip", f"{self.axis} is {loop.kind}")
        _require(
            loop.step == 1,
            "clip",
            f"{self.axis} goes in steps of {loop.step}, which clipping would break",
        )
        clippable = any(
            load.index[d].coefficients.get(loop.root, 0) > 0 and load.divisor(d) == 1
            for load in s.stage.loads
            for d in guarded(nest, s.stage, load)
        )
        _require(clippable, "clip", f"no load leaves its tensor along {loop.root}")
        _require(s.stage.combine == "sum", "clip", "what lies outside adds nothing only to a sum")
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
        _require(s.loops[k].kind == "serial", "peel", f"{self.axis} is {s.loops[k].kind}")
        return nest.put(_border(s, k, "peel"))


@dataclass(frozen=True, slots=True)
class Pack:
    """Copies what a stage loads from a tensor into a buffer of its own layout, inside a loop or ahead of it.

    for i: for j: s(x[j, i])   ->   for i: {for j: p[j] = x[j, i]; for j: s(p[j])}

    The copy holds padding and inserted zeros as values, so that the stage loads without checks.  `consumer` and
    `axis` say inside which loop; with consumer "" the axis is "call" (once a call) or "load" (once, when the program
    is loaded: only for constants).  `layout` is in dimensions of the tensor; the last one is copied in vectors.
    """

    stage: str
    tensor: str
    consumer: str
    axis: str
    layout: Layout
    lanes: int

    def apply(self, nest: LoopNest) -> LoopNest:
        user = nest.stage(self.stage)
        candidates = [x for x in user.stage.loads if x.tensor == self.tensor]
        _require(
            len(candidates) == 1,
            "pack",
            f"expected one load of {self.tensor}, found {len(candidates)}",
        )
        self._check(nest, candidates[0])
        compute, packed = _packed(nest.compute, user.stage, candidates[0])
        at = (self.consumer, self.axis) if self.consumer else None
        scope = "task" if self.consumer else self.axis
        loops = _copy_loops(packed, self.layout, self.lanes)
        copy = StageNest(packed, loops, at, scope, None, self.layout)  # type: ignore[arg-type]
        new_user = replace(user, stage=compute.stage(self.stage))
        k = nest.stages.index(user)
        return LoopNest(
            compute, nest.target, nest.stages[:k] + (copy, new_user) + nest.stages[k + 1 :]
        )

    def _check(self, nest: LoopNest, load: Load) -> None:
        dimensions = sorted(d for d, block in self.layout if block == 1)
        _require(
            dimensions == list(range(len(load.index))),
            "pack",
            f"layout {self.layout} leaves a dimension out",
        )
        for d, block in self.layout:
            _require(
                block == 1 or len(load.index[d].terms) == 1,
                "pack",
                f"dimension {d} is a window: no blocks",
            )
        if self.consumer:
            consumer = nest.stage(self.consumer)
            for loop in consumer.loops[: consumer.index(self.axis) + 1]:
                _require(loop.kind in ("serial", "parallel"), "pack", f"{loop.axis} is {loop.kind}")
            return
        _require(
            self.axis in ("call", "load"), "pack", f"expected 'call' or 'load', got {self.axis!r}"
        )
        role = nest.compute.tensor(self.tensor).role
        _require(self.axis == "call" or role == "constant", "pack", f"{self.tensor} is no constant")


def _packed(compute: Compute, user: Stage, load: Load) -> tuple[Compute, Stage]:
    """The compute with a copying stage for one load, in coordinates in which the user needs no checks."""
    name = f"{load.tensor}.packed"
    axes, source, place = [], [], []
    for d, index in enumerate(load.index):
        low, high = index.bounds(index_ranges(user))
        unit = gcd(*(c for _, c in index.terms)) if index.terms else 1
        axes.append(Axis(f"p{d}", (high - low) // unit + 1))
        source.append(Affine.of({f"p{d}": unit}, low))
        place.append(
            Affine.of({a: c // unit for a, c in index.terms}, (index.constant - low) // unit)
        )
    inner = Load(load.tensor, tuple(source), load.dtype, load.divisors, load.outside)
    store = Store(name, tuple(Affine.axis(a.name) for a in axes))
    stage = Stage(name, tuple(axes), (), (store,), (inner,))
    tensor = Tensor(name, tuple(a.extent for a in axes), load.dtype, "temporary")
    outer = Load(name, tuple(place), load.dtype)
    changed = replace(user, values=tuple(map_loads(v, {load: outer}) for v in user.values))
    k = compute.stages.index(user)
    stages = compute.stages[:k] + (stage, changed) + compute.stages[k + 1 :]
    return Compute((*compute.tensors, tensor), stages), stage


def _copy_loops(stage: Stage, layout: Layout, lanes: int) -> tuple[Loop, ...]:
    """Loops of a copy in the order of its layout, the fastest dimension in vectors."""
    loops = [
        Loop(
            f"p{d}.0" if block > 1 else (f"p{d}.1" if (d, 1) != (d, block) else f"p{d}"),
            f"p{d}",
            block,
        )
        for d, block in layout
    ]
    last = loops[-1].root
    vector = [Loop(f"{last}.v", last, lanes), Loop(f"{last}.l", last, 1, "vectorize")]
    return tuple(loops[:-1] + vector)


def _check_identity(stage: Stage) -> None:
    expected = tuple(Affine.axis(a.name) for a in stage.parallel)
    for store in stage.stores:
        _require(
            store.index == expected,
            "compute_at",
            f"{stage.name} does not store along its axes in order",
        )


def _kind(s: StageNest, k: int, kind: str) -> StageNest:
    return replace(s, loops=s.loops[:k] + (replace(s.loops[k], kind=kind),) + s.loops[k + 1 :])  # type: ignore[arg-type]


def _border(s: StageNest, k: int, border: str) -> StageNest:
    return replace(s, loops=s.loops[:k] + (replace(s.loops[k], border=border),) + s.loops[k + 1 :])  # type: ignore[arg-type]


STEPS: dict[str, type] = {
    c.__name__: c
    for c in (Split, Reorder, Parallel, Vectorize, Unroll, ComputeAt, Accumulate, Clip, Peel, Pack)
}
