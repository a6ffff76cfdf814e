"""`hopper_ring_product`: copies of operands run ahead over the blocks of the result without a stop.

`hopper_product` begins each block of the result with empty rooms, or needs a whole round of them
along k.  Here a ring of rooms knows nothing of where a block begins, so that a short k leaves as
much on its way as a long one.  No extent needs to be whole blocks: the copy engine reads zeros
behind the last row or column of an operand, and writes nothing behind those of the result.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import DTYPES, struct
from hlotune.codegen.pallas.hopper_rings import (
    REGISTERS,
    Ring,
    Stripes,
    column_values,
    emptied_by,
    finished_sums,
    stripe_rooms,
    two_views,
)
from hlotune.codegen.pallas.mosaic import mosaic
from hlotune.schedules.errors import require
from hlotune.schedules.patterns.gpu import GpuProduct
from hlotune.schedules.patterns.gpu_windows import LINE, UNIT_ROWS
from hlotune.schedules.spaces.gpu.products import warpgroups


@dataclass(frozen=True)
class _Blocks:
    """One config's numbers."""

    block_m: int
    block_n: int
    stages: int
    stores: int
    cluster: int
    """Two blocks below each other (1) or side by side (2) share what they copy; 0: alone."""
    minor_n: int
    panel: int

    @property
    def together(self) -> tuple[int, int]:
        """Blocks of a cluster along rows and columns."""
        return 2 if self.cluster == 1 else 1, 2 if self.cluster == 2 else 1

    def grid(self, p: GpuProduct) -> tuple[int, int]:
        """Clusters of one product's result along its rows and columns."""
        rows, columns = self.together
        return -(-p.m // (self.block_m * rows)), -(-p.n // (self.block_n * columns))

    @property
    def warpgroups(self) -> int:
        """That multiply."""
        return warpgroups(self.block_m)

    @property
    def units(self) -> int:
        """Units of 64 rows of each warpgroup."""
        return self.block_m // (self.warpgroups * UNIT_ROWS)


@dataclass(frozen=True)
class _Shared:
    """What the warpgroups of one block of threads share."""

    copied: Any
    """Rows of the first operand as they are copied: `(stages, block_m, 64)`."""
    left: Any
    """The same memory as the matrix unit reads it."""
    right: Stripes
    """64 rows of the second operand, `block_n` columns."""
    staged: Any
    """Parts of a result: `(warpgroups, stores, 64, 64)`."""
    stored: Any
    """The same memory as it is copied out."""
    ring: Ring


def hopper_ring_product(
    product: GpuProduct,
    knobs: dict[str, int],
    interpret: bool,
    *operands: jax.Array,
    multiprocessors: int = 132,
) -> jax.Array:
    """Takes `(batch, m, k)` and `(batch, k, n)`; the batch axis is missing where the batch is 1."""
    require(not interpret, "hopper_ring_product", "has no interpreter: lower it for a GPU")
    p, c = product, _Blocks(**knobs)
    a, b, *bias = operands
    rows, columns = c.grid(p)
    covered = columns * c.together[1] * c.block_n
    bias = [jnp.pad(x, (0, covered - p.n)) for x in bias]
    together = 2 if c.cluster else 1
    programs = min(multiprocessors // together, p.batch * rows * columns)
    made: jax.Array = mosaic.kernel(
        functools.partial(_kernel, p, c, programs),
        out_type=struct((p.batch, p.m, p.n), p.element),
        grid=(programs,),
        grid_names=("clusters",),
        cluster=(together,),
        cluster_names=("cluster",),
        num_threads=c.warpgroups + 1,
        thread_name="warpgroup",
    )(a.reshape(p.batch, p.m, p.k), b.reshape(p.batch, p.k, p.n), *bias)
    return made.reshape((p.batch, p.m, p.n) if p.batch > 1 else (p.m, p.n))


def _kernel(p: GpuProduct, c: _Blocks, programs: int, a: Any, b: Any, *rest: Any) -> None:
    dtype = DTYPES[p.element]
    columns, stripes = stripe_rooms(c.stages, LINE, c.block_n, dtype, p.n % LINE == 0)

    def scope(left: Any, right: Any, results: Any, filled: Any, emptied: Any) -> None:
        ring = Ring(filled, emptied, c.stages)
        shared = _Shared(
            left[1], left[0], Stripes(right[0], right[1]), results[0], results[1], ring
        )
        _roles(p, c, programs, (a, b, rest), shared)

    pl.run_scoped(
        scope,
        two_views((c.stages, c.block_m, LINE), dtype),
        columns,
        two_views((c.warpgroups, c.stores, UNIT_ROWS, LINE), dtype),
        mosaic.Barrier(num_arrivals=1 + stripes, num_barriers=c.stages),
        emptied_by(c.warpgroups, 2 if c.cluster else 1, c.stages),
        collective_axes="warpgroup",
    )


def _roles(
    p: GpuProduct, c: _Blocks, programs: int, memory: tuple[Any, Any, Any], s: _Shared
) -> None:
    """Each warpgroup goes through the blocks of results of this block of threads."""
    a, b, rest = memory
    rows, columns = c.grid(p)
    warpgroup, first = lax.axis_index("warpgroup"), lax.axis_index("clusters")
    mine = pl.cdiv(p.batch * rows * columns - first, jnp.int32(programs))

    def place(n: Any) -> tuple[Any, Any, Any]:
        number, each = first + n * programs, jnp.int32(rows * columns)
        batch, within = lax.div(number, each), lax.rem(number, each)
        i, j = mosaic.planar_snake(within, (rows, columns), c.minor_n, c.panel)
        mine_m, mine_n = (lax.axis_index("cluster") if c.cluster == axis else 0 for axis in (1, 2))
        down, right = c.together
        return batch, (i * down + mine_m) * c.block_m, (j * right + mine_n) * c.block_n

    computing, copying = REGISTERS[c.warpgroups]

    @pl.when(warpgroup < c.warpgroups)
    def _() -> None:
        mosaic.set_max_registers(computing, action="increase")

        @pl.loop(jnp.int32(0), mine)
        def _(n: Any) -> None:
            _multiply(p, c, place(n), n, rest, s)

        mosaic.wait_smem_to_gmem(0)

    @pl.when(warpgroup == c.warpgroups)
    def _() -> None:
        mosaic.set_max_registers(copying, action="decrease")

        @pl.loop(jnp.int32(0), mine)
        def _(n: Any) -> None:
            _copy(p, c, place(n), n, (a, b), s)

        if c.cluster:
            s.ring.wait_drained(mine * pl.cdiv(p.k, LINE))


def _copy(
    p: GpuProduct,
    c: _Blocks,
    at: tuple[Any, Any, Any],
    n: Any,
    memory: tuple[Any, Any],
    s: _Shared,
) -> None:
    """The operands of block `n` of this block of threads, piece by piece along k."""
    (a, b), (batch, row, column) = memory, at
    steps = pl.cdiv(p.k, LINE)

    @pl.loop(jnp.int32(0), jnp.int32(steps))
    def _(step: Any) -> None:
        slot, along = s.ring.wait_empty(n * steps + step), pl.ds(step * LINE, LINE)
        filled = s.ring.filled.at[slot]
        to_a, to_b = ("cluster" if c.cluster == direction else None for direction in (2, 1))
        rows = a.at[batch, pl.ds(row, c.block_m), along]
        mosaic.copy_gmem_to_smem(rows, s.copied.at[slot], filled, collective_axes=to_a)
        s.right.copy(b.at[batch, along], column, slot, filled, to_b)


def _multiply(
    p: GpuProduct, c: _Blocks, at: tuple[Any, Any, Any], n: Any, rest: Any, s: _Shared
) -> None:
    """This warpgroup's rows of block `n`, and their way to memory: `rest` is the bias, or none,
    and the result.
    """
    *bias, out = rest
    steps, (batch, row, column) = pl.cdiv(p.k, LINE), at
    mine = lax.axis_index("warpgroup") * (c.units * UNIT_ROWS)

    def multiply(step: Any, sums: Any) -> None:
        slot = s.ring.wait_full(n * steps + step)
        for number, total in enumerate(sums):
            rows = pl.ds(mine + number * UNIT_ROWS, UNIT_ROWS)
            s.right.multiply(total, s.left.at[slot, rows], slot)

    def summed(*sums: Any) -> tuple[jax.Array, ...]:
        multiply(jnp.int32(0), sums)

        @pl.loop(jnp.int32(1), jnp.int32(steps))
        def _(step: Any) -> None:
            multiply(step, sums)
            mosaic.wgmma_wait(c.units * s.right.count)
            s.ring.release(n * steps + step - 1)

        mosaic.wgmma_wait(0)
        s.ring.release(n * steps + steps - 1)
        return tuple(total[...] for total in sums)

    made = pl.run_scoped(summed, *[mosaic.ACC((UNIT_ROWS, c.block_n), jnp.float32)] * c.units)
    added = column_values(bias[0], column, c.block_n) if bias else None
    for number, sums in enumerate(made):
        values = finished_sums(sums, added, p.epilogue)
        place = batch, row + mine + number * UNIT_ROWS, column
        _store(c, values.astype(DTYPES[p.element]), place, number, out, s)


def _store(
    c: _Blocks, values: jax.Array, at: tuple[Any, Any, Any], number: int, out: Any, s: _Shared
) -> None:
    """64 rows of a result, 64 columns after 64 columns."""
    batch, row, column = at
    warpgroup, pieces = lax.axis_index("warpgroup"), c.block_n // LINE
    for piece in range(pieces):
        count = number * pieces + piece
        slot = count % c.stores
        # The last block's parts have left by now; of this block's, so many may be on their way.
        mosaic.wait_smem_to_gmem(c.stores - 1 if count else 0, wait_read_only=True)
        s.staged[warpgroup, slot] = values[:, piece * LINE : (piece + 1) * LINE]
        mosaic.commit_smem()
        place = batch, pl.ds(row, UNIT_ROWS), pl.ds(column + piece * LINE, LINE)
        mosaic.copy_smem_to_gmem(s.stored.at[warpgroup, slot], out.at[place])
