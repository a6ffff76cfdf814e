"""The nest whose features docs/features.md shows."""

from functools import cache

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.nest import LoopNest
from tests.support.computes import named, tiled
from tests.support.node_facts import Node, tree_of
from tests.support.row_facts import Row, row_of

TARGET = TARGETS["znver4"]


@cache
def _nest() -> LoopNest:
    case = named("C6")
    schedule = tiled(
        case, TARGET, packs={"a1": "call"}, register={"i1": 14, "i2": 2}, block={"i1": 2},
        group={"i0": 14, "i2": 2}, unroll={"r2": 2},
    )  # fmt: skip
    return replay(case.compute, schedule, TARGET)


def example_nest() -> str:
    return str(_nest())


def example_row() -> Row:
    space = named("C6").space(TARGET)
    return row_of(space.contraction, _nest(), space.lanes)


def example_nodes() -> dict[str, Node]:
    space = named("C6").space(TARGET)
    return tree_of(space.contraction, _nest(), space.lanes)
