"""What all kernels written for Triton share: calls, masks, and programs in groups."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

Body = Callable[..., None]


def call(
    body: Body,
    grid: tuple[int, ...],
    operands: Sequence[jax.Array],
    result: jax.ShapeDtypeStruct,
    knobs: dict[str, int],
    interpret: bool,
) -> jax.Array:
    """Runs `body(*operand_refs, result_ref)`, all whole in memory, once for each program."""
    return call_for_all(body, grid, operands, (result,), knobs, interpret)[0]


def call_for_all(
    body: Body,
    grid: tuple[int, ...],
    operands: Sequence[jax.Array],
    results: Sequence[jax.ShapeDtypeStruct],
    knobs: dict[str, int],
    interpret: bool,
) -> tuple[jax.Array, ...]:
    """The same with several results: `body(*operand_refs, *result_refs)`."""

    def whole(shape: tuple[int, ...]) -> Any:
        return pl.BlockSpec(shape, lambda *_: (0,) * len(shape))

    called = pl.pallas_call(
        body,
        out_shape=tuple(results),
        grid=grid,
        in_specs=[whole(o.shape) for o in operands],
        out_specs=tuple(whole(r.shape) for r in results),
        compiler_params=plt.CompilerParams(
            num_warps=knobs["warps"], num_stages=knobs.get("stages", 1)
        ),
        interpret=interpret,
    )
    return tuple(called(*operands))


def inside(start: jax.Array, block: int, extent: int) -> jax.Array | None:
    """`(block,)`: which indices from `start` on are below the extent; None where all are."""
    return None if extent % block == 0 else start + jnp.arange(block) < extent


def padded(extent: int, block: int) -> Any:
    """All indices below the extent, as a block that may be longer than it; needs a mask then.

    The start is a zero that JAX does not see through: it refuses slices that it knows to leave an
    array, masked or not.
    """
    return pl.ds(0 if extent == block else pl.program_id(0) * 0, block)


def both(rows: jax.Array | None, columns: jax.Array | None, shape: tuple[int, int]) -> Any:
    """The mask of a block `(rows, columns)`; None where all of it is inside."""
    if rows is None and columns is None:
        return None
    masks = (
        None if rows is None else jnp.broadcast_to(rows[:, None], shape),
        None if columns is None else jnp.broadcast_to(columns[None, :], shape),
    )
    present = [m for m in masks if m is not None]
    return present[0] if len(present) == 1 else present[0] & present[1]


def load(ref: Any, mask: Any = None, other: float = 0.0) -> jax.Array:
    """What a reference to memory holds; `other` where the mask is False."""
    loaded: jax.Array = plt.load(ref, mask=mask, other=None if mask is None else other)
    return loaded


def store(ref: Any, values: jax.Array, mask: Any = None) -> None:
    """Writes where the mask is True."""
    plt.store(ref, values, mask=mask)


def grouped(program: jax.Array, rows: int, columns: int, group: int) -> tuple[jax.Array, jax.Array]:
    """Row and column of a program: `group` rows are gone through together, column by column.

    Programs that run at the same time then read fewer different blocks of the operands.
    """
    if group == 1:
        return lax.div(program, columns), lax.rem(program, columns)
    first = lax.div(program, group * columns) * group
    height = jnp.minimum(rows - first, group)
    within = lax.rem(program, group * columns)
    return first + lax.rem(within, height), lax.div(within, height)
