"""Steps about what a stage stores: where it lies, and when it is computed."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.nest import Layout, LoopNest, StageNest, is_in_own_order


@dataclass(frozen=True, slots=True)
class LayOut:
    """Lets a stage's temporary results lie in another order, or in blocks.

    t[i, j] row by row   ->  LayOut(((1, 32), (0, 1), (1, 1)))  ->  panels of 32 columns
    """

    stage: str
    layout: Layout
    """The layout in dimensions of the stored tensor; a block stands before the rest of its
    dimension.
    """

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
        own = len({x.tensor for x in s.stage.stores}) == 1 and is_in_own_order(s.stage)
        check_preloaded(nest, s)
        require(own, "preload", f"{self.stage} stores more than one array")
        return nest.put(replace(s, scope="load"))


def check_preloaded(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where a stage reads what is not there when the program is loaded.

    Of finished nests too: later steps may have a stage read a copy that a call makes.
    """
    name, tensors = s.stage.name, sorted({x.tensor for x in s.stage.loads})
    require(s.at is None, "preload", f"{name} stands inside another stage")
    require(len(tensors) == 1, "preload", f"{name} loads {len(tensors)} tensors, not 1")
    maker = nest.producer(tensors[0])
    if maker is not None and maker.scope == "load":
        return
    is_constant = nest.compute.tensor(tensors[0]).role == "constant"
    require(is_constant, "preload", f"{tensors[0]} is no constant")
    users = [x.stage.name for x in nest.stages if tensors[0] in {y.tensor for y in x.stage.loads}]
    elsewhere = f"{tensors[0]} is read elsewhere too, where its values are needed"
    require(users == [name], "preload", elsewhere)
