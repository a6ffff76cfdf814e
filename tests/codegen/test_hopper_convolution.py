"""Where `hopper_convolution` finds what it multiplies, followed by NumPy step by step.

The kernel itself has no interpreter.  What the copy engine and the matrix unit do is written here
once more, with the kernel's own places.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from hlotune.schedules.patterns.gpu import GpuConvolution
from hlotune.schedules.patterns.gpu_windows import GROUP, LINE, UNIT_ROWS, Plane, WindowBlocks
from hlotune.schedules.spaces.gpu.convolutions import windows_in_place
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from tests.support.gpu_oracle import expected, inputs

pytest.importorskip(
    "jax.experimental.pallas.mosaic_gpu",
    reason="kernels for Hopper need a newer JAX, or one with absl-py",
    exc_type=ImportError,
)
from hlotune.codegen.pallas.hopper_convolutions import corner, unit, window

Array = NDArray[np.float64]
CASES = {
    "3x3 whose blocks divide the results": (8, 8, 3, 1, 1, (1, 2, 8)),
    "3x3 with borders inside a unit": (16, 14, 3, 1, 1, (1, 1, 16)),
    "3x3 of images smaller than a unit": (16, 7, 3, 1, 1, (2, 1, 8)),
    "3x3 whose blocks stick out everywhere": (8, 10, 3, 1, 1, (2, 4, 8)),
    "3x3 without padding": (8, 12, 3, 1, 0, (1, 2, 8)),
    "3x3 with a stride": (8, 18, 3, 2, 1, (1, 4, 8)),
    "3x3 with a stride of three": (8, 24, 3, 3, 1, (1, 2, 8)),
    "1x1 with a stride": (8, 20, 1, 2, 0, (1, 2, 16)),
    "1x1": (8, 9, 1, 1, 0, (1, 2, 8)),
    "5x5 with a stride": (8, 16, 5, 2, 2, (1, 2, 8)),
    "3x3 of images that are no whole groups": (12, 9, 3, 1, 1, (2, 2, 8)),
}


@pytest.mark.parametrize("name", CASES)
def test_taps_read_blocks_of_images_in_place(name: str) -> None:
    batch, size, window_size, stride, padding, (groups, rows, columns) = CASES[name]
    c = GpuConvolution(batch, size, LINE, LINE, window_size, stride, padding, "bf16")
    assert windows_in_place(c)
    images, weights = (np.asarray(v, dtype=np.float64) for v in inputs(c))
    made = _followed(WindowBlocks(c, groups, rows, columns), images, weights)
    assert np.allclose(made, expected(c, [images, weights]))


def _followed(w: WindowBlocks, images: Array, weights: Array) -> Array:
    """Results of all blocks, NaN where none was stored."""
    c = w.convolution
    source = images.reshape(w.image_shape)
    taps = weights.reshape(w.taps, c.channels, c.features)
    out = np.full((c.batch, c.out, c.out, c.features), np.nan)
    for block in range(w.blocks):
        first = tuple(int(v) for v in corner(w, jnp.int32(block)))
        held = [_plane(w, plane, source, first) for plane in w.planes]
        for number in range(w.units):
            u = unit(w, jnp.int32(number))
            sums = np.zeros((UNIT_ROWS, c.features))
            for plane, lines in zip(w.planes, held, strict=True):
                for tap in plane.taps:
                    start = (int(u.slab) + tap.shift) * GROUP
                    sums += lines[start : start + UNIT_ROWS] @ taps[tap.number]
            at = (first[0] + int(u.group) * GROUP, first[1] + int(u.row), first[2] + int(u.column))
            _store(out, at, sums.reshape(GROUP, GROUP, -1).transpose(1, 0, 2))
    return out


def _plane(w: WindowBlocks, plane: Plane, source: Array, first: tuple[int, ...]) -> Array:
    """Lines of 64 channels as they lie in shared memory; what lies behind them is unknown."""
    groups = []
    for group in range(w.groups):
        at = window(w, plane, first[0] + group * GROUP, (first[1], first[2]), 0)
        groups.append(_copied(source, at).transpose(1, 2, 0, 3).reshape(-1, LINE))
        assert len(groups[-1]) == w.slabs * GROUP
    return np.concatenate([*groups, np.full((w.overhang * GROUP, LINE), np.nan)])


def _copied(source: Array, at: tuple[Any, ...]) -> Array:
    """What the copy engine brings: zeros outside of the array."""
    wanted = [
        range(a, a + 1) if isinstance(a, int) else range(a.start, a.start + a.size) for a in at
    ]
    box = np.zeros([len(r) for r in wanted])
    there = [[n for n in r if 0 <= n < e] for r, e in zip(wanted, source.shape, strict=True)]
    places = [[n - r.start for n in inner] for r, inner in zip(wanted, there, strict=True)]
    box[np.ix_(*places)] = source[np.ix_(*there)]
    squeezed = tuple(axis for axis, a in enumerate(at) if isinstance(a, int))
    return np.squeeze(box, axis=squeezed)


def _store(out: Array, at: tuple[int, ...], values: Array) -> None:
    """Writes `(images, columns, features)` as far as they lie inside the results."""
    image, row, column = at
    if row < out.shape[1]:
        place = out[image : image + GROUP, row, column : column + GROUP]
        place[...] = values[: len(place), : place.shape[1]]


def test_each_result_is_stored_once() -> None:
    c = GpuConvolution(24, 14, LINE, LINE, 3, 1, 1, "bf16")
    w = WindowBlocks(c, 2, 4, 8)
    assert w.grid == (2, 4, 2)
    corners = {tuple(int(v) for v in corner(w, jnp.int32(n))) for n in range(w.blocks)}
    assert len(corners) == w.blocks
    units = [unit(w, jnp.int32(n)) for n in range(w.units)]
    assert {(int(u.group), int(u.row), int(u.column)) for u in units} == {
        (group, row, 0) for group in range(2) for row in range(4)
    }


def test_eight_images_and_lines_of_channels_have_windows_in_place() -> None:
    assert windows_in_place(GpuConvolution(8, 14, 64, 128, 3, 2, 1, "bf16"))
    assert windows_in_place(GpuConvolution(12, 14, 64, 104, 3, 2, 1, "bf16"))
    for other in (
        GpuConvolution(4, 14, 64, 128, 3, 2, 1, "bf16"),
        GpuConvolution(8, 15, 64, 128, 3, 2, 1, "bf16"),
        GpuConvolution(8, 14, 96, 128, 3, 2, 1, "bf16"),
        GpuConvolution(8, 14, 64, 100, 3, 2, 1, "bf16"),
        GpuConvolution(8, 14, 64, 128, 3, 2, 1, "f32"),
    ):
        assert not windows_in_place(other)


def test_shared_memory_of_a_block_is_what_the_kernel_takes() -> None:
    c = GpuConvolution(32, 14, 256, 256, 3, 1, 1, "bf16")
    space = gpu_space(c, gpu_target("cuda:h100"))
    knobs = {"groups": 1, "rows": 1, "columns": 16, "block_n": 128, "cluster": 1}
    space.check(space.config("hopper_convolution", {**knobs, "stages": 2, "weight_stages": 3}))
    w = WindowBlocks(c, 1, 1, 16)
    assert (w.slabs, w.overhang, w.units) == (3 * 16, 2, 2)
