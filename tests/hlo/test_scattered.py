"""Scatters of one element a row are comparisons, and mean the same; others stay scatters."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.calling.callable import jitted
from hlotune.hlo.frontends.program import load

X = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
AT = np.array([0, 6, 3, -1, 9], np.int32)
NEW = np.arange(5, dtype=np.float32) + 10
ONE_A_ROW = {
    "update_window_dims": (), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,),
    "operand_batching_dims": (0,), "scatter_indices_batching_dims": (0,),
}  # fmt: skip
Function = Callable[..., Any]


def scattered(how: Callable[..., Any], **changes: Any) -> Function:
    numbers = lax.ScatterDimensionNumbers(**{**ONE_A_ROW, **changes})
    return lambda x, at, new: how(x, at[:, None], new, numbers, mode="drop")


def gradient(x: Any, at: Any, new: Any) -> Any:
    def chosen(x: Any) -> Any:
        return (jnp.take_along_axis(x, at[:, None], 1)[:, 0] * new).sum()

    return jax.grad(chosen)(x)


SAME: dict[str, Function] = {
    "added": scattered(lax.scatter_add),
    "set": scattered(lax.scatter),
    "of take_along_axis": gradient,
}
OTHERS: dict[str, Function] = {
    "the largest stays": scattered(lax.scatter_max),
    "several a row": lambda x, at, new: x.at[:, at].add(new),
    "rows of an embedding": lambda x, at, new: x.at[at].add(new[:, None]),
}


@pytest.mark.parametrize("name", SAME)
def test_one_element_a_row_is_compared_with_its_place(name: str) -> None:
    program = load(SAME[name], X, AT, NEW)
    assert not any("scatter" in op.name for op in program.graph.ops)
    wanted = SAME[name](X, AT, NEW)
    np.testing.assert_array_equal(np.asarray(jitted(program)(X, AT, NEW)), wanted)


@pytest.mark.parametrize("name", OTHERS)
def test_other_scatters_stay_what_they_are(name: str) -> None:
    program = load(OTHERS[name], X, AT, NEW)
    assert any(op.name == "stablehlo.scatter" for op in program.graph.ops)
