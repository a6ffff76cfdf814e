"""How far apart in memory the elements lie that neighbouring points of a loop load."""

from collections.abc import Iterable

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.expr import Affine, Load


def stride(index: tuple[Affine, ...], strides: tuple[int, ...], axis: str) -> int:
    """Elements between neighbouring points of an axis; negative where it runs backwards."""
    return sum(e.coefficients.get(axis, 0) * s for e, s in zip(index, strides, strict=True))


def nearest_bytes(compute: Compute, load: Load, axes: Iterable[str]) -> int:
    """Bytes between what neighbours load, along the one of `axes` along which they lie nearest.

    Axes along which the load does not vary do not count; it is 0 where it varies along none, for
    then all points load the same element.
    """
    tensor = compute.tensor(load.tensor)
    found = (abs(stride(load.index, tensor.strides, axis)) for axis in axes)
    return min(filter(None, found), default=0) * BYTES[tensor.dtype]
