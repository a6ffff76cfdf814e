"""What a tail makes of a block of sums, before it is stored."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hlotune.codegen.pallas.elements import DTYPES
from hlotune.codegen.pallas.expressions import Evaluation
from hlotune.codegen.pallas.flat_loads import digits, flat_load
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.gpu_tails import Tail

Points = tuple[jax.Array, Any]
"""Numbers of points, and which of them there are, or None for all: two arrays of one extent."""


def tailed(
    tail: Tail, refs: Sequence[Any], sums: jax.Array, rows: Points, columns: Points
) -> jax.Array:
    """The results `(rows, columns)` of sums of that shape.

    Args:
        refs: the tensors that the tail reads, each flat.
        rows: by number along all axes of results but the columns' together.
        columns: by number along the others.
    """
    across, along = tail.axes[: tail.row_axes], tail.axes[tail.row_axes :]
    places = digits(rows[0][:, None], across) | digits(columns[0][None, :], along)
    spans = {a.name: a.extent for a in tail.axes}
    known = {t.name: (ref, t) for ref, t in zip(refs, tail.tensors, strict=True)}
    masks = [
        (across, None if rows[1] is None else rows[1][:, None]),
        (along, None if columns[1] is None else columns[1][None, :]),
    ]

    def load(x: Load) -> jax.Array:
        if x.tensor == tail.sums:
            return sums
        here = [mask for axes, mask in masks if any(a.name in x.axes for a in axes)]
        return flat_load(*known[x.tensor], x, evaluation, spans, here)

    evaluation = Evaluation(places, load)
    made = jnp.broadcast_to(evaluation.value(tail.value), sums.shape)
    return made.astype(DTYPES[tail.dtype])
