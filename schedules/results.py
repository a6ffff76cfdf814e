"""Steps about what a stage stores: where it lies, when it is computed, and how far."""

from dataclasses import dataclass, replace
from math import ceil

from hlotune.schedules.errors import require
from hlotune.schedules.expr import Affine
from hlotune.schedules.nest import (
    Layout,
    LoopNest,
    StageNest,
    is_in_own_order,
    reads,
    region,
    stored_shape,
    strides,
)


@dataclass(frozen=True, slots=True)
class LayOut:
    """Lets a stage's temporary results lie in another order, or in blocks.

    t[i, j] row by row   ->  LayOut(((1, 32), (0, 1), (1, 1)))  ->  panels of 32 columns
    """

    stage: str
    layout: Layout
    """In dimensions of the stored tensor; a block stands before the rest of its dimension."""

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        shapes = {nest.compute.tensor(x.tensor).shape for x in s.stage.stores}
        temporary = all(nest.compute.tensor(x.tensor).role == "temporary" for x in s.stage.stores)
        require(temporary and len(shapes) == 1, "lay_out", f"{self.stage} stores a result")
        require(is_in_own_order(s.stage), "lay_out", f"{self.stage} does not store in order")
        whole = sorted(d for d, block in self.layout if block == 1)
        complete = whole == list(range(len(shapes.pop())))
        require(complete, "lay_out", f"{self.layout} leaves a dimension out, or has one too many")
        for k, (d, block) in enumerate(self.layout):
            once = [e for e in self.layout if e[0] == d and e[1] != 1] in ([], [(d, block)])
            before = block == 1 or (d, 1) in self.layout[k:]
            require(block >= 1 and (block == 1 or (once and before)), "lay_out", (
                f"the blocks of dimension {d} must stand once, before the rest of it"
            ))  # fmt: skip
        return nest.put(replace(s, layout=self.layout))


@dataclass(frozen=True, slots=True)
class Spread:
    """Leaves elements free behind each slice of a stage's temporary results.

    t[f, i] at f * 4096 + i   ->   Spread("s", 16)   ->   t[f, i] at f * 4112 + i

    Slices at powers of two share few sets of a cache; a line between them spreads them out.
    Results without a layout lie row by row then.
    """

    stage: str
    elements: int

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        temporary = all(nest.compute.tensor(x.tensor).role == "temporary" for x in s.stage.stores)
        require(temporary, "spread", f"{self.stage} stores a result")
        require(is_in_own_order(s.stage), "spread", f"{self.stage} does not store in order")
        require(self.elements >= 0, "spread", f"expected 0 or more elements, got {self.elements}")
        rank = len(nest.compute.tensor(s.stage.stores[0].tensor).shape)
        layout = s.layout or tuple((d, 1) for d in range(rank))
        return nest.put(replace(s, layout=layout, spacing=self.elements))


@dataclass(frozen=True, slots=True)
class Preload:
    """Computes a stage once, when the program is loaded: its loads are of one constant.

    call: {t[i] = f(w[i]); s(t)}   ->   load: t[i] = f(w[i]); call: s(t)

    What it stores takes the constant's place as an argument.  A stage that reads what another one
    has so stored may follow it: its own results then lie behind.
    """

    stage: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        tensors = {x.tensor for x in s.stage.loads}
        require(s.at is None, "preload", f"{self.stage} stands inside another stage")
        require(len(tensors) == 1, "preload", f"{self.stage} loads {len(tensors)} tensors, not 1")
        self._check_source(nest, tensors.pop())
        own = len({x.tensor for x in s.stage.stores}) == 1 and is_in_own_order(s.stage)
        require(own, "preload", f"{self.stage} stores more than one array")
        return nest.put(replace(s, scope="load"))

    def _check_source(self, nest: LoopNest, name: str) -> None:
        maker = nest.producer(name)
        if maker is not None and maker.scope == "load":
            return
        role = nest.compute.tensor(name).role
        require(role == "constant", "preload", f"{name} is no constant")
        users = [x.stage.name for x in nest.stages if name in {y.tensor for y in x.stage.loads}]
        alone = users == [self.stage]
        require(alone, "preload", f"{name} is read elsewhere too, where its values are needed")


@dataclass(frozen=True, slots=True)
class Overrun:
    """Computes whole regions of an axis, what lies beyond its end among them; nobody reads that.

    for i.0 in 4: for i in i.0..min(i.0 + 14, 49): s   ->   for i.0 in 4: for i in i.0..i.0 + 14: s

    All tiles then have one size.  Beyond the end a stage loads zeros, what an overrun stored, or
    what lies in the elements that are free there.
    """

    stage: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        axes = [a.name for a in s.stage.parallel]
        require(s.at is not None, "overrun", f"{self.stage} stands at the root: its results end")
        require(self.axis in axes, "overrun", f"{self.stage} has no parallel axis {self.axis}")
        for x in s.stage.loads:
            along = any(self.axis in e.coefficients for e in x.index)
            maker = nest.producer(x.tensor)
            safe = not along or (maker is not None and self._is_safe(nest, s, maker))
            require(safe, "overrun", f"{x} ends with its tensor along {self.axis}")
        return nest.put(replace(s, overrun=(*s.overrun, self.axis)))

    def _is_safe(self, nest: LoopNest, s: StageNest, maker: StageNest) -> bool:
        """Whether there is something to load for all regions along the axis, to their ends."""
        if is_whole(maker):
            return True
        if not (maker.layout and self._are_in_a_row(nest, s)):
            return False
        names, shape = maker.stage.stored_axes or (), stored_shape(nest, maker)
        slowest, *rest = maker.layout
        if rest[:1] != [(d, 1) for d, a in enumerate(names) if a == self.axis]:
            return False
        size, apart = region(nest, s)[self.axis], strides(maker.layout, shape, maker.spacing)
        return ceil(shape[rest[0][0]] / size) * size * apart[rest[0]] <= apart[slowest]

    def _are_in_a_row(self, nest: LoopNest, s: StageNest) -> bool:
        """Whether regions begin where others end: their reader walks the axis as one of its own."""
        around, names = nest.stage(s.at[0] if s.at else ""), s.stage.stored_axes or ()
        read = reads(s.stage, around.stage)
        index = {x.index[d] for x in read for d, a in enumerate(names) if a == self.axis}
        return index in [{Affine.axis(a.name)} for a in around.stage.parallel]


@dataclass(frozen=True, slots=True)
class Stream:
    """Asks for what the next iteration of a loop reads of a tensor while the present one works.

    for f: for k: s(u[f, k])   ->   for f: for k: {fetch a part of u[f + 1, ...]; s(u[f, k])}

    The requests are spread evenly over the loops inside.  Where a panel is larger than the cache,
    this asks for a slice of it in time, and not for a panel too early.
    """

    stage: str
    tensor: str
    axis: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s, maker = nest.stage(self.stage), nest.producer(self.tensor)
        found = [x for x in s.stage.loads if x.tensor == self.tensor]
        require(len(found) == 1, "stream", f"{self.stage} loads {self.tensor} {len(found)} times")
        loop = s.loops[s.index(self.axis)]
        require(loop.kind == "serial", "stream", f"{self.axis} is {loop.kind}")
        ahead = maker is None or maker.at is None
        require(ahead, "stream", f"{self.tensor} is computed inside another stage")
        along = any(loop.root in e.coefficients for e in found[0].index)
        require(along, "stream", f"{self.tensor} is the same all along {self.axis}")
        return nest.put(replace(s, stream=(*s.stream, (self.tensor, self.axis))))


def is_whole(s: StageNest) -> bool:
    """Whether a stage computes whole regions of its own accord: a copy is cut off by its checks."""
    return s.at is not None and s.stage.combine is None
