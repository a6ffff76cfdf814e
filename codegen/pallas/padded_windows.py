"""`triton_padded_windows`: images of few channels are copied into ones whose windows are aligned.

Three channels of 2 bytes can be read two bytes at a time only.  XLA copies the images once, with
zeros around them and for channels up to a power of two; then a row of a window is one aligned run
of memory, and no position is masked.
"""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import dot, finished, struct
from hlotune.codegen.pallas.triton import both, call, grouped, inside, load, store
from hlotune.schedules.patterns.gpu import GpuConvolution
from hlotune.schedules.spaces.gpu.convolutions import padded_run

WIDE = 8
"""Elements to which rows of a copied image are aligned."""


@dataclass(frozen=True)
class _Padded:
    """Extents of copied images; a step takes `rows_a_step` rows of a window."""

    convolution: GpuConvolution
    rows_a_step: int

    @property
    def run(self) -> int:
        """Elements of one row of a window."""
        return padded_run(self.convolution)

    @property
    def taps(self) -> int:
        return self.run // self.channels

    @property
    def channels(self) -> int:
        return 1 << (self.convolution.channels - 1).bit_length()

    @property
    def steps(self) -> int:
        return -(-self.convolution.window // self.rows_a_step)

    @property
    def height(self) -> int:
        return self._reached(self.steps * self.rows_a_step)

    @property
    def width(self) -> int:
        return -(-self._reached(self.taps) // WIDE) * WIDE

    def _reached(self, taps: int) -> int:
        """Rows or columns that windows of so many taps reach, padding included."""
        c = self.convolution
        return max(c.size + 2 * c.padding, (c.out - 1) * c.stride + taps)

    def images(self, images: jax.Array) -> jax.Array:
        c = self.convolution
        rows, columns = ((c.padding, e - c.size - c.padding) for e in (self.height, self.width))
        return jnp.pad(images, ((0, 0), rows, columns, (0, self.channels - c.channels)))


def triton_padded_windows(
    convolution: GpuConvolution, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Takes images `(batch, size, size, channels)` and weights
    `(window, window, channels, features)`.
    """
    c = convolution
    p = _Padded(c, knobs["block_k"] // padded_run(c))
    images, weights, *bias = operands
    copied = p.images(images).reshape(-1), weights.reshape(c.terms, c.features), *bias
    rows, columns = pl.cdiv(c.positions, knobs["block_m"]), pl.cdiv(c.features, knobs["block_n"])
    result = struct((c.positions, c.features), c.element)
    body = functools.partial(_block, p, knobs)
    made = call(body, (rows * columns,), copied, result, knobs, interpret)
    return made.reshape(c.batch, c.out, c.out, c.features)


def _block(p: _Padded, knobs: dict[str, int], images: Any, weights: Any, *rest: Any) -> None:
    *bias, out = rest
    c, bm, bn, bk = p.convolution, knobs["block_m"], knobs["block_n"], knobs["block_k"]
    rows, columns = pl.cdiv(c.positions, bm), pl.cdiv(c.features, bn)
    i, j = grouped(pl.program_id(0), rows, columns, knobs["group_m"])
    at_n, in_n = pl.ds(j * bn, bn), inside(j * bn, bn, c.features)
    in_m = inside(i * bm, bm, c.positions)
    corners, terms = _corners(p, i * bm + jnp.arange(bm)), _terms(p, bk)
    mask = both(in_m, None, (bm, bk))

    def step(n: jax.Array, sums: jax.Array) -> jax.Array:
        first = n * (p.rows_a_step * p.width * p.channels)
        left = load(images.at[corners[:, None] + (terms + first)[None, :]], mask)
        known, there = _known(p, n, bk)
        features = j * bn + jnp.arange(bn)
        right = load(weights.at[known[:, None], features[None, :]], both(there, in_n, (bk, bn)))
        return sums + dot(left, right, c.element)

    sums = lax.fori_loop(0, p.steps, step, jnp.zeros((bm, bn), jnp.float32))
    if bias:
        sums = finished(sums, load(bias[0].at[at_n], in_n), c.epilogue)
    store(out.at[pl.ds(i * bm, bm), at_n], sums.astype(out.dtype), both(in_m, in_n, (bm, bn)))


def _corners(p: _Padded, position: jax.Array) -> jax.Array:
    """Where the window of each position begins in the copied images."""
    c = p.convolution
    image, within = lax.div(position, c.out * c.out), lax.rem(position, c.out * c.out)
    y, x = lax.div(within, c.out), lax.rem(within, c.out)
    row = image * p.height + y * c.stride
    return row * (p.width * p.channels) + x * (c.stride * p.channels)


def _terms(p: _Padded, count: int) -> jax.Array:
    """Where the terms of a step lie behind a corner."""
    terms = jnp.arange(count)
    return lax.div(terms, p.run) * (p.width * p.channels) + lax.rem(terms, p.run)


def _known(p: _Padded, n: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Rows of the weights that belong to the terms of step `n`, and which terms have one."""
    c, terms = p.convolution, jnp.arange(count)
    y = n * p.rows_a_step + lax.div(terms, p.run)
    within = lax.rem(terms, p.run)
    x, channel = lax.div(within, p.channels), lax.rem(within, p.channels)
    there = (y < c.window) & (x < c.window) & (channel < c.channels)
    return (y * c.window + x) * c.channels + channel, there
