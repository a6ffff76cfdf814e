"""Gathering, scattering, and the largest values of an axis."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.onnx.nodes import Node, Operator, Value, axis_of, is_known


def _from_front(places: Value, extent: int) -> Any:
    """Indices without negative ones, which count from behind."""
    if is_known(places):
        return np.where(places < 0, places + extent, places)
    return jnp.where(places < 0, places + extent, places)


def _gather(node: Node, x: Value, places: Value) -> Value:
    axis = axis_of(node.get("axis", 0), x.ndim)
    places = _from_front(places, x.shape[axis])
    if is_known(places) and places.ndim == 0:
        return lax.index_in_dim(jnp.asarray(x), int(places), axis, keepdims=False)
    return jnp.take(jnp.asarray(x), jnp.asarray(places), axis, mode="clip")


def _gather_elements(node: Node, x: Value, places: Value) -> Value:
    axis = axis_of(node.get("axis", 0), x.ndim)
    places = jnp.asarray(_from_front(places, x.shape[axis]))
    at = _grid(places, axis)
    return jnp.asarray(x).at[at].get(mode="clip")


def _grid(places: jax.Array, axis: int) -> tuple[jax.Array, ...]:
    """Coordinates of elements that differ from their own place along one axis."""
    return tuple(
        places if n == axis else lax.broadcasted_iota(places.dtype, places.shape, n)
        for n in range(places.ndim)
    )


def _coordinates(places: Value, extents: tuple[int, ...]) -> tuple[jax.Array, ...]:
    """The last axis of indices, as one array for each axis that they go along."""
    return tuple(
        jnp.asarray(_from_front(places[..., n], extents[n])) for n in range(places.shape[-1])
    )


def _gather_nd(node: Node, x: Value, places: Value) -> Value:
    batch = node.get("batch_dims", 0)

    def gathered(x: jax.Array, places: jax.Array) -> jax.Array:
        return x.at[_coordinates(places, x.shape)].get(mode="clip")

    for _ in range(batch):
        gathered = jax.vmap(gathered)
    return gathered(jnp.asarray(x), jnp.asarray(places))


def _updated(node: Node, x: Value, at: tuple[jax.Array, ...], updates: Value) -> Value:
    """The input with other values at some places, or with values merged into them."""
    target: Any = jnp.asarray(x).at[at]
    how = node.get("reduction", "none")
    methods = {
        "none": target.set, "add": target.add, "mul": target.multiply, "max": target.max,
        "min": target.min,
    }  # fmt: skip
    if how not in methods:
        raise node.refusal(f"with reduction {how!r}", "the model is damaged: write it again")
    return methods[how](jnp.asarray(updates), mode="drop")


def _scatter_elements(node: Node, x: Value, places: Value, updates: Value) -> Value:
    axis = axis_of(node.get("axis", 0), x.ndim)
    at = _grid(jnp.asarray(_from_front(places, x.shape[axis])), axis)
    return _updated(node, x, at, updates)


def _scatter_nd(node: Node, x: Value, places: Value, updates: Value) -> Value:
    return _updated(node, x, _coordinates(places, x.shape), updates)


def _tensor_scatter(node: Node, cache: Value, update: Value, begins: Value = None) -> Value:
    """Writes into a cache from a place on that each row of the batch has its own."""
    cache, update = jnp.asarray(cache), jnp.asarray(update)
    axis = axis_of(node.get("axis", -2), cache.ndim)
    begins = jnp.zeros(cache.shape[0], np.int64) if begins is None else jnp.asarray(begins)
    first = begins.reshape(-1, *[1] * (cache.ndim - 1))
    places = first + lax.broadcasted_iota(begins.dtype, update.shape, axis)
    if node.get("mode", "linear") == "circular":
        places = places % cache.shape[axis]
    return cache.at[_grid(places, axis)].set(update, mode="drop")


def _top(node: Node, x: Value, count: Any = None) -> Value:
    """Values and indices, of equal ones the first comes first."""
    x = jnp.asarray(x)
    axis = axis_of(node.get("axis", -1), x.ndim)
    wanted = node.require("k") if count is None else int(count.reshape(-1)[0])
    if wanted > x.shape[axis]:
        raise node.refusal(f"of {wanted} among {x.shape[axis]}", "the model is damaged")
    order = jnp.argsort(x, axis, stable=True, descending=bool(node.get("largest", 1)))
    places = lax.slice_in_dim(order, 0, wanted, axis=axis)
    return jnp.take_along_axis(x, places, axis), places.astype(np.int64)


ROWS = {
    "Gather": Operator(_gather),
    "GatherElements": Operator(_gather_elements),
    "GatherND": Operator(_gather_nd),
    "Scatter": Operator(_scatter_elements),
    "ScatterElements": Operator(_scatter_elements),
    "ScatterND": Operator(_scatter_nd),
    "TensorScatter": Operator(_tensor_scatter),
    "TopK": Operator(_top, {1: "count"}),
}
