"""`tpu_product` and `tpu_rows`: kernels for TPUs, by Pallas's Mosaic backend."""

import functools
import importlib
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hlotune.codegen.pallas.elements import dot, finished, struct
from hlotune.codegen.pallas.rows import of_rows
from hlotune.schedules.patterns.gpu import ELEMENT_BYTES, GpuProduct, GpuRows
from hlotune.schedules.spaces.tpu.blocks import COPIES

mosaic: Any = importlib.import_module("jax.experimental.pallas.tpu")
"""Pallas's own names for TPUs, untyped: they move with each release of JAX."""
LEAST_VMEM_BYTES = 16 << 20
"""What the compiler grants a kernel that does not ask."""


def tpu_product(
    product: GpuProduct, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Multiplies `(batch, m, k)`, `(batch, k, n)` and, with an epilogue, a bias `(n,)`.

    The batch axis is missing where the batch is 1.
    """
    p = product
    m, n, k = (knobs[f"block_{axis}"] for axis in "mnk")
    a, b, *bias = operands
    inputs = [a.reshape(p.batch, p.m, p.k), b.reshape(p.batch, p.k, p.n)]
    specs = [
        pl.BlockSpec((1, m, k), lambda batch, i, j, step: (batch, i, step)),
        pl.BlockSpec((1, k, n), lambda batch, i, j, step: (batch, step, j)),
    ]
    if bias:
        inputs.append(bias[0].reshape(1, p.n))
        specs.append(pl.BlockSpec((1, n), lambda batch, i, j, step: (0, j)))
    held = COPIES * ELEMENT_BYTES[p.element] * (m * k + k * n + m * n) + 4 * m * n
    called = pl.pallas_call(
        functools.partial(_summed, p, k),
        out_shape=struct((p.batch, p.m, p.n), p.element),
        grid=(p.batch, pl.cdiv(p.m, m), pl.cdiv(p.n, n), pl.cdiv(p.k, k)),
        in_specs=specs,
        out_specs=pl.BlockSpec((1, m, n), lambda batch, i, j, step: (batch, i, j)),
        scratch_shapes=[mosaic.VMEM((m, n), jnp.float32)],
        compiler_params=compiler_parameters(
            ("parallel", "parallel", "parallel", "arbitrary"), held
        ),
        interpret=interpret,
    )
    made: jax.Array = called(*inputs)
    return made.reshape((p.batch, p.m, p.n) if p.batch > 1 else (p.m, p.n))


def _summed(p: GpuProduct, block_k: int, a: Any, b: Any, *rest: Any) -> None:
    """One step: adds a block of terms, and stores the sums behind the last one."""
    *bias, out, sums = rest
    step = pl.program_id(3)

    @pl.when(step == 0)
    def _start() -> None:
        sums[...] = jnp.zeros_like(sums)

    left, right = a[0], b[0]
    if p.k % block_k:  # behind the end of an array, blocks hold anything
        left = _before(left, 1, p.k - step * block_k)
        right = _before(right, 0, p.k - step * block_k)
    sums[...] += dot(left, right, p.element)

    @pl.when(step == pl.num_programs(3) - 1)
    def _end() -> None:
        made = finished(sums[...], bias[0][0] if bias else None, p.epilogue)
        out[0] = made.astype(out.dtype)


def _before(values: jax.Array, axis: int, end: Any) -> jax.Array:
    """The values, zero from index `end` of an axis on."""
    inside = lax.broadcasted_iota(jnp.int32, values.shape, axis) < end
    return jnp.where(inside, values, jnp.zeros_like(values))


def tpu_rows(
    rows: GpuRows, knobs: dict[str, int], interpret: bool, *operands: jax.Array
) -> jax.Array:
    """Takes `(rows, columns)`; for a layer norm, with a scale and an offset `(columns,)`."""
    r, together = rows, knobs["rows"]
    x, *parameters = operands
    block = pl.BlockSpec((together, r.columns), lambda i: (i, 0))
    of_columns = pl.BlockSpec((1, r.columns), lambda i: (0, 0))
    held = together * r.columns * (2 * COPIES * ELEMENT_BYTES[r.element] + 4)
    called = pl.pallas_call(
        functools.partial(_rows, r),
        out_shape=struct((r.rows, r.columns), r.element),
        grid=(pl.cdiv(r.rows, together),),
        in_specs=[block, *(of_columns for _ in parameters)],
        out_specs=block,
        compiler_params=compiler_parameters(("parallel",), held),
        interpret=interpret,
    )
    made: jax.Array = called(x, *(p.reshape(1, r.columns) for p in parameters))
    return made


def _rows(r: GpuRows, x: Any, *rest: Any) -> None:
    *parameters, out = rest
    read = [p[0].astype(jnp.float32) for p in parameters]
    out[...] = of_rows(r, x[...].astype(jnp.float32), None, read).astype(out.dtype)


def compiler_parameters(semantics: tuple[str, ...], held_bytes: int) -> Any:
    """What the compiler is told: which axes of the grid wait for one another, and vector memory."""
    most = max(LEAST_VMEM_BYTES, 2 * held_bytes)
    return mosaic.CompilerParams(dimension_semantics=semantics, vmem_limit_bytes=most)
