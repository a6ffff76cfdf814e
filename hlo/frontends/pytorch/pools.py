"""Pools of windows, and adaptive pools."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hlotune.hlo.frontends.onnx.pools import counts, least, reduced
from hlotune.hlo.frontends.onnx.windows import Window, with_ceiling
from hlotune.hlo.frontends.pytorch.types import Value, rows


def _each(value: Any, rank: int) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    return tuple(listed) * rank if len(listed) == 1 else tuple(listed)


def _window(rank: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any = 1) -> Window:
    sizes = _each(kernel_size, rank)
    pads = tuple((p, p) for p in _each(padding, rank))
    return Window(sizes, _each(stride, rank) if stride else sizes, _each(dilation, rank), pads)


def _batched(x: Value, rank: int) -> tuple[jax.Array, bool]:
    """The value with an axis for the batch, and whether that was put in front here."""
    array = jnp.asarray(x)
    return (array[None], True) if array.ndim == rank + 1 else (array, False)


def _largest(rank: int) -> Any:
    def rule(
        self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        x, alone = _batched(self, rank)
        window = _window(rank, kernel_size, stride, padding, dilation)
        window = with_ceiling(window, x.shape[2:]) if ceil_mode else window
        made = reduced(x, window, least(x.dtype), lax.max)
        return made[0] if alone else made

    return rule


def _with_places(rank: int) -> Any:
    def rule(**inputs: Any) -> Any:
        return _largest(rank)(**inputs), None

    return rule


def _average(rank: int) -> Any:
    def rule(
        self: Value, kernel_size: Any, stride: Any = (), padding: Any = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        x, alone = _batched(self, rank)
        plain = _window(rank, kernel_size, stride, padding)
        window = with_ceiling(plain, x.shape[2:]) if ceil_mode else plain
        made = reduced(x, window, 0, lax.add)
        inner = [(0, e) for e in x.shape[2:]]
        outer = [(-a, e + b) for (a, b), e in zip(plain.padding, x.shape[2:], strict=True)]
        found = counts(window, x.shape[2:], outer if count_include_pad else inner)
        made = made / jnp.asarray(divisor_override or found, x.dtype)
        return made[0] if alone else made

    return rule


def _adaptive(rank: int, combine: Any, is_mean: bool) -> Any:
    def rule(self: Value, output_size: Any) -> Any:
        x = jnp.asarray(self)
        for axis, size in zip(range(-rank, 0), _each(output_size, rank), strict=True):
            if size is not None:
                x = _adapted(x, axis, size, combine)
        return x if is_mean else (x, None)

    return rule


def _adapted(x: jax.Array, axis: int, size: int, combine: Any) -> Any:
    """Windows of about the same length along one axis, which cover it."""
    extent = x.shape[axis]
    if size == 1:
        return combine(x, axis, keepdims=True)
    if extent % size == 0:
        at = x.ndim + axis
        return combine(x.reshape(*x.shape[:at], size, extent // size, *x.shape[at + 1 :]), at + 1)
    begins = [k * extent // size for k in range(size)]
    ends = [-(-(k + 1) * extent // size) for k in range(size)]
    cut = [lax.slice_in_dim(x, b, e, axis=axis) for b, e in zip(begins, ends, strict=True)]
    return jnp.concatenate([combine(c, axis, keepdims=True) for c in cut], axis)


ROWS = {
    name: row
    for rank in (1, 2, 3)
    for name, row in rows(
        **{
            f"max_pool{rank}d": _largest(rank),
            f"max_pool{rank}d_with_indices": _with_places(rank),
            f"avg_pool{rank}d": _average(rank),
            f"adaptive_avg_pool{rank}d": _adaptive(rank, jnp.mean, True),
            f"_adaptive_avg_pool{rank}d": _adaptive(rank, jnp.mean, True),
            f"adaptive_max_pool{rank}d": _adaptive(rank, jnp.max, False),
        }
    ).items()
}
