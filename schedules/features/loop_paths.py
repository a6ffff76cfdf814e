"""The loops from the root of a nest to the body of its contraction, as arrays: one row a config.

A path is what features, limits and digests are computed from, for thousands of configs at once;
`path_of` reads the same arrays off one loop nest, which is how a property test binds the two.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.nest import LoopNest, StageNest, region
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.steps.pack import packed_name

KINDS = ("serial", "parallel", "unroll", "vectorize")
LOAD_LEVEL, CALL_LEVEL, NOT_PACKED = -2, -1, -3

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Path:
    """`(n, slots)`: from the outermost loop to the innermost.

    Axes are numbered parallel first, then reduce.
    """

    axis: Ints
    trips: Ints
    """Iterations in a full tile of the enclosing loop of the same axis."""
    kind: Ints
    """Position in KINDS."""
    held_from: Ints
    """`(n,)`: first slot inside which the results are in registers."""
    split_from: Ints
    """`(n,)`: first slot of the contraction's own loops."""
    packs: Ints
    """`(n, operands)`: slot inside whose body the operand is packed, or one of the levels above."""
    panels: Ints
    """`(n, operands)`: elements of the innermost block of a pack, 1 where it has no blocks."""
    borders: Ints
    """`(n, 2)`: axes that are clipped and axes that are peeled, as bits."""
    handed_over: Ints
    """`(n,)`: 1 where the last stage reads the sums in registers, 0 where from memory."""
    prefetch: Ints
    """`(n,)`: 1 where the next panels of operands are asked for, 2 where what a loop reads next."""
    asked_along: Ints
    """`(n,)`: axis of that loop, or -1."""
    spacing: Ints
    """`(n,)`: elements left free behind each slice of the sums."""
    beyond: Ints
    """`(n,)`: elements by which the loops inside a part pass its end, which trips do not tell."""


def sizes_inside(path: Path, extents: Ints) -> Ints:
    """`(n, slots + 1, axes)`: elements of each axis walked inside a slot; column 0 is the nest."""
    n, slots = path.axis.shape
    axes = len(extents)
    sizes = np.ones((n, slots + 1, axes), dtype=np.int64)
    current = np.ones((n, axes), dtype=np.int64)
    rows = np.arange(n)
    for k in range(slots - 1, -1, -1):
        current[rows, path.axis[:, k]] *= path.trips[:, k]
        sizes[:, k, :] = current
    return np.minimum(sizes, extents)


def digest(path: Path) -> NDArray[np.uint64]:
    """A hash of each nest: loops of one iteration do not count."""
    value = np.full(len(path.axis), 1469598103934665603, dtype=np.uint64)
    prime = np.uint64(1099511628211)
    for k in range(path.axis.shape[1]):
        word = (path.axis[:, k] * 4 + path.kind[:, k]) * 1_000_003 + path.trips[:, k]
        step = (value ^ word.astype(np.uint64)) * prime
        value = np.where(path.trips[:, k] > 1, step, value)
    # where something stands is counted in loops that iterate: empty levels do not tell nests apart
    before = np.concatenate(
        [np.zeros((len(path.axis), 1), np.int64), np.cumsum(path.trips > 1, axis=1)], axis=1
    )
    rows = np.arange(len(before))
    places = [before[rows, path.held_from], before[rows, path.split_from]]
    places += [np.where(p < 0, p, before[rows, np.maximum(p, 0) + 1]) for p in path.packs.T]
    for extra in (
        *places,
        *path.panels.T,
        *path.borders.T,
        path.prefetch,
        path.asked_along,
        path.handed_over,
        path.spacing,
        path.beyond,
    ):
        value = (value ^ (extra + 7).astype(np.uint64)) * prime
    return value


def path_of(nest: LoopNest, c: Contraction) -> Path:
    """The path of one nest, as arrays of one row."""
    core, out = nest.stage(c.core.name), nest.stage(c.out.name)
    numbers = {a.name: n for n, a in enumerate((*c.parallel, *c.reduce))}
    outer = out.loops[: out.index(core.at[1]) + 1] if core.at else ()
    trips = out.trips(region(nest, out))[: len(outer)] + core.trips(region(nest, core))
    loops = (*outer, *core.loops)
    held = len(outer) + (core.index(core.accumulate) + 1 if core.accumulate else 0)
    packs = [_pack_slot(nest, core, len(outer), x.tensor) for x in c.operands]
    bordered = [
        {x.root for x in (*out.loops, *core.loops) if x.border == kind} for kind in ("clip", "peel")
    ]
    return Path(
        axis=np.array([[numbers[x.root] for x in loops]]),
        trips=np.array([trips], dtype=np.int64),
        kind=np.array([[KINDS.index(x.kind) for x in loops]]),
        held_from=np.array([held]),
        split_from=np.array([len(outer)]),
        packs=np.array([[slot for slot, _ in packs]], dtype=np.int64).reshape(1, -1),
        panels=np.array([[panel for _, panel in packs]], dtype=np.int64).reshape(1, -1),
        borders=as_bits(np.array([[a in roots for a in numbers] for roots in bordered]))[None],
        handed_over=np.array([int(core.scope == "register")]),
        prefetch=np.array([2 if core.stream else int(bool(core.prefetch))]),
        asked_along=np.array([_asked_along(core, numbers)]),
        spacing=np.array([core.spacing]),
        beyond=np.array([0]),
    )


def _asked_along(core: StageNest, numbers: dict[str, int]) -> int:
    if not core.stream:
        return -1
    (_, axis), *_ = core.stream
    return numbers[core.loops[core.index(axis)].root]


def as_bits(chosen: NDArray[np.bool_], first: int = 0) -> Ints:
    """`(n, axes)` as one number a row; `first` is the number of the first axis."""
    bits: Ints = (chosen.astype(np.int64) << np.arange(first, first + chosen.shape[1])).sum(axis=1)
    return bits


def _pack_slot(nest: LoopNest, core: StageNest, outer: int, tensor: str) -> tuple[int, int]:
    """Where an operand is packed, and the block of its panels."""
    maker = nest.producer(packed_name(tensor))
    if maker is None:
        return NOT_PACKED, 1
    panel = max(block for _, block in maker.layout)
    if maker.at is None:
        return (LOAD_LEVEL if maker.scope == "load" else CALL_LEVEL), panel
    stage, axis = maker.at
    if stage == core.stage.name:
        return outer + core.index(axis), panel
    return nest.stage(stage).index(axis), panel
