"""What one loop nest does at each of its loops, read off the nest itself in plain Python.

The reference for features: it knows nothing of configs, paths or arrays.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from itertools import product
from math import ceil, prod
from typing import Concatenate, ParamSpec, TypeVar, cast

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import Loop, LoopNest, StageNest
from hlotune.schedules.patterns.contraction import Contraction

LINE = 64
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Touched:
    bytes: float
    elements: float
    run: float


def once(method: "Callable[Concatenate[Facts, P], R]") -> "Callable[Concatenate[Facts, P], R]":
    """Asked many times, and computed once for the same arguments."""

    @wraps(method)
    def asked(self: "Facts", /, *arguments: P.args, **others: P.kwargs) -> R:
        answers, key = self.answers.setdefault(method.__name__, {}), arguments
        if key not in answers:
            answers[key] = method(self, *arguments, **others)
        return cast(R, answers[key])

    return asked


class Facts:
    """Level k is the body inside the first k loops that iterate on the way to the sum."""

    def __init__(self, c: Contraction, nest: LoopNest) -> None:
        self.c, self.nest = c, nest
        self.answers: dict[str, dict[object, object]] = {}
        self.core, self.out = nest.stage(c.core.name), nest.stage(c.out.name)
        self.extents = {a.name: a.extent for a in (*c.parallel, *c.reduce)}
        self.loops = [x for x in self._all() if self._iterates(x)]

    def _all(self) -> list[Loop]:
        return [*self._outer(), *self.core.loops]

    def _outer(self) -> list[Loop]:
        if self.core.at is None:
            return []
        return list(self.out.loops[: self.out.index(self.core.at[1]) + 1])

    def _iterates(self, loop: Loop) -> bool:
        """Whether it has a second iteration: more than its step is walked around it."""
        around = self.extents[loop.root]
        for x in self._all():
            if x is loop:
                return around > loop.step
            if x.root == loop.root:
                around = min(around, x.step)
        raise AssertionError(loop)

    @property
    def levels(self) -> range:
        return range(len(self.loops) + 1)

    @once
    def step(self, root: str, level: int) -> int:
        """Elements of a root that one execution of a level walks at most."""
        outside = [x.step for x in self.loops[:level] if x.root == root]
        return min(outside, default=self.extents[root])

    def pieces(self, root: str, level: int) -> int:
        return ceil(self.extents[root] / self.step(root, level))

    def runs(self, level: int) -> int:
        return prod(self.pieces(a, level) for a in self.extents)

    @once
    def size(self, root: str, level: int) -> float:
        return self.extents[root] / self.pieces(root, level)

    def level_inside(self, stage: StageNest | None, axis: str) -> int:
        """Loops that iterate, down to a loop of a stage."""
        if stage is None:
            return 0
        whole = self._all()
        last = next(k for k, x in enumerate(whole) if x is stage.loops[stage.index(axis)])
        return sum(self._iterates(x) for x in whole[: last + 1])

    @cached_property
    def split(self) -> int:
        return sum(self._iterates(x) for x in self._outer())

    @cached_property
    def held(self) -> int:
        if not self.core.accumulate:
            return self.split
        return self.level_inside(self.core, self.core.accumulate)

    @once
    def packed_at(self, k: int) -> int | str | None:
        """Level at which an operand is packed, "load" or "call", or None."""
        maker = self.nest.producer(f"{self.c.operands[k].tensor}.packed")
        if maker is None:
            return None
        if maker.at is None:
            return maker.scope
        return self.level_inside(self.nest.stage(maker.at[0]), maker.at[1])

    @once
    def operand(self, k: int, level: int) -> Touched:
        x = self._plain(self.c.operands[k], level)
        if self.packed_at(k) is None:
            return x
        size = BYTES[self.c.operands[k].dtype]
        return Touched(max(LINE, x.elements * size), x.elements, x.elements * size)

    def _plain(self, x: Load, level: int) -> Touched:
        """Where a tensor is touched as it lies: row-major, in runs parted by a line or more."""
        spans, tensor = self._spans(x, level), self.c.compute.tensor(x.tensor)
        runs, run = 1.0, float(BYTES[x.dtype])
        for span, stride in reversed(list(zip(spans, tensor.strides, strict=True))):
            pitch = stride * BYTES[x.dtype]
            if pitch - run < LINE - 0.5:
                run += (span - 1) * pitch
            else:
                runs *= span
        return Touched(runs * max(LINE, run), prod(spans), run)

    def _spans(self, x: Load, level: int) -> list[float]:
        shape = self.c.compute.tensor(x.tensor).shape
        return [
            min(
                1 + sum(abs(w) * (self.size(a, level) - 1) for a, w in e.terms) / x.divisor(d),
                shape[d],
            )
            for d, e in enumerate(x.index)
        ]

    def sums(self, level: int) -> float:
        return prod(self.size(a.name, level) for a in self.c.parallel)

    @once
    def result(self, level: int) -> Touched:
        """What is touched of the stored results, as they lie in memory."""
        store = self.c.out.stores[0]
        dtype = self.c.compute.tensor(store.tensor).dtype
        return self._plain(Load(store.tensor, store.index, dtype), level)

    @property
    def operands(self) -> int:
        return min(3, len(self.c.operands))

    def buffers(self, level: int) -> list[Touched]:
        return [*(self.operand(k, level) for k in range(self.operands)), self.result(level)]

    def footprint(self, level: int) -> float:
        return sum(x.bytes for x in self.buffers(level))

    def unrolled(self, level: int) -> int:
        """Statements written out inside a level."""
        return prod(self.trips(k) for k in self.levels[level:-1] if self.kind(k) == "unroll")

    @cached_property
    def task(self) -> int:
        """Level inside the loops that run as tasks."""
        return sum(x.kind == "parallel" for x in self.loops)

    @cached_property
    def inner(self) -> int:
        """Level inside the innermost loop that is not written out."""
        return sum(x.kind in ("parallel", "serial") for x in self.loops)

    def is_serial(self, k: int) -> bool:
        return self.kind(k) == "serial"

    def bordered(self, how: str) -> set[str]:
        """Axes of which some loop is clipped, or peeled."""
        return {x.root for x in (*self.out.loops, *self.core.loops) if x.border == how}

    @property
    def even(self) -> float:
        """Mean work of the threads over the first one's, task by task."""
        extents = [self._pieces_of(x) for x in self.loops if x.kind == "parallel"]
        sizes = [prod(task) for task in product(*extents)]
        first = sizes[: ceil(len(sizes) / self.nest.target.threads)]
        return sum(sizes) / self.nest.target.threads / sum(first)

    def _pieces_of(self, loop: Loop) -> list[int]:
        """Elements of each iteration of the outermost loop of an axis."""
        extent = self.extents[loop.root]
        return [min(loop.step, extent - start) for start in range(0, extent, loop.step)]

    def open(self, k: int) -> dict[str, set[str]]:
        """Parallel axes whose borders an operand is checked at, with all that move the window."""
        if self.packed_at(k) is not None:
            return {}
        clipped, peeled, x = self.bordered("clip"), self.bordered("peel"), self.c.operands[k]
        found = {}
        for a in self.c.parallel:
            moving = {b for e in x.index if a.name in e.coefficients for b, _ in e.terms}
            leaves = any(x.tensor == y.tensor for y in self.c.windows[a.name])
            if leaves and a.name not in peeled and not moving & clipped:
                found[a.name] = moving
        return found

    def padding(self, k: int) -> float:
        """Elements of a copy in whole panels over those that it holds."""
        maker = self.nest.producer(f"{self.c.operands[k].tensor}.packed")
        at = self.packed_at(k)
        panel = max((block for _, block in maker.layout), default=1) if maker else 1
        if panel == 1 or self.lane_root is None:
            return 1
        step = self.step(self.lane_root, at if isinstance(at, int) else 0)
        return ceil(step / panel) * panel / step

    def kind(self, k: int) -> str:
        return self.loops[k].kind

    def trips(self, k: int) -> int:
        """Iterations of a loop in a full tile."""
        root = self.loops[k].root
        return ceil(self.step(root, k) / self.loops[k].step)

    @cached_property
    def lane_root(self) -> str | None:
        return next((x.root for x in self.loops if x.kind == "vectorize"), None)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Rows and vectors of the register tile."""
        parallel = {a.name for a in self.c.parallel}
        unrolled = [k for k in self.levels[:-1] if self.kind(k) == "unroll"]
        mine = [k for k in unrolled if self.loops[k].root in parallel]
        across = [k for k in mine if self.loops[k].root == self.lane_root]
        total = prod(self.trips(k) for k in mine)
        vectors = prod(self.trips(k) for k in across)
        return total // vectors, vectors

    def lanes_used(self, lanes: int) -> float:
        extent = self.extents[self.lane_root] if self.lane_root else 1
        return extent / (ceil(extent / lanes) * lanes)

    @property
    def flops(self) -> int:
        return 2 * prod(self.extents.values())
