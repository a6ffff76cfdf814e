"""The knobs of a contraction's space: which columns a config has, and the values each may take.

Every value of every knob is legal by itself; what several together may not do (registers, code,
scratch) is left to `CpuSpace.legal`.  All sketches of a space share the columns, so that a config
keeps its numbers when its sketch changes.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.ir.compute import Axis

LONGEST_TILE = 32
LONGEST_UNROLL = 8


@dataclass(frozen=True, slots=True)
class Knob:
    """One column of a config: where along its values a choice of one kind stands."""

    kind: str
    """One of register, block, group, unroll, steps, clip, peel, prefetch, serial, streams, depth,
    spread, and of task_order, group_order, tile_order, reduce_order."""
    axis: str
    """"" for an order."""
    values: tuple[int, ...]
    """Trips; 0 or 1 of clip, peel, serial; 0 to 2 of prefetch; of an order, rows of its table."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.axis}".strip()


@dataclass(frozen=True)
class Knobs:
    knobs: tuple[Knob, ...]
    orders: dict[str, NDArray[np.int64]]
    """For each kind of order: rows of axis numbers, outermost first."""

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        return np.array([len(k.values) for k in self.knobs], dtype=np.int32)

    def columns(self, kind: str) -> list[int]:
        """Positions among the knobs, in the order of the axes."""
        return list(self._columns.get(kind, ()))

    @cached_property
    def _columns(self) -> dict[str, list[int]]:
        found = dict[str, list[int]]()
        for n, k in enumerate(self.knobs):
            found.setdefault(k.kind, []).append(n)
        return found

    def values(self, kind: str, positions: NDArray[np.int32]) -> NDArray[np.int64]:
        """`(n, axes of that kind)`: what the knobs of one kind stand at.

        `positions` has a column for each knob of the space.
        """
        columns = self.columns(kind)
        result = np.empty((len(positions), len(columns)), dtype=np.int64)
        for n, column in enumerate(columns):
            result[:, n] = self._table[column].take(positions[:, column])
        return result

    def put(self, config: NDArray[np.int32], kind: str, values: NDArray[np.int64]) -> None:
        """Puts the nearest value that each knob of a kind has into a config, sketch and all."""
        for column, value in zip(self.columns(kind), values, strict=True):
            near = np.abs(np.array(self.knobs[column].values) - value)
            config[1 + column] = int(np.argmin(near))

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        """`(knobs, longest)`: the values of each knob, then more than any value."""
        table = np.full((len(self.knobs), max(self.counts)), np.iinfo(np.int64).max)
        for row, knob in zip(table, self.knobs, strict=True):
            row[: len(knob.values)] = knob.values
        return table

    def at(self, knobs: NDArray[np.int64], positions: NDArray[np.int32]) -> NDArray[np.int64]:
        """`(n,)`: what each of the named knobs means at its position."""
        values: NDArray[np.int64] = self._table[knobs, positions]
        return values

    def nearest(self, knobs: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64]:
        """`(n,)`: where a knob first reaches a value, or its last position where none does."""
        reached = np.count_nonzero(self._table[knobs] < values[:, None], axis=1)
        places: NDArray[np.int64] = np.minimum(reached, self.counts[knobs] - 1)
        return places


def knobs_of(
    parallel: tuple[Axis, ...],
    reduce: tuple[Axis, ...],
    windowed: tuple[tuple[str, ...], tuple[str, ...]],
    threads: int,
    *,
    apart: tuple[str, ...] = (),
    small: bool = False,
    streams: tuple[int, ...] = (),
) -> Knobs:
    """`windowed`: parallel axes that may be peeled, reduce axes that may be clipped; `apart`:
    axes without rows in register tiles; `small`: whether one thread may do it all; `streams`: the
    numbers of panels that a register tile may read side by side."""
    knobs: list[Knob] = []
    for a in parallel:
        knobs.append(Knob("register", a.name, (1,) if a.name in apart else tile_rows(a.extent)))
        knobs.append(Knob("block", a.name, trips(a.extent)))
        knobs.append(Knob("group", a.name, shares(a.extent, threads)))
    for r in reduce:
        knobs.append(Knob("unroll", r.name, tuple(range(1, min(r.extent, LONGEST_UNROLL) + 1))))
        knobs.append(Knob("steps", r.name, trips(r.extent)))
    orders = {
        "task_order": _one_first(len(parallel)),
        "group_order": _orders(len(parallel)),
        "tile_order": _orders(len(parallel)),
        "reduce_order": _orders(len(reduce)),
    }
    knobs += [Knob(kind, "", tuple(range(len(table)))) for kind, table in orders.items()]
    knobs += [Knob("peel", a, (0, 1)) for a in windowed[0]]
    knobs.append(Knob("prefetch", "", (0, 1, 2)))
    knobs += [Knob("clip", r, (0, 1)) for r in windowed[1]]
    knobs += [Knob("serial", "", (0, 1))] * small
    knobs += [Knob("streams", "", streams)] * bool(streams)
    return Knobs(tuple(knobs), orders)


def tile_rows(extent: int) -> tuple[int, ...]:
    return tuple(range(1, min(extent, LONGEST_TILE) + 1))


def trips(extent: int) -> tuple[int, ...]:
    """Numbers of iterations worth trying on an axis.

    All small ones, then about five an octave, and the whole with its first fractions.
    """
    steps = {n for n in range(1, 17)}
    steps |= {round(16 * 2 ** (k / 4)) for k in range(1, 65)}
    steps |= {-(-extent // n) for n in range(1, 9)}
    return tuple(sorted(n for n in steps if n <= extent))


def shares(extent: int, threads: int) -> tuple[int, ...]:
    """The numbers of trips, and those that give each thread equally many register tiles, one, two
    or four times over.
    """
    tiles = {-(-extent // n) for n in range(1, LONGEST_TILE + 1)}
    equal = {-(-n // (threads * k)) for n in tiles for k in (1, 2, 4)}
    return tuple(sorted(equal | set(trips(extent))))


def _orders(n: int) -> NDArray[np.int64]:
    """All orders of up to four axes; of more, each axis moved to the front or to the back."""
    if n <= 4:
        return np.array(list(permutations(range(n))), dtype=np.int64)
    rows = [list(range(n))]
    rows += [[k, *(x for x in range(n) if x != k)] for k in range(1, n)]
    rows += [[*(x for x in range(n) if x != k), k] for k in range(n - 1)]
    return np.array(rows, dtype=np.int64)


def _one_first(n: int) -> NDArray[np.int64]:
    return np.array([[k, *(x for x in range(n) if x != k)] for k in range(n)], dtype=np.int64)
