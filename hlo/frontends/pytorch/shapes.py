"""Shapes, places, element types, and tensors that are made of nothing."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.pytorch.types import Refusal, Value, common_dtype, rows


def _reshape(self: Value, size: Any = None, shape: Any = None) -> Any:
    return jnp.reshape(self, size if size is not None else shape)


def _flatten(self: Value, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = start_dim % max(self.ndim, 1), end_dim % max(self.ndim, 1)
    return jnp.reshape(self, (*self.shape[:first], -1, *self.shape[last + 1 :]))


def _unflatten(self: Value, dim: int, sizes: Any) -> Any:
    at = dim % self.ndim
    return jnp.reshape(self, (*self.shape[:at], *sizes, *self.shape[at + 1 :]))


def _permute(self: Value, dims: Any) -> Any:
    return jnp.transpose(self, dims)


def _transpose(self: Value, dim0: int, dim1: int) -> Any:
    return jnp.swapaxes(self, dim0, dim1) if self.ndim else self


def _matrices_turned(self: Value) -> Any:
    return jnp.swapaxes(self, -1, -2)


def _adjoint(self: Value) -> Any:
    return jnp.conj(jnp.swapaxes(self, -1, -2))


def _t(self: Value) -> Any:
    return jnp.transpose(self)


def _expand(self: Value, size: Any, implicit: bool = False) -> Any:
    own = (1,) * (len(size) - self.ndim) + tuple(self.shape)
    return jnp.broadcast_to(self, [o if s == -1 else s for s, o in zip(size, own, strict=True)])


def _expand_as(self: Value, other: Value) -> Any:
    return jnp.broadcast_to(self, other.shape)


def _repeat(self: Value, repeats: Any) -> Any:
    return jnp.tile(self, repeats)


def _slice(
    self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    index: list[Any] = [slice(None)] * self.ndim
    index[dim] = slice(start, end, step)
    return jnp.asarray(self)[tuple(index)]


def _narrow(self: Value, dim: int, start: int, length: int) -> Any:
    begin = start % max(self.shape[dim], 1)
    return _slice(self, dim, begin, begin + length)


def _select(self: Value, dim: int, index: int) -> Any:
    at: list[Any] = [slice(None)] * self.ndim
    at[dim] = index
    return jnp.asarray(self)[tuple(at)]


def _unsqueeze(self: Value, dim: int) -> Any:
    return jnp.expand_dims(self, dim)


def _squeeze(self: Value, dim: Any = None) -> Any:
    dims = range(self.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(self, tuple(d % self.ndim for d in dims if self.shape[d] == 1))


def _concatenate(tensors: Any, dim: int = 0) -> Any:
    dtype = common_dtype(tensors)
    kept = [t for t in tensors if t.shape != (0,)] or tensors
    return jnp.concatenate([jnp.asarray(t, dtype) for t in kept], dim)


def _stack(tensors: Any, dim: int = 0) -> Any:
    return jnp.stack([jnp.asarray(t, common_dtype(tensors)) for t in tensors], dim)


def _split(self: Value, split_size: Any = None, dim: int = 0, split_sizes: Any = None) -> Any:
    size = split_sizes if split_size is None else split_size
    ends = np.cumsum(size)[:-1] if isinstance(size, list) else range(size, self.shape[dim], size)
    return tuple(jnp.split(jnp.asarray(self), list(ends), dim))


def _chunk(self: Value, chunks: int, dim: int = 0) -> Any:
    return _split(self, max(1, -(-self.shape[dim] // chunks)), dim)


def _unbind(self: Value, dim: int = 0) -> Any:
    return tuple(_select(self, dim, k) for k in range(self.shape[dim]))


def _flip(self: Value, dims: Any) -> Any:
    return jnp.flip(self, dims)


def _roll(self: Value, shifts: Any, dims: Any = ()) -> Any:
    if dims in ((), []):
        return jnp.roll(self, shifts[0] if isinstance(shifts, list) else shifts)
    return jnp.roll(self, shifts, dims)


def _index_select(self: Value, dim: int, index: Value) -> Any:
    return jnp.take(self, index, dim, mode="clip")


def _embedding(
    weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:  # fmt: skip
    return jnp.take(weight, indices, 0, mode="clip")


def _gather(self: Value, dim: int, index: Value, sparse_grad: bool = False) -> Any:
    cut = tuple(
        slice(None) if d == dim % self.ndim else slice(e) for d, e in enumerate(index.shape)
    )
    return jnp.take_along_axis(jnp.asarray(self)[cut], index, dim, mode="clip")


def _index(self: Value, indices: Any) -> Any:
    if any(i is not None and i.dtype == np.bool_ for i in indices):
        raise Refusal("an index of booleans, whose result has no static shape: use where")
    at = tuple(slice(None) if i is None else jnp.asarray(i) for i in indices)
    return jnp.asarray(self)[at]


def _unfold(self: Value, dimension: int, size: int, step: int) -> Any:
    """Windows along one axis, whose places are a new axis at the end."""
    if not jnp.ndim(self):  # one window, and no axis of windows
        return jnp.ravel(self)[:size]
    x = jnp.asarray(self)
    axis = dimension % x.ndim
    begins = np.arange(0, x.shape[axis] - size + 1, step)
    return jnp.moveaxis(jnp.take(x, begins[:, None] + np.arange(size), axis), axis + 1, -1)


def _copy(self: Value, src: Value, non_blocking: bool = False) -> Any:
    """Values that are written over others, of which the shape and the type stay."""
    x = jnp.asarray(self)
    return jnp.broadcast_to(jnp.asarray(src).astype(x.dtype), x.shape)


def _one_hot(self: Value, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise Refusal("one_hot of as many classes as its values have: give num_classes")
    return (jnp.asarray(self)[..., None] == np.arange(num_classes)).astype(np.int64)


def _pad(self: Value, pad: Any, mode: str = "constant", value: Value = None) -> Any:
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (self.ndim - len(pairs)) + pairs
    if mode != "constant":
        names = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
        return jnp.pad(self, pairs, names[mode])
    cut = tuple(slice(max(0, -a), e - max(0, -b)) for (a, b), e in zip(pairs, self.shape))  # noqa: B905
    padding = [(max(0, a), max(0, b)) for a, b in pairs]
    made = jnp.asarray(self)[cut]
    return jnp.pad(made, padding, constant_values=jnp.asarray(value or 0, made.dtype))


def _tril(self: Value, diagonal: int = 0) -> Any:
    return jnp.tril(self, diagonal)


def _triu(self: Value, diagonal: int = 0) -> Any:
    return jnp.triu(self, diagonal)


def _itself(self: Value, memory_format: Any = None) -> Any:
    return jnp.asarray(self)


def _dropout(input: Value, p: float, train: bool | None) -> Any:
    if train is not False and p > 0:
        raise Refusal("dropout in training: call module.eval() before the export")
    return jnp.asarray(input)


def _native_dropout(input: Value, p: float, train: bool | None) -> Any:
    return _dropout(input, p, train), jnp.ones(input.shape, bool)


def _converted(
    self: Value, dtype: Any = None, other: Value = None, device: Any = None, layout: Any = None,
    pin_memory: Any = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    wanted = other.dtype if other is not None else dtype
    return jnp.asarray(self) if wanted is None else jnp.asarray(self).astype(wanted)


def _filled(value: Any) -> Any:
    def rule(
        size: Any, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: Any = None, memory_format: Any = None, names: Any = None,
    ) -> Any:  # fmt: skip
        return jnp.full(size, value, dtype or np.float32)

    return rule


def _filled_like(value: Any) -> Any:
    def rule(
        self: Value, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: Any = None, memory_format: Any = None,
    ) -> Any:  # fmt: skip
        return jnp.full(self.shape, value, dtype or self.dtype)

    return rule


def _full(
    size: Any, fill_value: Value, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    return jnp.full(size, fill_value, dtype or common_dtype([fill_value]))


def _full_like(
    self: Value, fill_value: Value, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, memory_format: Any = None,
) -> Any:  # fmt: skip
    return jnp.full(self.shape, fill_value, dtype or self.dtype)


def _of_self(value: Any) -> Any:
    def rule(
        self: Value, size: Any, fill_value: Value = value, dtype: Any = None, layout: Any = None,
        device: Any = None, pin_memory: Any = None,
    ) -> Any:  # fmt: skip
        return jnp.full(size, fill_value, dtype or self.dtype)

    return rule


def _fill(self: Value, value: Value) -> Any:
    return jnp.full(self.shape, value, self.dtype)


def _scalar(
    s: Value, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    return jnp.asarray(s, dtype or np.float32)


def _arange(
    end: Value, start: Value = 0, step: Value = 1, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Any:  # fmt: skip
    return jnp.arange(start, end, step, dtype or common_dtype([start, end, step]))


def _nothing(**inputs: Any) -> Any:
    return ()


ROWS = {
    **rows(
        True,
        view=_reshape, _unsafe_view=_reshape, reshape=_reshape, flatten=_flatten,
        unflatten=_unflatten, permute=_permute, transpose=_transpose, t=_t, numpy_T=_t,
        mT=_matrices_turned, mH=_adjoint, adjoint=_adjoint, matrix_H=_adjoint,
        expand=_expand, expand_as=_expand_as, slice=_slice, narrow=_narrow, select=_select,
        unsqueeze=_unsqueeze, squeeze=_squeeze, split=_split, split_with_sizes=_split,
        chunk=_chunk, unbind=_unbind, contiguous=_itself, detach=_itself, alias=_itself,
        lift_fresh=_itself, dropout=_dropout, feature_dropout=_dropout, alpha_dropout=_dropout,
        to=_converted, type_as=_converted, unfold=_unfold,
    ),
    **rows(
        repeat=_repeat, cat=_concatenate, concat=_concatenate, stack=_stack, flip=_flip,
        roll=_roll, index_select=_index_select, embedding=_embedding, gather=_gather,
        index=_index, pad=_pad, constant_pad_nd=_pad, tril=_tril, triu=_triu, clone=_itself,
        lift_fresh_copy=_itself, native_dropout=_native_dropout, _to_copy=_converted,
        zeros=_filled(0), ones=_filled(1), empty=_filled(0), zeros_like=_filled_like(0),
        ones_like=_filled_like(1), empty_like=_filled_like(0), full=_full, full_like=_full_like,
        new_zeros=_of_self(0), new_ones=_of_self(1), new_full=_of_self(0), fill=_fill,
        copy=_copy, one_hot=_one_hot, scalar_tensor=_scalar, arange=_arange,
        _assert_tensor_metadata=_nothing,
    ),
}  # fmt: skip
