"""Steps that ask for what is read next, while what was asked for before is worked on."""

from dataclasses import dataclass, replace

from hlotune.schedules.errors import require
from hlotune.schedules.ir.distances import nearest_bytes
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.ir.nest import LoopNest, StageNest
from hlotune.schedules.steps.known_places import check_known_places
from hlotune.schedules.targets.cpu import LINE_BYTES


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Asks for the next panel of a packed operand while the present one is worked on.

    for j: for i: for k: s(p[j, k])   ->   for j: for i: for k: {fetch p[j + 1, ...]; s(p[j, k])}

    The requests are spread evenly over the loops inside the one that goes from panel to panel, so
    that memory works all the time, and not only while a panel is read for the first time.
    """

    stage: str
    tensor: str

    def apply(self, nest: LoopNest) -> LoopNest:
        s = nest.stage(self.stage)
        _check_panels(nest, s, self.tensor)
        return nest.put(replace(s, prefetch=(*s.prefetch, self.tensor)))


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
        s = nest.stage(self.stage)
        _check_slices(nest, s, self.tensor, self.axis)
        return nest.put(replace(s, stream=(*s.stream, (self.tensor, self.axis))))


def check_requests(nest: LoopNest, s: StageNest) -> None:
    """Raises ScheduleError where a stage asks for what it does not go along.

    Of finished nests: later steps may change loops, loads, and how what is loaded lies.
    """
    for tensor in s.prefetch:
        _check_panels(nest, s, tensor)
    for tensor, axis in s.stream:
        _check_slices(nest, s, tensor, axis)


def _check_panels(nest: LoopNest, s: StageNest, tensor: str) -> None:
    maker, found = nest.producer(tensor), _loads(s, tensor)
    require(bool(found), "prefetch", f"{s.stage.name} does not load {tensor}")
    layout = maker.layout if maker is not None and maker.at is None else ()
    panels = bool(layout) and layout[0][1] > 1
    require(panels, "prefetch", f"{tensor} is not packed in panels ahead of the loops")
    for x in found:
        check_known_places("prefetch", x)
        along = bool(x.index[layout[0][0]].terms)
        require(along, "prefetch", f"no loop of {s.stage.name} goes from panel to panel of {x}")


def _check_slices(nest: LoopNest, s: StageNest, tensor: str, axis: str) -> None:
    maker, found = nest.producer(tensor), _loads(s, tensor)
    require(len(found) == 1, "stream", f"{s.stage.name} loads {tensor} {len(found)} times")
    check_known_places("stream", found[0])
    loop = s.loops[s.index(axis)]
    require(loop.kind == "serial", "stream", f"{axis} is {loop.kind}")
    ahead = maker is None or maker.at is None
    require(ahead, "stream", f"{tensor} is computed inside another stage")
    along = any(loop.root in e.coefficients for e in found[0].index)
    require(along, "stream", f"{tensor} is the same all along {axis}")
    if maker is None:
        _check_rows(nest, s, found[0])


def _check_rows(nest: LoopNest, s: StageNest, x: Load) -> None:
    """Checks that a loop goes along the rows of an argument: those of its innermost reduction."""
    summed = {a.name for a in s.stage.reduce} & {*x.axes}
    rows = next((loop.root for loop in reversed(s.loops) if loop.root in summed), "")
    looped = any(loop.root == rows and loop.kind == "serial" for loop in s.loops)
    require(looped, "stream", f"no loop over a sum of {s.stage.name} goes from row to row of {x}")
    near = nearest_bytes(nest.compute, x, x.axes)
    require(near < LINE_BYTES, "stream", f"neighbours in {x} are {near} bytes apart, not in a row")


def _loads(s: StageNest, tensor: str) -> list[Load]:
    return [x for x in s.stage.loads if x.tensor == tensor]
