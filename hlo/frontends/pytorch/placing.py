"""Writing at places that are given, and values in order of size."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.pytorch.types import Refusal, Value, rows


def _at(index: Value, dim: int) -> tuple[Any, ...]:
    """Coordinates of elements that differ from their own place along one axis."""
    axis = dim % max(index.ndim, 1)
    return tuple(
        index if n == axis else lax.broadcasted_iota(index.dtype, index.shape, n)
        for n in range(index.ndim)
    )


def _cut(source: Value, index: Value) -> Any:
    """The part of the source that has an index."""
    return jnp.asarray(source)[tuple(slice(extent) for extent in index.shape)]


def _scatter(
    self: Value, dim: int, index: Value, src: Value = None, value: Value = None, reduce: str = ""
) -> Any:
    x, index = jnp.asarray(self), jnp.asarray(index)
    updates = jnp.asarray(value, x.dtype) if src is None else _cut(src, index)
    at = x.at[_at(index, dim)]
    if reduce:
        return at.add(updates) if reduce == "add" else at.multiply(updates)
    return at.set(updates)


def _scatter_add(self: Value, dim: int, index: Value, src: Value) -> Any:
    index = jnp.asarray(index)
    return jnp.asarray(self).at[_at(index, dim)].add(_cut(src, index))


def _scatter_reduce(
    self: Value, dim: int, index: Value, src: Value, reduce: str, include_self: bool = True
) -> Any:
    if reduce not in ("sum", "prod", "amax", "amin") or not include_self:
        raise Refusal(
            f"scatter_reduce of {reduce} with include_self={include_self}: give sum, prod, amax or "
            "amin with include_self=True"
        )
    index = jnp.asarray(index)
    at, updates = jnp.asarray(self).at[_at(index, dim)], _cut(src, index)
    merges: dict[str, Any] = {
        "sum": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min,
    }  # fmt: skip
    return merges[reduce](updates)


def _index_put(self: Value, indices: Any, values: Value, accumulate: bool = False) -> Any:
    x = jnp.asarray(self)
    if any(i is not None and i.dtype == np.bool_ for i in indices):
        (mask, *others), value = indices, jnp.asarray(values)
        if others or accumulate or value.size != 1:
            raise Refusal("writing several values where booleans say: use where")
        shown = jnp.reshape(mask, (*mask.shape, *(1,) * (x.ndim - mask.ndim)))
        return jnp.where(shown, value.reshape(()).astype(x.dtype), x)
    at = x.at[tuple(slice(None) if i is None else jnp.asarray(i) for i in indices)]
    return at.add(values) if accumulate else at.set(values)


def _along(self: Value, dim: int, index: Any) -> Any:
    where: list[Any] = [slice(None)] * self.ndim
    where[dim] = index
    return jnp.asarray(self).at[tuple(where)]


def _index_add(self: Value, dim: int, index: Value, source: Value, alpha: Value = 1) -> Any:
    return _along(self, dim, index).add(jnp.asarray(source) * alpha)


def _index_copy(self: Value, dim: int, index: Value, source: Value) -> Any:
    return _along(self, dim, index).set(source)


def _select_scatter(self: Value, src: Value, dim: int, index: int) -> Any:
    return _along(self, dim, index).set(src)


def _slice_scatter(
    self: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Any:  # fmt: skip
    return _along(self, dim, slice(start, end, step)).set(src)


def _order(x: Any, dim: int, descending: bool) -> Any:
    return jnp.argsort(x, axis=dim, stable=True, descending=descending)


def _sort(self: Value, dim: int = -1, descending: bool = False, stable: Value = None) -> Any:
    x = jnp.asarray(self)
    order = _order(x, dim, descending)
    return jnp.take_along_axis(x, order, dim), order.astype(np.int64)


def _argsort(self: Value, dim: int = -1, descending: bool = False, stable: Value = None) -> Any:
    return _order(jnp.asarray(self), dim, descending).astype(np.int64)


def _topk(self: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    x = jnp.asarray(self)
    order = lax.slice_in_dim(_order(x, dim, largest), 0, k, axis=dim % x.ndim)
    return jnp.take_along_axis(x, order, dim), order.astype(np.int64)


def _diff(
    self: Value, n: int = 1, dim: int = -1, prepend: Value = None, append: Value = None
) -> Any:
    given = {"prepend": prepend, "append": append}
    return jnp.diff(self, n, dim, **{k: v for k, v in given.items() if v is not None})


def _movedim(self: Value, source: Any, destination: Any) -> Any:
    return jnp.moveaxis(jnp.asarray(self), source, destination)


def _broadcast_to(self: Value, size: Any) -> Any:
    return jnp.broadcast_to(self, size)


def _diagonal(self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(self, offset, dim1, dim2)


def _outer(self: Value, vec2: Value) -> Any:
    return jnp.outer(self, vec2)


def _embedding_bag(
    weight: Value, indices: Value, offsets: Value, scale_grad_by_freq: bool = False, mode: int = 0,
    sparse: bool = False, per_sample_weights: Value = None, include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:  # fmt: skip
    """Sums, means (mode 1) or maxima (2) of rows, from one offset to the next, but for rows of a
    padding that is not negative; None for what only its gradient reads."""
    weight, indices, offsets = (jnp.asarray(v) for v in (weight, indices, offsets))
    bags, places = offsets.shape[0] - include_last_offset, jnp.arange(indices.shape[0])
    bag = jnp.searchsorted(offsets[:bags], places, side="right") - 1
    given = weight[indices]
    if per_sample_weights is not None:
        given = given * jnp.asarray(per_sample_weights)[:, None]
    counts = jnp.ones(indices.shape, weight.dtype)
    if padding_idx >= 0:
        counts = (indices != padding_idx).astype(weight.dtype)
    count = jax.ops.segment_sum(counts, bag, bags)[:, None]
    if mode == 2:
        given = jnp.where(counts[:, None] > 0, given, -jnp.inf)
        return jnp.where(count > 0, jax.ops.segment_max(given, bag, bags), 0), None, None, None
    if include_last_offset and padding_idx < 0 and weight.dtype.itemsize <= 4:
        # PyTorch sums to the last offset then, and else takes all that is left to the last bag
        bag = jnp.where(places < offsets[-1], bag, bags)
    made = jax.ops.segment_sum(jnp.where(counts[:, None] > 0, given, 0), bag, bags)
    return made / jnp.maximum(count, 1) if mode == 1 else made, None, None, None


def _bag_counting_from_the_end(weight: Value, padding_idx: int | None = None, **inputs: Any) -> Any:
    """The same, where a negative padding is a row counted from the last, and None is no padding."""
    if padding_idx is None:
        return _embedding_bag(weight, **inputs)
    return _embedding_bag(weight, padding_idx=padding_idx % weight.shape[0], **inputs)


def _searchsorted(
    sorted_sequence: Value, self: Value, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Value = None,
) -> Any:  # fmt: skip
    if jnp.ndim(sorted_sequence) != 1 or sorter is not None:
        raise Refusal("searchsorted in several rows, or with an order: search in one sorted row")
    side = side or ("right" if right else "left")
    found = jnp.searchsorted(jnp.asarray(sorted_sequence), jnp.asarray(self), side=side)
    return found.astype(np.int32 if out_int32 else np.int64)


def _bucketize(self: Value, boundaries: Value, out_int32: bool = False, right: bool = False) -> Any:
    return _searchsorted(boundaries, self, out_int32, right)


def _kth(self: Value, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th smallest value along one axis, and where it is."""
    at = lax.slice_in_dim(_order(jnp.asarray(self), dim, False), k - 1, k, axis=dim)
    return _found(self, at, dim, keepdim)


def _found(self: Value, at: Any, dim: int, keepdim: bool) -> Any:
    """The values at places along one axis, and the places."""
    value = jnp.take_along_axis(jnp.asarray(self), at, dim)
    return tuple(v if keepdim else jnp.squeeze(v, dim) for v in (value, at.astype(np.int64)))


def _median(self: Value, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower one of two values in the middle; the first that is no number where one is."""
    if dim is None:
        return _median(jnp.ravel(self), 0)[0]
    x = jnp.asarray(self)
    middle, size = (x.shape[dim] - 1) // 2, x.shape[dim]
    order, numbers = _order(x, dim, False), jnp.sum(x == x, dim, keepdims=True)
    # What is no number comes last, in its own order.
    place = jnp.where(numbers < size, numbers, middle)
    return _found(x, jnp.take_along_axis(order, place, dim), dim, keepdim)


ROWS = {
    **rows(True, movedim=_movedim, broadcast_to=_broadcast_to, diagonal=_diagonal),
    **rows(
        scatter=_scatter, scatter_add=_scatter_add, scatter_reduce=_scatter_reduce,
        index_put=_index_put, index_add=_index_add, index_copy=_index_copy,
        select_scatter=_select_scatter, slice_scatter=_slice_scatter, sort=_sort,
        argsort=_argsort, topk=_topk, diff=_diff, outer=_outer,
        searchsorted=_searchsorted, bucketize=_bucketize, kthvalue=_kth, median=_median,
        embedding_bag=_bag_counting_from_the_end, _embedding_bag=_embedding_bag,
        _embedding_bag_forward_only=_embedding_bag,
    ),
}  # fmt: skip
