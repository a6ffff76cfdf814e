"""The steps of Winograd's convolution on a CPU, fused by blocks of tiles.

    parallel t.0                a block of tiles
      parallel o.0              a group of panels of features
        tiles                   inputs at the points, for the block
        o.1                     panels
          products              for each point a matrix product with registers of rows x vectors
          t.1: o.2 .. v         outputs and epilogue, from the products of the panel

The weights at the points are computed when the program is loaded, at the start of each call, or by
each task for the products of a panel, some channels at a time: what comes from afar are then the
taps, a quarter of the bytes, and what is made of them is used in the second cache.

The inputs at the points are computed by each task, or apart: at the start of each call by all
threads, once for however many groups of features.

Transforms make rounding errors of sums larger, so that long sums are added up of pieces: registers
hold those over as many of the inner reductions as are few enough terms.
"""

from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from hlotune.schedules.algorithms.winograd.rewriting import POINT, PRODUCTS, TILE, TILES, WEIGHTS
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Apply
from hlotune.schedules.steps.steps import (
    Accumulate,
    AddUp,
    ComputeAt,
    LayOut,
    Narrow,
    Overrun,
    Parallel,
    Prefetch,
    Preload,
    Reorder,
    Split,
    Spread,
    Step,
    Stream,
    Unroll,
    Vectorize,
)
from hlotune.schedules.targets.cpu import LINE_BYTES

WHEN = ("load", "call", "task")
LONGEST_SUM = 128
"""Terms that are added one to another.  Of 256 in one sum errors are 1.4 times as large, and to add
pieces of 128 takes a hundredth of the time."""


@dataclass(frozen=True, slots=True)
class WinogradSketch:
    """The structure: outputs of a tile along an axis, when weights and inputs are transformed."""

    outputs: int
    when: str
    """One of WHEN."""
    apart: bool
    """Whether the inputs at the points are computed before all products, and not by each task."""

    @property
    def algorithm(self) -> str:
        return f"winograd({self.outputs})"


@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradTiling:
    tiles: int
    """Tiles of a block."""
    rows: int
    """Tiles of a register tile."""
    vectors: int
    """Features of a panel."""
    panels: int
    """Panels of a group."""
    unroll: int
    """Steps of the innermost reduction that are written out."""
    prefetch: int = 0
    """Weights that are asked for: 0 none, 1 of the next panel, 2 of the next point.

    Those that tasks compute are not.
    """
    sums: tuple[int, ...]
    """How much of each reduction is added one to another, outermost first.

    Of the sketch `task` the last is also how much of the weights is computed at once.
    """
    spread: int = 1
    """1 where the points of tiles and products lie a line apart."""


def even_part(extent: int | Ints, terms: Ints) -> Ints:
    """Steps of an even part of a reduction, each of so many terms: at most `LONGEST_SUM` terms, or
    one step where it has more."""
    most = np.maximum(1, LONGEST_SUM // terms)
    part: Ints = -(-extent // -(-extent // most))
    return part


def winograd_steps(
    compute: Compute, sketch: WinogradSketch, n: WinogradTiling, lanes: int
) -> tuple[Step, ...]:
    """The steps for a compute that the algorithm has rewritten already."""
    steps = _out(compute, n, lanes) + _products(compute, sketch, n, lanes)
    steps += _tiles(compute, sketch, n, lanes)
    if sketch.when == "task":
        steps += _weights_inside(compute, lanes)
    else:
        steps += _weights(compute, sketch, n, lanes)
    near = [PRODUCTS] if sketch.apart else [TILES, PRODUCTS]
    steps += [Spread(x, line_elements(compute)) for x in near] if n.spread else []
    steps += _asked_for(n) if sketch.when != "task" else []
    ours = {WEIGHTS, TILES, PRODUCTS, compute.stages[-1].name}
    for stage in (s for s in compute.stages if s.name not in ours):
        steps += _before(stage.name, [a.name for a in stage.parallel], lanes, bool(stage.combine))
    return tuple(steps)


def _asked_for(n: WinogradTiling) -> list[Step]:
    """Weights that are there before the loops begin."""
    steps: tuple[list[Step], ...] = (
        [],
        [Prefetch(PRODUCTS, WEIGHTS)],
        [Stream(PRODUCTS, WEIGHTS, POINT)],
    )
    return steps[n.prefetch]


def line_elements(compute: Compute) -> int:
    """Between the points: their slices are often powers of two apart, and written side by side."""
    return LINE_BYTES // BYTES[compute.tensor(PRODUCTS).dtype]


def _feature(compute: Compute) -> str:
    return compute.stages[-1].parallel[-1].name


def _out(compute: Compute, n: WinogradTiling, lanes: int) -> list[Step]:
    out, o = compute.stages[-1].name, _feature(compute)
    order = (f"{TILE}.0", f"{o}.0", f"{o}.1", f"{TILE}.1", f"{o}.2", f"{o}.3")
    return [
        Split(out, TILE, (n.tiles,)),
        Split(out, o, (n.panels, n.vectors, lanes)),
        Reorder(out, order),
        Vectorize(out, f"{o}.3"),
        Unroll(out, f"{o}.2"),
        Parallel(out, f"{o}.0"),
    ]


def _products(
    compute: Compute, sketch: WinogradSketch, n: WinogradTiling, lanes: int
) -> list[Step]:
    out, o = compute.stages[-1].name, _feature(compute)
    splits, around, inside = _reductions(compute, sketch, n)
    first, around = (around[-1:], around[:-1]) if sketch.when == "task" else ([], around)
    order = [*first, POINT, f"{TILE}.0", *around, *inside, f"{TILE}.1", f"{o}.0", f"{o}.1"]
    in_pieces = n.sums != tuple(a.extent for a in compute.stage(PRODUCTS).reduce)
    return [
        ComputeAt(PRODUCTS, out, f"{o}.1"),
        Split(PRODUCTS, TILE, (n.rows,)),
        Split(PRODUCTS, o, (lanes,)),
        *splits,
        Reorder(PRODUCTS, tuple(order)),
        Vectorize(PRODUCTS, f"{o}.1"),
        Unroll(PRODUCTS, f"{o}.0"),
        Unroll(PRODUCTS, f"{TILE}.1"),
        Unroll(PRODUCTS, inside[-1]),
        Accumulate(PRODUCTS, around[-1] if around else f"{TILE}.0"),
        *([AddUp(PRODUCTS)] if in_pieces else []),
    ]


def _reductions(
    compute: Compute, sketch: WinogradSketch, n: WinogradTiling
) -> tuple[list[Step], list[str], list[str]]:
    """How reductions are split, their loops around sums, and those inside; the last is unrolled.

    Of the sketch `task` the last loop around sums is that of weights that are there at once.
    """
    splits, around, inside = list[Step](), list[str](), list[str]()
    *outer, last = compute.stage(PRODUCTS).reduce
    *parts, piece = n.sums
    for axis, part in zip(outer, parts, strict=True):
        if part == axis.extent:
            inside.append(axis.name)
        elif part == 1:
            around.append(axis.name)
        else:
            splits.append(Split(PRODUCTS, axis.name, (part,)))
            around.append(f"{axis.name}.0")
            inside.append(f"{axis.name}.1")
    is_cut = sketch.when == "task" or piece < last.extent
    factors = (ceil(piece / n.unroll), n.unroll) if is_cut else (n.unroll,)
    splits.append(Split(PRODUCTS, last.name, factors))
    loops = [f"{last.name}.{k}" for k in range(1 + len(factors))]
    return splits, around + loops[:-2], inside + loops[-2:]


def _tiles(compute: Compute, sketch: WinogradSketch, n: WinogradTiling, lanes: int) -> list[Step]:
    """Whole blocks: the tiles beyond the last are zeros, or apart whatever lies between points."""
    out, o = compute.stages[-1].name, _feature(compute)
    axes = compute.stage(TILES).parallel
    channel = axes[-1].name
    steps: list[Step] = [Split(TILES, channel, (lanes,)), Vectorize(TILES, f"{channel}.1")]
    if sketch.apart:
        free = -axes[0].extent % n.tiles * prod(a.extent for a in axes[1:])
        free += line_elements(compute) if n.spread else 0
        steps += [Parallel(TILES, TILE), Spread(TILES, free)]
    else:
        steps = [ComputeAt(TILES, out, f"{o}.0"), *steps]
    return [*steps, Overrun(PRODUCTS, TILE)]


def _weights(compute: Compute, sketch: WinogradSketch, n: WinogradTiling, lanes: int) -> list[Step]:
    """Lays the weights out in panels, in the order in which the products read them."""
    stage, o = compute.stage(WEIGHTS), _feature(compute)
    last = len(stage.parallel)
    layout = ((last, n.vectors * lanes), *((d, 1) for d in range(last)), (last, 1))
    steps: list[Step] = [
        LayOut(WEIGHTS, layout),
        Split(WEIGHTS, o, (lanes,)),
        Vectorize(WEIGHTS, f"{o}.1"),
    ]
    if sketch.when == "load":
        return [*steps, Preload(WEIGHTS)]
    return [*steps, Parallel(WEIGHTS, stage.parallel[0].name)]


def _weights_inside(compute: Compute, lanes: int) -> list[Step]:
    """Transforms the weights of a panel and some channels, just before the products read them."""
    stage, o = compute.stage(WEIGHTS), _feature(compute)
    wide = any(isinstance(v, Apply) and v.op == "convert" for v in stage.values)
    steps: list[Step] = [Narrow(WEIGHTS)] if wide else []
    return [
        *steps,
        ComputeAt(WEIGHTS, PRODUCTS, f"{compute.stage(PRODUCTS).reduce[-1].name}.0"),
        Split(WEIGHTS, o, (lanes,)),
        Vectorize(WEIGHTS, f"{o}.1"),
        Spread(WEIGHTS, line_elements(compute)),
    ]


def _before(name: str, axes: list[str], lanes: int, combines: bool) -> list[Step]:
    """A stage before the convolution, run once a call: its last axis in vectors."""
    if combines or not axes:
        return []
    return [Split(name, axes[-1], (lanes,)), Vectorize(name, f"{axes[-1]}.1")]
