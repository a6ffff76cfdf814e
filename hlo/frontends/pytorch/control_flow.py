"""Branches: graphs inside of a graph, of which a value chooses one."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Value, is_tensor, rows

Branch = Callable[..., list[Value]]


def _cond(
    pred: Value, true_graph: Branch, false_graph: Branch, operands: Sequence[Value] = ()
) -> Any:
    if not is_tensor(pred):
        return tuple((true_graph if pred else false_graph)(*operands))
    branches = (_traced(branch, operands) for branch in (true_graph, false_graph))
    return lax.cond(jnp.reshape(pred, ()), *branches)


def _traced(branch: Branch, operands: Sequence[Value]) -> Callable[[], tuple[jax.Array, ...]]:
    """A branch that takes nothing, so that sizes among its operands stay numbers inside of it."""
    return lambda: tuple(jnp.asarray(v) for v in branch(*operands))


ROWS = rows(cond=_cond)
"""By names of `torch.ops.higher_order`, which gives all inputs by position."""
