"""Rooms in shared memory between a warpgroup that copies and those that multiply."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import activated
from hlotune.codegen.pallas.mosaic import mosaic

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
