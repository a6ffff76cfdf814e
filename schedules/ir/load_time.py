"""What is computed when a program is loaded, and where it lies in its constant's place."""

from math import ceil

from hlotune.schedules.ir.nest import LoopNest, StageNest, stored_bytes
from hlotune.schedules.targets.cpu import LINE_BYTES


def preloaded(nest: LoopNest) -> dict[str, tuple[StageNest, ...]]:
    """By constant: the stages that are computed from it alone, in their order."""
    found: dict[str, tuple[StageNest, ...]] = {}
    for s in (s for s in nest.stages if s.scope == "load"):
        constant = constant_of(nest, s)
        found[constant] = (*found.get(constant, ()), s)
    return found


def constant_of(nest: LoopNest, s: StageNest) -> str:
    """The constant that a stage's results stand for, in the end."""
    tensor = s.stage.loads[0].tensor
    maker = nest.producer(tensor)
    return tensor if maker is None else constant_of(nest, maker)


def offset_bytes(nest: LoopNest, s: StageNest) -> int:
    """Where a stage's results begin: those of one constant lie one behind the other, on lines."""
    stages = preloaded(nest)[constant_of(nest, s)]
    before = stages[: [x.stage.name for x in stages].index(s.stage.name)]
    return sum(ceil(stored_bytes(nest, x) / LINE_BYTES) * LINE_BYTES for x in before)


def form_bytes(nest: LoopNest, constant: str) -> int:
    """The bytes of all that takes a constant's place."""
    last = preloaded(nest)[constant][-1]
    return offset_bytes(nest, last) + stored_bytes(nest, last)
