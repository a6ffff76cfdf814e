"""Packing: the step that gives a stage's load a buffer of its own."""

from dataclasses import dataclass, replace
from math import gcd

from hlotune.schedules.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.expr import Affine, Load, map_loads
from hlotune.schedules.nest import Layout, Loop, LoopNest, Scope, StageNest, index_ranges


@dataclass(frozen=True, slots=True)
class Pack:
    """Copies what a stage loads from a tensor into a buffer of its own layout.

    for i: for j: s(x[j, i])   ->   for i: {for j: p[j] = x[j, i]; for j: s(p[j])}

    The copy holds padding and inserted zeros as values, so that the stage loads without checks.
    """

    stage: str
    tensor: str
    consumer: str
    """With `axis` the loop inside which the copy is made; "" makes it ahead of all loops."""
    axis: str
    """Without a consumer "call" (once a call) or "load" (when the program is loaded, of constants
    only)."""
    layout: Layout
    """In dimensions of the tensor; the last one is copied in vectors."""
    lanes: int

    def apply(self, nest: LoopNest) -> LoopNest:
        user = nest.stage(self.stage)
        found = [x for x in user.stage.loads if x.tensor == self.tensor]
        _require(len(found) == 1, f"expected one load of {self.tensor}, found {len(found)}")
        self._check_layout(found[0])
        self._check_place(nest)
        compute, packed = _packed(nest.compute, user.stage, found[0])
        copy = StageNest(
            stage=packed,
            loops=_copy_loops(packed, self.layout, self.lanes),
            at=(self.consumer, self.axis) if self.consumer else None,
            scope=self._scope,
            layout=self.layout,
        )
        k = nest.stages.index(user)
        changed = replace(user, stage=compute.stage(self.stage))
        stages = (*nest.stages[:k], copy, changed, *nest.stages[k + 1 :])
        return LoopNest(compute, nest.target, stages)

    @property
    def _scope(self) -> Scope:
        if self.consumer:
            return "task"
        return "load" if self.axis == "load" else "call"

    def _check_layout(self, load: Load) -> None:
        dimensions = sorted(d for d, block in self.layout if block == 1)
        complete = dimensions == list(range(len(load.index)))
        _require(complete, f"layout {self.layout} leaves a dimension out")
        for d, block in self.layout:
            plain = block == 1 or len(load.index[d].terms) == 1
            _require(plain, f"dimension {d} is a window: no blocks")

    def _check_place(self, nest: LoopNest) -> None:
        if self.consumer:
            consumer = nest.stage(self.consumer)
            for loop in consumer.loops[: consumer.index(self.axis) + 1]:
                _require(loop.kind in ("serial", "parallel"), f"{loop.axis} is {loop.kind}")
            return
        _require(self.axis in ("call", "load"), f"expected 'call' or 'load', got {self.axis!r}")
        role = nest.compute.tensor(self.tensor).role
        _require(self.axis == "call" or role == "constant", f"{self.tensor} is no constant")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ScheduleError(f"pack: {message}")


def _packed(compute: Compute, user: Stage, load: Load) -> tuple[Compute, Stage]:
    """The compute with a copying stage for one load, and that stage.

    Its coordinates are such that the user needs no checks.
    """
    name = f"{load.tensor}.packed"
    axes, source, place = [], [], []
    for d, index in enumerate(load.index):
        low, high = index.bounds(index_ranges(user))
        unit = gcd(*(c for _, c in index.terms)) if index.terms else 1
        axes.append(Axis(f"p{d}", (high - low) // unit + 1))
        source.append(Affine.of({f"p{d}": unit}, low))
        terms = {a: c // unit for a, c in index.terms}
        place.append(Affine.of(terms, (index.constant - low) // unit))
    inner = Load(load.tensor, tuple(source), load.dtype, load.divisors, load.outside)
    store = Store(name, tuple(Affine.axis(a.name) for a in axes))
    stage = Stage(name, tuple(axes), (), (store,), (inner,))
    tensor = Tensor(name, tuple(a.extent for a in axes), load.dtype, "temporary")
    outer = Load(name, tuple(place), load.dtype)
    changed = replace(user, values=tuple(map_loads(v, {load: outer}) for v in user.values))
    k = compute.stages.index(user)
    stages = (*compute.stages[:k], stage, changed, *compute.stages[k + 1 :])
    return Compute((*compute.tensors, tensor), stages), stage


def _copy_loops(stage: Stage, layout: Layout, lanes: int) -> tuple[Loop, ...]:
    """Loops of a copy in the order of its layout, the fastest dimension in vectors."""
    loops = [Loop(f"p{d}.0" if block > 1 else f"p{d}", f"p{d}", block) for d, block in layout[:-1]]
    last = f"p{layout[-1][0]}"
    vector = Loop(f"{last}.v", last, lanes), Loop(f"{last}.l", last, 1, "vectorize")
    return (*loops, *vector)
