"""Packing: the step that gives a stage's load a buffer of its own."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.borders import index_ranges
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Load, map_all_loads
from hlotune.schedules.ir.nest import Layout, Loop, LoopNest, Scope, StageNest, encloses
from hlotune.schedules.steps.known_places import check_known_places


@dataclass(frozen=True, slots=True)
class Pack:
    """Copies what a stage loads from a tensor into a buffer of its own layout.

    for i: for j: s(x[j, i])   ->   for i: {for j: p[j] = x[j, i]; for j: s(p[j])}

    The copy holds padding and inserted zeros as values, so that the stage loads without checks.
    """

    stage: str
    tensor: str
    """The tensor, where the stage loads it at one place; of several loads `a0.scores.1` is the
    second one that the stage `scores` has of `a0`.
    """
    consumer: str
    """The stage that reads the copy.  With `axis` it names the loop inside which the copy is made;
    "" makes the copy ahead of all loops.
    """
    axis: str
    """The loop's axis; without a consumer "call" (once a call) or "load" (when the program is
    loaded, for constants only).
    """
    layout: Layout
    """The layout in dimensions of the tensor; the last one is copied in vectors."""
    lanes: int

    def apply(self, nest: LoopNest) -> LoopNest:
        user = nest.stage(self.stage)
        load = named_load(user.stage, self.tensor)
        maker = nest.producer(load.tensor)
        users = [s for s in nest.stages if s is user or self._is_shared(s, load)]
        names = [t.name for t in nest.compute.tensors]
        require(packed_name(self.tensor) not in names, "pack", f"{self.tensor} is packed already")
        inside = maker is not None and maker.at is not None
        require(not inside, "pack", f"{self.tensor} is computed inside another stage")
        self._check_layout(load)
        self._check_place(nest, load.tensor)
        copied = packed_name(self.tensor)
        compute, packed = _packed(nest.compute, [s.stage for s in users], load, copied)
        copy = StageNest(
            stage=packed,
            loops=_copy_loops(packed, self.layout, self.lanes),
            at=(self.consumer, self.axis) if self.consumer else None,
            scope=self._scope,
            layout=self.layout,
        )
        changed = [
            replace(s, stage=compute.stage(s.stage.name)) if s in users else s for s in nest.stages
        ]
        changed.insert(nest.stages.index(users[0]), copy)
        return LoopNest(compute, nest.target, tuple(changed))

    def _is_shared(self, s: StageNest, load: Load) -> bool:
        """Whether a stage reads the copy too: one that is made ahead of all loops serves all."""
        return not self.consumer and load in s.stage.loads

    @property
    def _scope(self) -> Scope:
        if self.consumer:
            return "task"
        return "load" if self.axis == "load" else "call"

    def _check_layout(self, load: Load) -> None:
        check_known_places("pack", load)
        require(bool(load.index), "pack", f"{self.tensor} has no dimensions to lay out")
        require(self.lanes >= 1, "pack", f"expected at least one lane, got {self.lanes}")
        dimensions = sorted(d for d, block in self.layout if block == 1)
        complete = dimensions == list(range(len(load.index)))
        require(
            complete,
            "pack",
            f"layout {self.layout} leaves a dimension out, or has one that is none",
        )
        blocks = [entry for entry in self.layout if entry[1] != 1]
        for d, block in blocks:
            require(
                d in dimensions and block > 1,
                "pack",
                f"dimension {d} cannot have blocks of {block}",
            )
            once = sum(other == d for other, _ in blocks) == 1
            before = self.layout.index((d, block)) < self.layout.index((d, 1))
            require(
                once and before, "pack", f"the blocks of dimension {d} must stand once, before it"
            )
            steps = [n // load.index[d].unit for _, n in load.index[d].terms]
            inside = [n for n in steps if n % block]
            require(len(inside) == 1, "pack", f"dimension {d} is a window: no blocks")
            require(min(steps) > 0, "pack", f"dimension {d} is read backwards: no blocks")
            require(block % self.lanes == 0, "pack", f"blocks of {block} are no whole vectors")

    def _check_place(self, nest: LoopNest, tensor: str) -> None:
        if self.consumer:
            consumer = nest.stage(self.consumer)
            for loop in consumer.loops[: consumer.index(self.axis) + 1]:
                require(loop.kind in ("serial", "parallel"), "pack", f"{loop.axis} is {loop.kind}")
            inside = encloses(nest, (self.consumer, self.axis), nest.stage(self.stage))
            require(inside, "pack", f"{self.axis} of {self.consumer} does not enclose {self.stage}")
            return
        require(
            self.axis in ("call", "load"), "pack", f"expected 'call' or 'load', got {self.axis!r}"
        )
        if self.axis == "load":
            role = nest.compute.tensor(tensor).role
            require(role == "constant", "pack", f"{tensor} is no constant")
            alone = has_one_load(nest.compute, tensor)
            require(alone, "pack", f"{tensor} is read elsewhere too, where its values are needed")


def packed_name(tensor: str) -> str:
    """What the copy of a tensor, or of one load of it, is called."""
    return f"{tensor}.packed"


def named_load(stage: Stage, name: str) -> Load:
    """The load that `Pack` means: the only one of a tensor, or one of several by its own name."""
    found = [x for x in stage.loads if name in (x.tensor, load_name(stage, x))]
    require(len(found) == 1, "pack", f"expected one load of {name}, found {len(found)}")
    return found[0]


def load_name(stage: Stage, load: Load) -> str:
    """The name by which `Pack` finds one of several loads of a tensor; no other stage has it."""
    number = [x for x in stage.loads if x.tensor == load.tensor].index(load)
    return f"{load.tensor}.{stage.name}.{number}"


def has_one_load(compute: Compute, tensor: str) -> bool:
    """Whether one load, by whatever stages, is all that is read of a tensor.

    Only then may a packed form take the place of its values.
    """
    return len({x for s in compute.stages for x in s.loads if x.tensor == tensor}) == 1


def _packed(compute: Compute, users: list[Stage], load: Load, name: str) -> tuple[Compute, Stage]:
    """The compute with a copying stage for one load, and that stage.

    Its coordinates are such that the users, who all have the same load, need no checks.
    """
    user = users[0]
    axes, source, place = [], [], []
    for d, index in enumerate(load.index):
        low, high = index.bounds(index_ranges(user))
        unit = index.unit
        axes.append(Axis(f"p{d}", (high - low) // unit + 1))
        source.append(Affine.of({f"p{d}": unit}, low))
        terms = {a: c // unit for a, c in index.terms}
        place.append(Affine.of(terms, (index.constant - low) // unit))
    inner = replace(load, index=tuple(source), beside=None)
    store = Store(name, tuple(Affine.axis(a.name) for a in axes))
    stage = Stage(name, tuple(axes), (), (store,), (inner,))
    tensor = Tensor(name, tuple(a.extent for a in axes), load.dtype, "temporary")
    outer = Load(name, tuple(place), load.dtype, beside=load.beside)
    stages = [
        replace(s, values=map_all_loads(s.values, {load: outer})) if s in users else s
        for s in compute.stages
    ]
    stages.insert(compute.stages.index(user), stage)
    return Compute((*compute.tensors, tensor), tuple(stages)), stage


def _copy_loops(stage: Stage, layout: Layout, lanes: int) -> tuple[Loop, ...]:
    """Loops of a copy in the order of its layout, the fastest dimension in vectors."""
    loops = [Loop(_loop(d, block), f"p{d}", block) for d, block in layout[:-1]]
    last = f"p{layout[-1][0]}"
    vector = Loop(f"{last}.v", last, lanes), Loop(f"{last}.l", last, 1, "vectorize")
    return (*loops, *vector)


def _loop(dimension: int, block: int) -> str:
    return f"p{dimension}.0" if block > 1 else f"p{dimension}"


def outermost(layout: Layout) -> str:
    """The outermost loop of a copy in a layout."""
    return _loop(*layout[0]) if len(layout) > 1 else f"p{layout[0][0]}.v"
