"""Kernels that have no compute are refused, with the reason."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from hlotune.hlo.canonical import graph_of
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.schedules.errors import UnsupportedKernel
from tests.hlo.test_to_compute import compute, graph_of_text, integers

REFUSED: dict[str, tuple[Callable[..., Any], Sequence[tuple[int, ...]], str]] = {
    "two convolutions": (
        lambda x, w: lax.conv(lax.conv(x, w, (1, 1), "SAME"), w, (1, 1), "SAME"),
        [(1, 4, 5, 5), (4, 4, 1, 1)],
        "expected one convolution, or dot_generals alone, got 2 contractions",
    ),
    "a sort": (lambda x, w: jnp.sort(x @ w), [(3, 4), (4, 4)], "stablehlo.sort"),
    "a sum": (lambda x, w: (x @ w).sum(0), [(3, 4), (4, 4)], "got stablehlo.reduce"),
    "a sum before": (lambda x, w: x.sum(0) @ w, [(3, 4), (4, 4)], "got stablehlo.reduce"),
    "an empty result": (lambda x, w: x @ w, [(0, 3), (3, 4)], "got an empty one"),
    "something of nothing": (
        lambda x, w: jnp.pad(x, ((1, 1), (0, 0))) @ w,
        [(0, 3), (3, 4)],
        "got stablehlo.pad of an empty tensor",
    ),
    "two readings": (lambda x, w: (y := x @ w) + y.T, [(3, 3), (3, 3)], r"read \[p0, p1\]"),
    "a reshape across": (
        lambda x, w: (x @ w).reshape(3, 8),
        [(4, 4), (4, 6)],
        "affine after splitting axes",
    ),
    "a broadcast behind": (
        lambda x, w: jnp.broadcast_to((x @ w)[:, :, None], (3, 4, 5)),
        [(3, 4), (4, 4)],
        "got stablehlo.broadcast_in_dim",
    ),
    "predicates": (
        lambda x, w: jnp.dot(x > 0, w > 0, preferred_element_type=bool),
        [(3, 4), (4, 4)],
        "of i1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_compute_is_refused_with_the_reason(name: str) -> None:
    function, shapes, message = REFUSED[name]
    with pytest.raises(UnsupportedKernel, match=message):
        compute(function, *(integers(*s) for s in shapes))


def test_a_reshape_of_what_is_read_at_places_that_data_decides_is_refused() -> None:
    def rows(table: Any, places: Any) -> Any:
        return table.reshape(-1)[places] + 1

    places = np.arange(4, dtype=np.int32)
    site = sites(load(rows, np.zeros((2, 17), np.float32), places))[0]
    with pytest.raises(UnsupportedKernel, match="data decides, got a reshape of them"):
        compute_of(graph_of(site.kernel))


def test_a_value_doubled_again_and_again_is_refused() -> None:
    def grown(x: Any, w: Any) -> Any:
        y = x @ w
        for _ in range(14):
            y = y + jnp.tanh(y)
        return y

    with pytest.raises(UnsupportedKernel, match="at most 4096 operations"):
        compute(grown, integers(3, 4), integers(4, 6))


def test_a_comparison_in_total_order_is_refused() -> None:
    program = """
      func.func @main(%x: tensor<3x4xf32>, %w: tensor<4x5xf32>) -> tensor<3x5xf32> {
        %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
          : (tensor<3x4xf32>, tensor<4x5xf32>) -> tensor<3x5xf32>
        %0 = stablehlo.constant dense<0.0> : tensor<3x5xf32>
        %below = stablehlo.compare LT, %y, %0, TOTALORDER
          : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xi1>
        %z = stablehlo.select %below, %0, %y : tensor<3x5xi1>, tensor<3x5xf32>
        return %z : tensor<3x5xf32>
      }"""
    with pytest.raises(UnsupportedKernel, match="of numbers, got one in total order"):
        compute_of(graph_of_text(program))


def test_a_large_constant_is_refused() -> None:
    table = np.arange(100, dtype=np.float32).reshape(10, 10)
    with pytest.raises(UnsupportedKernel, match=r"marked hlotune\.constant"):
        compute(lambda x, w: x @ w + table, integers(10, 4), integers(4, 10))
