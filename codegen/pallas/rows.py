"""`triton_rows`, `triton_streamed_rows` and `triton_long_rows`: softmax and layer norm."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import LOG2_E, struct
from hlotune.codegen.pallas.triton import both, call, inside, load, padded, store
from hlotune.schedules.patterns.gpu import GpuRows
from hlotune.schedules.spaces.gpu.space import next_power_of_two

EPSILON = 1e-5
"""Added to the variance of a layer norm."""


def triton_rows(
    rows: GpuRows,
    knobs: dict[str, int],
    interpret: bool,
    *operands: jax.Array,
    ahead: bool = False,
) -> jax.Array:
    """The kernel of rows over `(rows, columns)`; a layer norm takes a scale and an offset too."""
    result = struct((rows.rows, rows.columns), rows.element)
    blocks = pl.cdiv(rows.rows, knobs["rows"])
    programs = pl.cdiv(blocks, knobs["turns"])
    body = functools.partial(_whole_rows, rows, knobs["rows"], knobs["turns"], programs, ahead)
    return call(body, (programs,), operands, result, knobs, interpret)


def triton_streamed_rows(
    rows: GpuRows, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """The same; a program loads the rows of its next turn before it computes those of this one."""
    return triton_rows(rows, knobs, interpret, *operands, ahead=True)


def _whole_rows(
    r: GpuRows, together: int, turns: int, programs: int, ahead: bool, x: Any, *rest: Any
) -> None:
    """The blocks of one program; it reads what belongs to columns once."""
    *parameters, out = rest
    width = next_power_of_two(r.columns)
    in_columns = inside(jnp.int32(0), width, r.columns)
    columns = padded(r.columns, width)
    read = [load(p.at[columns], in_columns).astype(jnp.float32) for p in parameters]
    first, covered = pl.program_id(0), programs * turns * together == r.rows
    outside = -jnp.inf if r.operation == "softmax" else 0.0

    def place(n: Any) -> tuple[Any, Any]:
        """Where the rows of a turn lie, and which of them there are."""
        start = (first + n * programs) * together
        in_rows = None if covered else start + jnp.arange(together) < r.rows
        at = (pl.ds(start, together), columns)
        return at, both(in_rows, in_columns, (together, width))

    def read_rows(n: Any) -> jax.Array:
        at, mask = place(n)
        return load(x.at[at], mask, outside)

    def compute(n: Any, values: jax.Array) -> None:
        at, mask = place(n)
        made = of_rows(r, values.astype(jnp.float32), in_columns, read)
        store(out.at[at], made.astype(out.dtype), mask)

    def turn(n: Any, nothing: Any) -> Any:
        compute(n, read_rows(n))
        return nothing

    def turn_ahead(n: Any, values: jax.Array) -> jax.Array:
        following = read_rows(n + 1)
        compute(n, values)
        return following

    if ahead:
        last = lax.fori_loop(0, turns - 1, turn_ahead, read_rows(0))
        compute(turns - 1, last)
    elif turns == 1:
        turn(0, None)
    else:
        lax.fori_loop(0, turns, turn, None)


def of_rows(r: GpuRows, values: jax.Array, in_columns: Any, read: list[jax.Array]) -> jax.Array:
    """Results of rows `(rows, columns)` in f32; `read` has what belongs to columns."""
    if r.operation == "softmax":
        powers = jnp.exp2((values - jnp.max(values, axis=1)[:, None]) * LOG2_E)
        return powers * (1 / jnp.sum(powers, axis=1))[:, None]
    scale, offset = read
    return _normalised(values, in_columns, r.columns) * scale[None, :] + offset[None, :]


def _normalised(values: jax.Array, in_columns: Any, columns: int) -> jax.Array:
    """Rows less their means over their standard deviations; what lies outside does not count."""
    centred = values - (jnp.sum(values, axis=1) / columns)[:, None]
    if in_columns is not None:
        centred = jnp.where(in_columns[None, :], centred, 0.0)
    variance = jnp.sum(centred * centred, axis=1) / columns
    return centred * lax.rsqrt(variance + EPSILON)[:, None]


def triton_long_rows(
    rows: GpuRows, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """The same, a row a program and a block of it a step, twice."""
    result = struct((rows.rows, rows.columns), rows.element)
    whole = _long_softmax if rows.operation == "softmax" else _long_layer_norm
    body = functools.partial(whole, rows, knobs["block"])
    return call(body, (rows.rows,), operands, result, knobs, interpret)


def _long_softmax(r: GpuRows, block: int, x: Any, out: Any) -> None:
    row, steps = pl.program_id(0), pl.cdiv(r.columns, block)

    def read(n: jax.Array) -> jax.Array:
        mask = inside(n * block, block, r.columns)
        return load(x.at[row, pl.ds(n * block, block)], mask, -jnp.inf).astype(jnp.float32) * LOG2_E

    def add(n: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        values, (largest, total) = read(n), sums
        larger = jnp.maximum(largest, jnp.max(values))
        return larger, total * jnp.exp2(largest - larger) + jnp.sum(jnp.exp2(values - larger))

    start = (jnp.float32(-3e38), jnp.float32(0.0))
    largest, total = lax.fori_loop(0, steps, add, start)
    scale = 1 / total

    def write(n: jax.Array, nothing: jax.Array) -> jax.Array:
        made = jnp.exp2(read(n) - largest) * scale
        mask = inside(n * block, block, r.columns)
        store(out.at[row, pl.ds(n * block, block)], made.astype(out.dtype), mask)
        return nothing

    lax.fori_loop(0, steps, write, jnp.int32(0))


def _long_layer_norm(r: GpuRows, block: int, x: Any, scale: Any, offset: Any, out: Any) -> None:
    row, steps = pl.program_id(0), pl.cdiv(r.columns, block)

    def read(n: jax.Array, source: Any) -> jax.Array:
        mask = inside(n * block, block, r.columns)
        return load(source(pl.ds(n * block, block)), mask).astype(jnp.float32)

    def element(at: Any) -> Any:
        return x.at[row, at]

    # Sums of differences from the row's first value, so that no large mean cancels.
    pivot = load(x.at[row, jnp.int32(0)]).astype(jnp.float32)

    def add(n: jax.Array, sums: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        mask = inside(n * block, block, r.columns)
        away = read(n, element) - pivot
        away = away if mask is None else jnp.where(mask, away, 0.0)
        return sums[0] + jnp.sum(away), sums[1] + jnp.sum(away * away)

    total, squares = lax.fori_loop(0, steps, add, (jnp.float32(0.0), jnp.float32(0.0)))
    mean = total / r.columns
    inverse = lax.rsqrt(jnp.maximum(squares / r.columns - mean * mean, 0.0) + EPSILON)

    def write(n: jax.Array, nothing: jax.Array) -> jax.Array:
        made = (read(n, element) - pivot - mean) * inverse
        made = made * read(n, lambda at: scale.at[at]) + read(n, lambda at: offset.at[at])
        mask = inside(n * block, block, r.columns)
        store(out.at[row, pl.ds(n * block, block)], made.astype(out.dtype), mask)
        return nothing

    lax.fori_loop(0, steps, write, jnp.int32(0))
