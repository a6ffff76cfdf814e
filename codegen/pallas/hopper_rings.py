"""Rooms in shared memory between a warpgroup that copies and those that multiply."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import activated
from hlotune.codegen.pallas.mosaic import mosaic
from hlotune.schedules.patterns.gpu_windows import LINE

REGISTERS = {2: (232, 40), 3: (160, 32)}
"""Registers of a thread that multiplies and of one that copies, by the warpgroups that multiply."""


@dataclass(frozen=True)
class Ring:
    """Rooms in shared memory that one warpgroup fills and the others empty, in turns."""

    filled: Any
    emptied: Any
    stages: int

    def slot(self, count: Any) -> Any:
        return lax.rem(count, jnp.int32(self.stages))

    def wait_empty(self, count: Any) -> Any:
        """The room for what is number `count`, once the others are done with it."""
        slot = self.slot(count)
        pl.when(count >= self.stages)(lambda: mosaic.barrier_wait(self.emptied.at[slot]))
        return slot

    def wait_full(self, count: Any) -> Any:
        slot = self.slot(count)
        mosaic.barrier_wait(self.filled.at[slot])
        return slot

    def release(self, count: Any) -> None:
        mosaic.barrier_arrive(self.emptied.at[self.slot(count)])

    def wait_drained(self, count: Any) -> None:
        """Until all of `count` rooms that were filled are empty.

        A block of threads must not end while another one of its cluster still says so.
        """
        for number in range(self.stages):
            self.wait_empty(count + number)


@dataclass(frozen=True)
class Stripes:
    """Blocks of an operand in shared memory, `(rooms, stripes, rows, columns of a stripe)`.

    One copy brings a block out of an operand that is whole tiles of 8 rows and 64 columns.  Of any
    other operand, each 64 columns are a copy of their own, which reads zeros behind the last row
    and column, and they are multiplied by themselves.
    """

    read: Any
    """As the matrix unit reads them."""
    copied: Any
    """The same memory as it is copied."""

    @property
    def count(self) -> int:
        return int(self.read.shape[1])

    @property
    def width(self) -> int:
        """Columns of a stripe."""
        return int(self.read.shape[3])

    def columns(self, number: int) -> Any:
        """The columns of a stripe within its block."""
        return pl.ds(number * self.width, self.width)

    def copy(self, source: Any, column: Any, slot: Any, filled: Any, shared: Any) -> None:
        """Brings the block at a column of `source (rows, columns)`; arrives `count` times."""
        for number in range(self.count):
            at = self.columns(number)
            here = source.at[:, pl.ds(column + at.start, at.size)]
            room = self.copied.at[slot, number]
            mosaic.copy_gmem_to_smem(here, room, filled, collective_axes=shared)

    def multiply(self, sums: Any, left: Any, slot: Any) -> None:
        """Begins `count` products of `left (.., rows)`, which add to `sums (.., columns)`."""
        for number in range(self.count):
            part = sums if self.count == 1 else sums.at[:, self.columns(number)]
            mosaic.wgmma(part, left, self.read.at[slot, number])

    def store(self, values: Any, slot: Any, target: Any) -> None:
        """Writes `values (rows, columns)` to a place in memory by way of a room, and waits."""
        for number in range(self.count):
            self.read[slot, number] = values[:, number * self.width : (number + 1) * self.width]
        mosaic.commit_smem()
        for number in range(self.count):
            there = target.at[:, self.columns(number)]
            mosaic.copy_smem_to_gmem(self.copied.at[slot, number], there)
        mosaic.wait_smem_to_gmem(0)


def stripe_rooms(
    rooms: int, rows: int, columns: int, dtype: Any, whole_tiles: bool
) -> tuple[Any, int]:
    """Memory for `Stripes` of an operand that is whole tiles or not, and how many there are."""
    stripes = 1 if whole_tiles else columns // LINE
    shape = rooms, stripes, rows, columns // stripes
    if columns > stripes * LINE:
        return mosaic.RefUnion(*[tiled_memory(shape, dtype)] * 2), stripes
    return two_views(shape, dtype), stripes


def two_views(shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory that the matrix unit and the copy engine see, rows of 64 elements both."""
    plain = mosaic.SMEM(shape, dtype, transforms=(mosaic.SwizzleTransform(128),))
    return mosaic.RefUnion(tiled_memory(shape, dtype), plain)


def tiled_memory(shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory in tiles of 8 rows of 64 elements of 2 bytes, as the matrix unit reads it."""
    transforms = mosaic.TilingTransform((8, LINE)), mosaic.SwizzleTransform(128)
    return mosaic.SMEM(shape, dtype, transforms=transforms)


def emptied_by(warpgroups: int, together: int, stages: int) -> Any:
    """Barriers for rooms that so many warpgroups of each block of a cluster empty together."""
    if together == 1:
        return mosaic.Barrier(num_arrivals=warpgroups, num_barriers=stages)
    return mosaic.ClusterBarrier(
        collective_axes=("cluster",), num_arrivals=warpgroups, num_barriers=stages
    )


def column_values(source: Any, column: Any, count: int) -> jax.Array:
    """One value a column in f32, `(count,)`, each thread holding those of its sums."""
    layout = mosaic.Layout.WGMMA.reduce(0)
    at = source.at[pl.ds(column, count)]
    loaded: jax.Array = mosaic.load(at, layout=layout, optimized=False)
    return loaded.astype(jnp.float32)


def finished_sums(sums: jax.Array, bias: jax.Array | None, epilogue: str) -> jax.Array:
    """What an epilogue makes of sums `(rows, columns)` and a bias of each column."""
    if bias is None:
        return sums
    return activated(sums + lax.broadcast_in_dim(bias, sums.shape, [1]), epilogue)
