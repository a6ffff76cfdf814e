"""Tensors read at any affine place: the elements of flat memory that a load's index names."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.codegen.pallas.expressions import Evaluation, converted
from hlotune.codegen.pallas.triton import load
from hlotune.schedules.ir.compute import Axis, Tensor
from hlotune.schedules.ir.expr import Load


def flat_load(
    ref: Any,
    tensor: Tensor,
    x: Load,
    evaluation: Evaluation,
    spans: Mapping[str, int],
    masks: Sequence[Any],
) -> jax.Array:
    """The values of a load at the points of an evaluation, in the type that they are computed in.

    Args:
        ref: all of the tensor, flat.
        spans: the extents of axes; where an index may leave its dimension, places are checked.
        masks: which points there are, or None for all.
    """
    offset: jax.Array = jnp.int32(0)
    masks = list(masks)
    for d, (e, stride) in enumerate(zip(x.index, tensor.strides, strict=True)):
        place, divisor = evaluation.place(e), x.divisor(d)
        low, high = e.bounds({a: (0, spans[a] - 1) for a in e.coefficients})
        if divisor != 1:
            masks.append(place % divisor == 0)
            place = place // divisor
        if low < 0 or high // divisor >= tensor.shape[d]:
            masks.append((place >= 0) & (place < tensor.shape[d]))
        offset = offset + place * stride
    return converted(load(ref.at[offset], all_of(masks, offset.shape), x.outside), x.dtype)


def flat(x: jax.Array) -> jax.Array:
    """An operand as `flat_load` reads it: truths are bytes, for kernels read no single bits."""
    return (x.astype(jnp.int8) if x.dtype == jnp.bool_ else x).reshape(-1)


def all_of(masks: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Where all masks are true; None where there are none."""
    found = [jnp.broadcast_to(m, shape) for m in masks if m is not None]
    made: Any = None
    for mask in found:
        made = mask if made is None else made & mask
    return made


def digits(points: jax.Array, axes: Sequence[Axis]) -> dict[str, jax.Array]:
    """The points of axes by their number in row-major order."""
    found = dict[str, jax.Array]()
    for n, a in enumerate(axes):
        below = prod(b.extent for b in axes[n + 1 :])
        digit = points if below == 1 else lax.div(points, jnp.int32(below))
        found[a.name] = digit if n == 0 else lax.rem(digit, jnp.int32(a.extent))
    return found
