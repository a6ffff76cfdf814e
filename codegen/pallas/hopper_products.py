"""`hopper_product`: two warpgroups multiply out of shared memory, a third one copies ahead.

As many blocks of threads as the device has multiprocessors go through the blocks of the result,
so that storing one overlaps with copying the operands of the next.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import DTYPES, struct
from hlotune.codegen.pallas.mosaic import mosaic
from hlotune.schedules.errors import require
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuProduct
from hlotune.schedules.spaces.gpu.products import STORED_ROWS, stored_columns

COPYING_REGISTERS = 40
"""Registers of each thread of the warpgroup that copies; the others get what it leaves."""
BOTH = 2
"""Warpgroups that multiply, and blocks of a cluster."""
STORES = 2
"""Parts of a result on their way to memory at once."""


@dataclass(frozen=True)
class _Blocks:
    """One config's numbers."""

    block_m: int
    block_n: int
    block_k: int
    stages: int
    split_n: int
    """Whether the two warpgroups share the rows of a block, each with half of the columns."""
    cluster: int
    """Two blocks below each other (1) or side by side (2) share what they copy; 0: alone."""
    minor_n: int
    panel: int
    chained: int
    """Whether the operands of the next block are copied before this one is done with its own."""

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a warpgroup's part of a block."""
        if self.split_n:
            return self.block_m, self.block_n // BOTH
        return self.block_m // BOTH, self.block_n

    @property
    def cluster_shape(self) -> tuple[int, int]:
        return BOTH if self.cluster == 1 else 1, BOTH if self.cluster == 2 else 1


def hopper_product(
    product: GpuProduct,
    knobs: dict[str, int],
    interpret: bool,
    *operands: jax.Array,
    multiprocessors: int = 132,
) -> jax.Array:
    """The product of `(batch, m, k)` and `(batch, k, n)`; a batch of 1 has no axis."""
    require(not interpret, "hopper_product", "has no interpreter: lower it for a GPU")
    a, b = operands
    p, blocks = product, _Blocks(**knobs)
    flat_a, flat_b = a.reshape(p.batch * p.m, p.k), b.reshape(p.batch * p.k, p.n)
    if _by_columns(p):
        flat_b = b.reshape(p.batch, p.k, p.n).swapaxes(1, 2).reshape(p.batch * p.n, p.k)
    clusters = multiprocessors // (BOTH if blocks.cluster else 1)
    made: jax.Array = mosaic.kernel(
        functools.partial(_kernel, p, blocks),
        out_type=struct((p.batch * p.m, p.n), p.element),
        grid=(clusters,),
        grid_names=("clusters",),
        cluster=(BOTH if blocks.cluster else 1,),
        cluster_names=("cluster",),
        num_threads=BOTH + 1,
        thread_name="warpgroup",
        compiler_params=mosaic.CompilerParams(
            lowering_semantics=mosaic.LoweringSemantics.Warpgroup
        ),
    )(flat_a, flat_b)
    return made.reshape((p.batch, p.m, p.n) if p.batch > 1 else (p.m, p.n))


def _by_columns(p: GpuProduct) -> bool:
    """Whether the matrix unit wants the second operand's columns together: for 4-byte elements."""
    return ELEMENT_BYTES[p.element] == 4


def _tiled(element: str, columns: int) -> tuple[Any, ...]:
    """How a block lies in shared memory: as the matrix unit reads it without bank conflicts."""
    size = ELEMENT_BYTES[element]
    swizzle = mosaic.find_swizzle(columns * size * 8)
    return mosaic.TilingTransform((8, swizzle // size)), mosaic.SwizzleTransform(swizzle)


def _pipeline(p: GpuProduct, c: _Blocks, body: Any, around: Any, state: Any = None) -> Any:
    """Copies of blocks of both operands along k, and the sums over them."""
    by_columns = _by_columns(p)
    transforms_a = _tiled(p.element, c.block_k)
    transforms_b = _tiled(p.element, c.block_k if by_columns else c.block_n)
    shared_a = ("cluster",) if c.cluster == 2 else ()
    shared_b = ("cluster",) if c.cluster == 1 else ()
    left = mosaic.BlockSpec(
        (c.block_m, c.block_k),
        lambda k: (0, k),
        transforms=transforms_a,
        memory_space=mosaic.SMEM,
        collective_axes=shared_a,
    )
    right = mosaic.BlockSpec(
        (c.block_n, c.block_k) if by_columns else (c.block_k, c.block_n),
        (lambda k: (0, k)) if by_columns else (lambda k: (k, 0)),
        transforms=transforms_b,
        memory_space=mosaic.SMEM,
        collective_axes=shared_b,
    )
    return mosaic.emit_pipeline_warp_specialized(
        body,
        grid=(p.k // c.block_k,),
        memory_registers=COPYING_REGISTERS,
        in_specs=[left, right],
        wg_axis="warpgroup",
        num_compute_wgs=BOTH,
        max_concurrent_steps=c.stages,
        compute_context=around,
        pipeline_state=state,
    )


def _kernel(p: GpuProduct, c: _Blocks, a: Any, b: Any, out: Any) -> None:
    def nothing(*_: Any, **__: Any) -> None:
        return None

    scope = functools.partial(
        pl.run_scoped,
        buffers=_pipeline(p, c, nothing, nothing).get_allocations(
            a.at[pl.ds(0, p.m), :], _right(p, b, 0, pl.ds(0, p.n))
        ),
        stored=mosaic.SMEM(
            (BOTH, STORES, STORED_ROWS, stored_columns(p.element)),
            DTYPES[p.element],
            transforms=_tiled(p.element, stored_columns(p.element)),
        ),
        collective_axes="warpgroup",
    )
    scope(functools.partial(_all_blocks, p, c, a, b, out))
    mosaic.wait_smem_to_gmem(0, wait_read_only=True)


def _all_blocks(
    p: GpuProduct, c: _Blocks, a: Any, b: Any, out: Any, buffers: Any, stored: Any
) -> None:
    """The blocks of the result that fall to this block of threads."""
    warpgroup = lax.axis_index("warpgroup")
    along_m, along_n = c.cluster_shape
    rows, columns = p.m // (c.block_m * along_m), p.n // (c.block_n * along_n)

    def one(place: Any) -> None:
        batch, number = place.index
        i, j = mosaic.planar_snake(number, (rows, columns), c.minor_n, c.panel)
        i = i * along_m + (lax.axis_index("cluster") if c.cluster == 1 else 0)
        j = j * along_n + (lax.axis_index("cluster") if c.cluster == 2 else 0)
        at_m, at_n = pl.ds(batch * p.m + i * c.block_m, c.block_m), pl.ds(j * c.block_n, c.block_n)
        mine = a.at[at_m, :], _right(p, b, batch, at_n), out.at[at_m, at_n]
        _one_block(p, c, mine, buffers, stored.at[warpgroup], _state(c, place))

    mosaic.nd_loop((p.batch, rows * columns), collective_axes="clusters")(one)


def _right(p: GpuProduct, b: Any, batch: Any, columns: Any) -> Any:
    """Columns of the second operand, `(k, columns)`, or `(columns, k)` where those lie together."""
    if _by_columns(p):
        return b.at[pl.ds(batch * p.n + columns.start, columns.size), :]
    return b.at[pl.ds(batch * p.k, p.k), columns]


def _state(c: _Blocks, place: Any) -> Any:
    """Where a block stands among those of its block of threads, if their copies are chained."""
    if not c.chained:
        return None
    first, last = place.local_index == 0, place.local_index == place.num_local_steps - 1
    states = mosaic.PipelinePipeline
    following = jnp.where(last, int(states.STOP), int(states.STEADY))
    return jnp.where(first, int(states.START), following)


def _one_block(
    p: GpuProduct,
    c: _Blocks,
    memory: tuple[Any, Any, Any],
    buffers: Any,
    stored: Any,
    state: Any,
) -> None:
    """One block of the result: `memory` has its rows of a, its columns of b, and its place."""
    a, b, out = memory
    warpgroup = lax.axis_index("warpgroup")
    part_m, part_n = c.part
    my_m = slice(None) if c.split_n else pl.ds(warpgroup * part_m, part_m)
    my_n = pl.ds(warpgroup * part_n, part_n) if c.split_n else slice(None)

    def around(summed: Any) -> None:
        def scope(sums: Any) -> None:
            summed(sums)
            _store(p, c, sums[...].astype(out.dtype), out.at[my_m, my_n], stored)

        pl.run_scoped(scope, sums=mosaic.ACC((part_m, part_n), jnp.float32))

    def step(_: Any, left: Any, right: Any, sums: Any) -> Any:
        columns = right.at[my_n].transpose((1, 0)) if _by_columns(p) else right.at[:, my_n]
        mosaic.wgmma(sums, left.at[my_m], columns)
        mosaic.wgmma_wait(0)
        return sums

    _pipeline(p, c, step, around, state)(a, b, allocations=buffers)


def _store(p: GpuProduct, c: _Blocks, made: jax.Array, out: Any, stored: Any) -> None:
    """A warpgroup's part of a result, piece by piece through shared memory."""
    part_m, part_n = c.part
    mosaic.wait_smem_to_gmem(0, wait_read_only=True)
    columns = stored_columns(p.element)
    pieces = [
        (slice(m, m + STORED_ROWS), slice(n, n + columns))
        for m in range(0, part_m, STORED_ROWS)
        for n in range(0, part_n, columns)
    ]
    for number, piece in enumerate(pieces):
        slot = number % STORES
        mosaic.wait_smem_to_gmem(STORES - 1, wait_read_only=True)
        stored[slot] = made[piece]
        mosaic.commit_smem()
        mosaic.copy_smem_to_gmem(stored.at[slot], out.at[piece])
