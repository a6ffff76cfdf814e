"""What the oracle's tests share: inputs, and comparisons with jax and of boxes with the whole."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from hlotune.hlo.frontends import program
from hlotune.hlo.graph import Graph
from hlotune.hlo.oracle import (
    Oracle,
    compare,
    evaluate,
)
from hlotune.hlo.oracle.boxes import slices

Function = Callable[..., Any]
Array = NDArray[Any]
lax = jax.lax


def graph_of(function: Function, arguments: Sequence[Array]) -> Graph:
    return program.load(function, *arguments).graph


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def small(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def mismatches(
    function: Function, *arguments: Array, factor: float = 1.0, exact: bool = False
) -> list[str]:
    references = evaluate(graph_of(function, arguments), arguments)
    outputs = jax.tree.leaves(jax.jit(function)(*arguments))
    found = [
        compare(r, np.asarray(o), factor=factor, exact=exact)
        for r, o in zip(references, outputs, strict=True)
    ]
    return [str(m) for m in found if m is not None]


def regions_equal_the_whole(function: Function, *arguments: Array, limit: int = 40) -> None:
    graph = graph_of(function, arguments)
    references, oracle = evaluate(graph, arguments), Oracle(graph, arguments)
    rng = np.random.default_rng(0)
    for k, full in enumerate(references):
        for box in oracle.regions_to_check(k, rng, limit):
            part = oracle.region(k, box)
            np.testing.assert_allclose(part.value, full.value[slices(box)], rtol=1e-12, atol=1e-12)
            if full.bound is not None and part.bound is not None:
                np.testing.assert_allclose(part.bound, full.bound[slices(box)], rtol=1e-6)


def conv(x: Any, w: Any, padding: Any = "SAME") -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
