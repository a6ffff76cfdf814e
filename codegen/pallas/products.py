"""`triton_product`: a block of a matrix product a program."""

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
from hlotune.schedules.patterns.gpu import GpuProduct


def triton_product(
    product: GpuProduct, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """The product of `(batch, m, k)` and `(batch, k, n)`; with an epilogue also of a bias `(n,)`,
    with a tail of the tensors that it reads.

    The batch axis is missing where the batch is 1.  With `split_k` parts, each program sums a part
    of k, and the parts are added up by XLA.
    """
    p, parts = product, knobs["split_k"]
    a, b, *bias = operands
    a, b = a.reshape(p.batch, p.m, p.k), b.reshape(p.batch, p.k, p.n)
    rows, columns = pl.cdiv(p.m, knobs["block_m"]), pl.cdiv(p.n, knobs["block_n"])
    stored = p.tail.dtype if p.tail else p.element
    partial = struct((parts * p.batch, p.m, p.n), "f32" if parts > 1 else stored)
    body = functools.partial(_block, p, knobs)
    more = map(flat, bias) if p.tail else bias
    inputs = (a, b) if parts > 1 else (a, b, *more)
    made = call(body, (rows * columns, p.batch * parts), inputs, partial, knobs, interpret)
    if parts > 1:
        made = finished(made.sum(axis=0), bias[0] if bias else None, p.epilogue).astype(a.dtype)
    return made.reshape((p.batch, p.m, p.n) if p.batch > 1 else (p.m, p.n))


def _block(p: GpuProduct, knobs: dict[str, int], a: Any, b: Any, *rest: Any) -> None:
    """One program: a block of the result, over all of k or a part of it."""
    *more, out = rest
    bm, bn, bk = knobs["block_m"], knobs["block_n"], knobs["block_k"]
    batch_or_part = pl.program_id(1)
    batch = batch_or_part if p.batch > 1 else jnp.int32(0)
    rows, columns = pl.cdiv(p.m, bm), pl.cdiv(p.n, bn)
    i, j = grouped(pl.program_id(0), rows, columns, knobs["group_m"])
    at_m, at_n = pl.ds(i * bm, bm), pl.ds(j * bn, bn)
    in_m, in_n = inside(i * bm, bm, p.m), inside(j * bn, bn, p.n)
    steps = pl.cdiv(p.k, bk) // knobs["split_k"]
    first = batch_or_part * steps if p.batch == 1 else 0

    def step(n: jax.Array, sums: jax.Array) -> jax.Array:
        k = (first + n) * bk
        in_k = inside(k, bk, p.k)
        left = load(a.at[batch, at_m, pl.ds(k, bk)], both(in_m, in_k, (bm, bk)))
        right = load(b.at[batch, pl.ds(k, bk), at_n], both(in_k, in_n, (bk, bn)))
        return sums + dot(left, right, p.element)

    sums = lax.fori_loop(0, steps, step, jnp.zeros((bm, bn), jnp.float32))
    if p.tail is not None:
        rows_of = batch * p.m + i * bm + jnp.arange(bm)
        sums = tailed(p.tail, more, sums, (rows_of, in_m), (j * bn + jnp.arange(bn), in_n))
    elif more:
        sums = finished(sums, load(more[0].at[at_n], in_n), p.epilogue)
    store(out.at[batch_or_part, at_m, at_n], sums.astype(out.dtype), both(in_m, in_n, (bm, bn)))
