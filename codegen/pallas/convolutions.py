"""`triton_convolution` and `triton_merged_taps`: convolutions as products of windows in place."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import dot, finished, struct
from hlotune.codegen.pallas.flat_loads import flat
from hlotune.codegen.pallas.tails import tailed
from hlotune.codegen.pallas.triton import both, call, grouped, inside, load, store
from hlotune.schedules.patterns.gpu import GpuConvolution


def triton_convolution(
    convolution: GpuConvolution, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Takes images `(batch, size, size, channels)`, weights
    `(window, window, channels / groups, features)` and, with an epilogue, a bias `(features,)`.

    A step of the sum is one tap and `block_k` channels of a group.
    """
    return _convolved(convolution, knobs, interpret, False, operands)


def triton_merged_taps(
    convolution: GpuConvolution, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """The same, where a step is one row of the window: its taps with all channels."""
    return _convolved(convolution, knobs, interpret, True, operands)


def _convolved(
    c: GpuConvolution,
    knobs: dict[str, int],
    interpret: bool,
    merged: bool,
    operands: tuple[jax.Array, ...],
) -> jax.Array:
    images, weights, *bias = operands
    rows = pl.cdiv(c.positions, knobs["block_m"])
    columns = pl.cdiv(c.group_features, knobs["block_n"])
    result = struct((c.positions, c.features), c.tail.dtype if c.tail else c.element)
    body = functools.partial(_block, c, knobs, merged)
    more = map(flat, bias) if c.tail else bias
    inputs = (images.reshape(-1), weights.reshape(c.terms, c.features), *more)
    made = call(body, (rows * columns, c.groups), inputs, result, knobs, interpret)
    return made.reshape(c.batch, c.out, c.out, c.features)


def _block(
    c: GpuConvolution, knobs: dict[str, int], merged: bool, images: Any, weights: Any, *rest: Any
) -> None:
    *bias, out = rest
    bm, bn, bk = knobs["block_m"], knobs["block_n"], knobs["block_k"]
    rows, columns = pl.cdiv(c.positions, bm), pl.cdiv(c.group_features, bn)
    i, j = grouped(pl.program_id(0), rows, columns, knobs["group_m"])
    group = pl.program_id(1) if c.groups > 1 else 0
    in_n = inside(j * bn, bn, c.group_features)
    at_n = pl.ds(group * c.group_features + j * bn, bn)
    position = i * bm + jnp.arange(bm)
    in_m = inside(i * bm, bm, c.positions)
    image, y, x = _corner(c, position)
    row_terms = c.window * c.channels if merged else c.group_channels
    blocks = pl.cdiv(row_terms, bk)
    taps = c.window if merged else c.window * c.window

    def step(n: jax.Array, sums: jax.Array) -> jax.Array:
        tap, term = (n, 0) if blocks == 1 else (lax.div(n, blocks), lax.rem(n, blocks) * bk)
        dy, dx = (tap, 0) if merged else (lax.div(tap, c.window), lax.rem(tap, c.window))
        dy, dx = dy * c.dilation, dx * c.dilation
        terms = term + jnp.arange(bk)
        offset = ((image * c.size + y + dy) * c.size + x + dx) * c.channels
        offset = offset + group * c.group_channels
        mask = _read(c, merged, y + dy, x + dx, terms, row_terms, (bm, bk))
        if in_m is not None:
            mask = mask & in_m[:, None]
        left = load(images.at[offset[:, None] + terms[None, :]], mask)
        at_k = pl.ds(tap * row_terms + term, bk)
        in_k = None if row_terms % bk == 0 else terms < row_terms
        right = load(weights.at[at_k, at_n], both(in_k, in_n, (bk, bn)))
        return sums + dot(left, right, c.element)

    sums = lax.fori_loop(0, taps * blocks, step, jnp.zeros((bm, bn), jnp.float32))
    if c.tail is not None:
        features = group * c.group_features + j * bn + jnp.arange(bn)
        sums = tailed(c.tail, bias, sums, (position, in_m), (features, in_n))
    elif bias:
        sums = finished(sums, load(bias[0].at[at_n], in_n), c.epilogue)
    store(out.at[pl.ds(i * bm, bm), at_n], sums.astype(out.dtype), both(in_m, in_n, (bm, bn)))


def _corner(c: GpuConvolution, position: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Image, row and column where the window of each position begins; padding is below zero."""
    image = lax.div(position, c.out * c.out)
    within = lax.rem(position, c.out * c.out)
    y, x = lax.div(within, c.out), lax.rem(within, c.out)
    return image, y * c.stride - c.padding, x * c.stride - c.padding


def _read(
    c: GpuConvolution,
    merged: bool,
    y: jax.Array,
    x: jax.Array,
    terms: jax.Array,
    row_terms: int,
    shape: tuple[int, int],
) -> jax.Array:
    """Which elements `(positions, terms)` of the windows lie in the image."""
    in_row = (y >= 0) & (y < c.size)
    if not merged:
        rows = in_row & (x >= 0) & (x < c.size)
        mask = jnp.broadcast_to(rows[:, None], shape)
        return mask if row_terms % shape[1] == 0 else mask & (terms < row_terms)[None, :]
    along = x[:, None] * c.channels + terms[None, :]
    inside_row = (along >= 0) & (along < c.size * c.channels)
    return inside_row & in_row[:, None] & (terms < row_terms)[None, :]
