"""Windows that are cumulative reductions: each result is of all elements up to its own.

JAX writes `cumsum`, `cumprod`, `cummax`, `cummin` and `cumlogsumexp` on CPUs as a reduce_window
whose window is as long as the axis, padded on one side by all but one of its positions.
"""

from dataclasses import dataclass
from typing import cast

from hlotune.hlo.graph import Graph, Op

WINDOW = "stablehlo.reduce_window"


@dataclass(frozen=True, slots=True)
class Cumulative:
    """The dimension that a reduction goes along, and whether it begins at its end."""

    dimension: int
    reverse: bool


def cumulative(graph: Graph, op: Op) -> Cumulative | None:
    """What a reduce_window accumulates along; None where it is another window."""
    if op.name != WINDOW:
        return None
    shape = graph.types[op.operands[0]].shape
    window = cast(tuple[int, ...], op["window_dimensions"])
    padding = cast(tuple[tuple[int, int], ...], op["padding"])
    steps = ("window_strides", "base_dilations", "window_dilations")
    along = [d for d, n in enumerate(window) if n > 1]
    if len(along) != 1 or any(set(cast(tuple[int, ...], op[name])) != {1} for name in steps):
        return None
    (d,) = along
    rest = shape[d] - 1
    others = all(pair == (0, 0) for k, pair in enumerate(padding) if k != d)
    if window[d] != shape[d] or not others or padding[d] not in ((rest, 0), (0, rest)):
        return None
    return Cumulative(d, reverse=padding[d][0] == 0)
