"""What is read back from nests and schedules of a Winograd algorithm: their paths and numbers."""

from dataclasses import dataclass, replace

import numpy as np

from hlotune.schedules.algorithms.winograd.rewriting import PRODUCTS, TILE, TILES, WEIGHTS
from hlotune.schedules.features.loop_paths import CALL_LEVEL, LOAD_LEVEL, Path, path_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.steps.steps import ComputeAt, Prefetch, Preload, Split, Spread, Step, Stream


@dataclass(frozen=True, slots=True)
class ReadBack:
    """What steps say: two choices of a sketch, and a number for each knob, in their order."""

    when: str
    apart: bool
    numbers: tuple[int, ...]


def read_back(steps: tuple[Step, ...], compute: Compute) -> ReadBack | None:
    """None where steps are not those of a Winograd algorithm."""
    out = compute.stages[-1].name
    names = {(s.stage, s.axis): s.factors for s in steps if isinstance(s, Split)}
    wide = next((f for (stage, a), f in names.items() if stage == out and a != TILE), ())
    sums = [f for (stage, a), f in names.items() if stage == PRODUCTS and a.startswith("r")]
    block, rows = names.get((out, TILE), ()), names.get((PRODUCTS, TILE), ())
    inner = sums[-1] if sums else ()  # the last reduction is split last
    if len(wide) != 3 or not (inner and block and rows):
        return None
    inside = {s.stage for s in steps if isinstance(s, ComputeAt)}
    loaded = any(isinstance(s, Preload) for s in steps)
    when = "load" if loaded else "task" if WEIGHTS in inside else "call"
    asked = [s for s in steps if isinstance(s, Prefetch | Stream)]
    prefetch = (1 if isinstance(asked[0], Prefetch) else 2) if asked else 0
    depth = inner[0] if when == "task" and len(inner) > 1 else 1
    spread = int(any(isinstance(s, Spread) and s.stage == PRODUCTS for s in steps))
    numbers = (block[0], rows[0], wide[1], wide[0], inner[-1], prefetch, depth, spread)
    return ReadBack(when, TILES not in inside, numbers)


def winograd_path(nest: LoopNest, c: Contraction) -> Path:
    """The path of one nest, as arrays of one row: what its tiles and weights are, are packs."""
    tiles, weights, products = (nest.stage(s) for s in (TILES, WEIGHTS, PRODUCTS))
    path = path_of(nest, c)
    inside = nest.stage(tiles.at[0]).index(tiles.at[1]) if tiles.at else CALL_LEVEL
    place = LOAD_LEVEL if weights.scope == "load" else CALL_LEVEL
    if weights.at is not None:
        core = nest.stage(weights.at[0])
        place = int(path.split_from[0]) + core.index(weights.at[1])
    panel = max(block for _, block in weights.layout)
    block, rows = (
        stage.loops[stage.index(f"{TILE}.0")].step for stage in (nest.stages[-1], products)
    )
    return replace(
        path,
        packs=np.array([[inside, place]], dtype=np.int64),
        panels=np.array([[1, panel]], dtype=np.int64),
        beyond=np.array([-block % min(rows, block)]),
    )
