"""Resizing of images, each axis alone as a weighted sum of a few of its places, and values at the
places that a grid names."""

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.onnx.images import sampled
from hlotune.hlo.frontends.onnx.resizing import cubic, mixed, narrowed
from hlotune.hlo.frontends.pytorch.types import Value, rows

CUBIC = -0.75
"""The parameter of PyTorch's cubic convolution."""
Taps = Callable[[int, int, float | None, bool, Any], tuple[Any, Any]]
"""Gives the places that each value of the result is mixed of, and their weights, both of shape
(result, taps).  It takes an extent, a new extent, the factor that was given, whether corners are
aligned, and the type of floats that places are computed in."""


def _resized(rank: int, taps: Taps) -> Any:
    def rule(
        self: Value = None, output_size: Any = None, align_corners: bool = False,
        scales_d: Any = None, scales_h: Any = None, scales_w: Any = None, scales: Any = None,
        input: Value = None, scale_factors: Any = None,
    ) -> Any:  # fmt: skip
        x = jnp.asarray(self if input is None else input)
        factors = scale_factors or ([scales] if rank == 1 else [scales_d, scales_h, scales_w])
        return _each_axis(x, rank, output_size, factors[-rank:], taps, align_corners)

    return rule


def _each_axis(
    x: Any, rank: int, sizes: Any, factors: Sequence[Any], taps: Taps, align_corners: bool
) -> Any:
    extents = x.shape[-rank:]
    wanted = sizes or [int(e * f) for e, f in zip(extents, factors, strict=True)]
    dtype, real = x.dtype, np.float64 if x.dtype in (np.float64, np.uint8) else np.float32
    facts = list(enumerate(zip(extents, wanted, factors, strict=True), x.ndim - rank))
    for axis, (extent, size, factor) in facts if dtype != np.uint8 else facts[::-1]:
        if extent == size and (factor in (None, 1.0) or dtype == np.uint8):
            continue
        places, weights = taps(extent, size, factor, align_corners, real)
        if np.array_equal(places, _repeated(extent, size)):
            x = jnp.repeat(x, size // extent, axis)
        elif dtype == np.uint8 and weights.shape[1] > 1:
            x = _of_bytes(x, axis, places, weights)
        else:
            x = mixed(x, axis, places, weights)
    return narrowed(x, dtype)


def _of_bytes(x: Any, axis: int, places: Any, weights: Any) -> Any:
    """One axis of bytes as PyTorch resizes it: by whole weights of 15 bits, to bytes again."""
    weights = weights.copy()
    for tap in range(1, places.shape[1]):  # places beyond a border are one weight of what is there
        same = places[:, tap] == places[:, tap - 1]
        weights[:, tap] += np.where(same, weights[:, tap - 1], 0)
        weights[same, tap - 1] = 0
    bits = next(b for b in range(22) if int(0.5 + weights.max() * 2 ** (b + 1)) >= 1 << 15)
    whole = np.trunc(weights * 2**bits + np.copysign(0.5, weights)).astype(np.int32)
    total = mixed(x, axis, places, whole) + (1 << (bits - 1))
    return jnp.clip(total >> bits, 0, 255).astype(x.dtype)


def _repeated(extent: int, size: int) -> Any:
    """Places of which each is read as often as the next one."""
    return np.repeat(np.arange(extent), size // extent)[:, None]


def _step(extent: int, size: int, factor: float | None) -> float:
    """How many places of the image a value of the result goes on."""
    return 1 / factor if factor else extent / size


def _places(extent: int, size: int, factor: float | None, align_corners: bool, real: Any) -> Any:
    """Where the values of the result lie along the axis that is read, in the floats of PyTorch."""
    at = np.arange(size, dtype=real)
    if align_corners:
        return at * real((extent - 1) / (size - 1) if size > 1 else 0)
    return (at + real(0.5)) * real(_step(extent, size, factor)) - real(0.5)


def _linear(
    extent: int, size: int, factor: float | None, align_corners: bool, real: Any
) -> tuple[Any, Any]:
    if size == extent:  # as PyTorch has it, whatever the factor
        return _repeated(extent, size), np.ones((size, 1))
    at = np.maximum(_places(extent, size, factor, align_corners, real), 0)
    first = np.minimum(np.floor(at).astype(np.int64), extent - 1)
    rest = at - first
    return _inside(first, (0, 1), extent), np.stack([1 - rest, rest], 1)


def _cubic(
    extent: int, size: int, factor: float | None, align_corners: bool, real: Any
) -> tuple[Any, Any]:
    at = _places(extent, size, factor, align_corners, real)
    first, around = np.floor(at).astype(np.int64), (-1, 0, 1, 2)
    weights = [cubic(np.abs(at - first - n), CUBIC) for n in around]
    return _inside(first, around, extent), np.stack(weights, 1)


def _nearest(shift: float, has_plain_steps: bool) -> Taps:
    """Takes the nearest place; PyTorch has steps of one and of two values of its own for images,
    whatever the factor."""

    def taps(
        extent: int, size: int, factor: float | None, align_corners: bool, real: Any
    ) -> tuple[Any, Any]:
        if has_plain_steps and size in (extent, 2 * extent):
            return _repeated(extent, size), np.ones((size, 1))
        step, begin = np.float32(_step(extent, size, factor)), np.float32(shift)
        at = (np.arange(size, dtype=np.float32) + begin) * step
        return _inside(np.floor(at).astype(np.int64), (0,), extent), np.ones((size, 1))

    return taps


def _inside(first: Any, around: Sequence[int], extent: int) -> Any:
    return np.clip(first[:, None] + np.array(around), 0, extent - 1)


MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def _grid(
    input: Value, grid: Value, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    return sampled(input, grid, MODES[interpolation_mode], PADDINGS[padding_mode], align_corners)


ROWS = {
    **rows(
        grid_sampler=_grid, grid_sampler_2d=_grid, grid_sampler_3d=_grid,
        upsample_linear1d=_resized(1, _linear), upsample_bilinear2d=_resized(2, _linear),
        upsample_trilinear3d=_resized(3, _linear), upsample_bicubic2d=_resized(2, _cubic),
    ),
    **{
        name: row
        for rank in (1, 2, 3)
        for name, row in rows(
            **{
                f"upsample_nearest{rank}d": _resized(rank, _nearest(0, rank == 2)),
                f"_upsample_nearest_exact{rank}d": _resized(rank, _nearest(0.5, False)),
            }
        ).items()
    },
}  # fmt: skip
