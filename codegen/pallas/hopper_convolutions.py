"""`hopper_convolution`: blocks of images in shared memory serve all taps of a window.

A block of threads takes some rows and columns of results of eight or more images.  The copy engine
brings what they read of 64 channels, borders included, once; each tap then multiplies out of it at
another offset.  Two warpgroups multiply and store, a third one copies ahead, over the blocks of
results of its block of threads without a stop.
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
    tiled_memory,
)
from hlotune.codegen.pallas.mosaic import mosaic
from hlotune.schedules.errors import require
from hlotune.schedules.patterns.gpu import GpuConvolution
from hlotune.schedules.patterns.gpu_windows import GROUP, LINE, UNIT_ROWS, Plane, WindowBlocks

WARPGROUPS = 2
"""That multiply."""
COMPUTING_REGISTERS, COPYING_REGISTERS = REGISTERS[WARPGROUPS]
STORES = 2
"""Parts of a result on their way to memory at once, of each warpgroup."""


@dataclass(frozen=True)
class Unit:
    """64 rows of the product: eight columns of results of eight images."""

    group: Any
    row: Any
    column: Any
    slab: Any
    """Where the upper left corner of its windows lies in a plane of shared memory."""


@dataclass(frozen=True)
class _Shared:
    """What the warpgroups of one block of threads share."""

    copied: Any
    """Images as they are copied: `(stages, groups, rows, columns, 8 images, 64 channels)`."""
    read: Any
    """The same memory as the matrix unit reads it: `(rows of 64 channels, 64)`."""
    weights: Stripes
    staged: Any
    """Results of a unit as the matrix unit has them: `(warpgroups, stores, 64, 64 features)`."""
    stored: Any
    """The same memory as it is copied out: `(.., 8 columns, 8 images, 64 features)`."""
    images_ring: Ring
    weights_ring: Ring


def hopper_convolution(
    convolution: GpuConvolution,
    knobs: dict[str, int],
    interpret: bool,
    *operands: jax.Array,
    multiprocessors: int = 132,
) -> jax.Array:
    """Takes images `(batch, size, size, channels)` and weights
    `(window, window, channels, features)`.
    """
    require(not interpret, "hopper_convolution", "has no interpreter: lower it for a GPU")
    c = convolution
    w = WindowBlocks(c, knobs["groups"], knobs["rows"], knobs["columns"])
    images, weights, *bias = operands
    columns, together = pl.cdiv(c.features, knobs["block_n"]), knobs["cluster"]
    bias = [jnp.pad(x, (0, columns * knobs["block_n"] - c.features)) for x in bias]
    programs = min(multiprocessors // together, pl.cdiv(w.blocks, together) * columns)
    made: jax.Array = mosaic.kernel(
        functools.partial(_kernel, c, w, knobs, columns, programs),
        out_type=struct((c.batch, c.out, c.out, c.features), c.element),
        grid=(programs,),
        grid_names=("clusters",),
        cluster=(together,),
        cluster_names=("cluster",),
        num_threads=WARPGROUPS + 1,
        thread_name="warpgroup",
    )(images.reshape(w.image_shape), weights.reshape(c.terms, c.features), *bias)
    return made


def _kernel(
    c: GpuConvolution,
    w: WindowBlocks,
    knobs: dict[str, int],
    columns: int,
    programs: int,
    images: Any,
    weights: Any,
    *rest: Any,
) -> None:
    dtype, block_n = DTYPES[c.element], knobs["block_n"]
    swizzle = mosaic.SwizzleTransform(128)
    depth, weight_depth = knobs["stages"], knobs["weight_stages"]
    rows = GROUP * (depth * w.groups * w.slabs + w.overhang)
    box = (depth, w.groups, w.rows_read, w.columns_read, GROUP, LINE)
    stored = (WARPGROUPS, STORES)
    whole_tiles = c.features % LINE == 0
    weight_memory, stripes = stripe_rooms(weight_depth, LINE, block_n, dtype, whole_tiles)

    def scope(image_views: Any, weight_rooms: Any, stored_views: Any, *barriers: Any) -> None:
        (read, copied), (staged, out_views) = image_views, stored_views
        filled, emptied, weights_filled, weights_emptied = barriers
        rings = (
            Ring(filled, emptied, depth),
            Ring(weights_filled, weights_emptied, weight_depth),
        )
        weight_stripes = Stripes(weight_rooms[0], weight_rooms[1])
        shared = _Shared(copied, read, weight_stripes, staged, out_views, *rings)
        _roles(c, w, knobs, (columns, programs), (images, weights, rest), shared)

    pl.run_scoped(
        scope,
        mosaic.RefUnion(
            tiled_memory((rows, LINE), dtype),
            mosaic.SMEM(box, dtype, transforms=(swizzle,)),
        ),
        weight_memory,
        mosaic.RefUnion(
            tiled_memory((*stored, UNIT_ROWS, LINE), dtype),
            mosaic.SMEM((*stored, GROUP, GROUP, LINE), dtype, transforms=(swizzle,)),
        ),
        mosaic.Barrier(num_arrivals=w.groups, num_barriers=depth),
        emptied_by(WARPGROUPS, 1, depth),
        mosaic.Barrier(num_arrivals=stripes, num_barriers=weight_depth),
        emptied_by(WARPGROUPS, knobs["cluster"], weight_depth),
        collective_axes="warpgroup",
    )


def _roles(
    c: GpuConvolution,
    w: WindowBlocks,
    knobs: dict[str, int],
    grid: tuple[int, int],
    memory: tuple[Any, Any, Any],
    s: _Shared,
) -> None:
    """Each warpgroup goes through the blocks of results of this block of threads."""
    columns, programs = grid
    images, weights, rest = memory
    together = knobs["cluster"]
    warpgroup, first = lax.axis_index("warpgroup"), lax.axis_index("clusters")
    mine = pl.cdiv(pl.cdiv(w.blocks, together) * columns - first, jnp.int32(programs))

    def place(n: Any) -> tuple[Any, Any]:
        """Block and columns; blocks of a cluster follow one another, the last may not exist."""
        number = first + n * programs
        block = lax.div(number, jnp.int32(columns)) * together + lax.axis_index("cluster")
        return block, lax.rem(number, jnp.int32(columns))

    @pl.when(warpgroup < WARPGROUPS)
    def _() -> None:
        mosaic.set_max_registers(COMPUTING_REGISTERS, action="increase")

        @pl.loop(jnp.int32(0), mine)
        def _(n: Any) -> None:
            block, column = place(n)
            _multiply(c, w, knobs, (block, column), n, rest, s)

        mosaic.wait_smem_to_gmem(0)

    @pl.when(warpgroup == WARPGROUPS)
    def _() -> None:
        mosaic.set_max_registers(COPYING_REGISTERS, action="decrease")

        @pl.loop(jnp.int32(0), mine)
        def _(n: Any) -> None:
            block, column = place(n)
            _copy(c, w, knobs, (block, column), n, (images, weights), s)

        if together > 1:
            s.weights_ring.wait_drained(mine * (c.channels // LINE * w.taps))


def corner(w: WindowBlocks, block: Any) -> tuple[Any, Any, Any]:
    """The first image, row and column of results of a block."""
    _, rows, columns = (jnp.int32(extent) for extent in w.grid)
    above, column = lax.div(block, columns), lax.rem(block, columns)
    image, row = lax.div(above, rows), lax.rem(above, rows)
    return image * (w.groups * GROUP), row * w.rows, column * w.columns


def unit(w: WindowBlocks, number: Any) -> Unit:
    """Where a unit of a block lies in it."""
    columns, rows = jnp.int32(w.columns // GROUP), jnp.int32(w.rows)
    above, column = lax.div(number, columns), lax.rem(number, columns) * GROUP
    group, row = lax.div(above, rows), lax.rem(above, rows)
    return Unit(group, row, column, group * w.slabs + row * w.columns_read + column)


def window(w: WindowBlocks, plane: Plane, image: Any, at: tuple[Any, Any], channel: Any) -> Any:
    """What a block at a row and a column reads of a plane, from an image and a channel on."""
    images, channels = pl.ds(image, GROUP), w.convolution.channels
    rows, columns = pl.ds(at[0] + w.first, w.rows_read), pl.ds(at[1] + w.first, w.columns_read)
    if w.convolution.stride == 1:
        return images, rows, columns, pl.ds(channel, LINE)
    return images, rows, plane.row, columns, pl.ds(plane.column * channels + channel, LINE)


def _copy(
    c: GpuConvolution,
    w: WindowBlocks,
    knobs: dict[str, int],
    at: tuple[Any, Any],
    n: Any,
    memory: tuple[Any, Any],
    s: _Shared,
) -> None:
    """What block `n` of this block of threads reads, each piece as soon as there is room."""
    images, weights = memory
    feature, pieces = at[1] * knobs["block_n"], c.channels // LINE
    shared = "cluster" if knobs["cluster"] > 1 else None
    image, row, column = corner(w, at[0])

    @pl.loop(jnp.int32(0), jnp.int32(pieces))
    def _(piece: Any) -> None:
        channel = piece * LINE
        image_count = (n * pieces + piece) * len(w.planes)
        weight_count = (n * pieces + piece) * w.taps
        done = 0
        for number, plane in enumerate(w.planes):
            slot = s.images_ring.wait_empty(image_count + number)
            for group in range(w.groups):
                source = images.at[window(w, plane, image + group * GROUP, (row, column), channel)]
                target = s.copied.at[slot, group].transpose((2, 0, 1, 3))
                mosaic.copy_gmem_to_smem(source, target, s.images_ring.filled.at[slot])
            for tap in plane.taps:
                room = s.weights_ring.wait_empty(weight_count + done)
                terms = weights.at[pl.ds(tap.number * c.channels + channel, LINE)]
                s.weights.copy(terms, feature, room, s.weights_ring.filled.at[room], shared)
                done += 1


def _multiply(
    c: GpuConvolution,
    w: WindowBlocks,
    knobs: dict[str, int],
    at: tuple[Any, Any],
    n: Any,
    rest: Any,
    s: _Shared,
) -> None:
    """Sums of this warpgroup's units of block `n`, and their way to memory: `rest` is the bias, or
    none, and the result.
    """
    *bias, out = rest
    block_n, pieces = knobs["block_n"], c.channels // LINE
    each = w.units // WARPGROUPS
    warpgroup = lax.axis_index("warpgroup")
    units = [unit(w, warpgroup * each + u) for u in range(each)]

    def summed(*sums: Any) -> tuple[jax.Array, ...]:
        @pl.loop(jnp.int32(0), jnp.int32(pieces))
        def _(piece: Any) -> None:
            _piece(w, (n * pieces + piece), [u.slab for u in units], sums, s)

        return tuple(each[...] for each in sums)

    sums = [mosaic.ACC((UNIT_ROWS, block_n), jnp.float32)] * each
    made = pl.run_scoped(summed, *sums)
    image, row, column = corner(w, at[0])
    added = column_values(bias[0], at[1] * block_n, block_n) if bias else None
    count = 0
    for place_of, values in zip(units, made, strict=True):
        narrow = finished_sums(values, added, c.epilogue).astype(DTYPES[c.element])
        place = (pl.ds(image + place_of.group * GROUP, GROUP), row + place_of.row)
        across = pl.ds(column + place_of.column, GROUP)
        for start in range(0, block_n, LINE):
            slot = count % STORES
            # The last block's parts have left by now; of this block's, all but one must have.
            mosaic.wait_smem_to_gmem(STORES - 1 if count else 0, wait_read_only=True)
            s.staged[warpgroup, slot] = narrow[:, start : start + LINE]
            mosaic.commit_smem()
            features = pl.ds(at[1] * block_n + start, LINE)
            source = s.stored.at[warpgroup, slot].transpose((1, 0, 2))
            mosaic.copy_smem_to_gmem(source, out.at[(*place, across, features)])
            count += 1


def _piece(w: WindowBlocks, count: Any, slabs: list[Any], sums: Any, s: _Shared) -> None:
    """All taps of 64 channels; a room is given back when the products that read it are done."""
    tap_count, done = count * w.taps, 0
    for number, plane in enumerate(w.planes):
        image_count = count * len(w.planes) + number
        slot = s.images_ring.wait_full(image_count)
        for tap in plane.taps:
            room = s.weights_ring.wait_full(tap_count + done)
            for slab, total in zip(slabs, sums, strict=True):
                start = (slot * (w.groups * w.slabs) + slab + tap.shift) * GROUP
                here = s.read.at[pl.ds(pl.multiple_of(start, GROUP), UNIT_ROWS)]
                s.weights.multiply(total, here, room)
            if tap is not plane.taps[0]:
                mosaic.wgmma_wait(len(slabs) * s.weights.count)
                s.weights_ring.release(tap_count + done - 1)
            done += 1
        mosaic.wgmma_wait(0)
        s.weights_ring.release(tap_count + done - 1)
        s.images_ring.release(image_count)
