"""Which schedules TPUs have."""

from dataclasses import replace

import numpy as np
import pytest

from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.spaces.tpu.space import tpu_space
from hlotune.schedules.targets.tpu import tpu_target

V5E, V6E = tpu_target("tpu:v5e"), tpu_target("tpu:v6e")
PRODUCT = GpuProduct(1000, 900, 500, "bf16")
ATTENTION = GpuAttention(8, 500, 700, 64, False, "bf16", group=4)


@pytest.mark.parametrize(
    "kernel", [PRODUCT, ATTENTION, GpuRows("softmax", 500, 1000, "f32")], ids=str
)
def test_all_configs_pass_the_check_and_have_a_guess(kernel: GpuKernel) -> None:
    space = tpu_space(kernel, V5E)
    assert len(space.configs) > 1
    for config in space.configs:
        space.check(config)
    assert (space.seconds(space.configs) > 0).all()


@pytest.mark.parametrize(("element", "legal"), [("f32", [0, 1, 1, 1]), ("bf16", [0, 0, 1, 1])])
def test_blocks_are_whole_tiles_of_the_memory_or_the_whole_array(
    element: str, legal: list[int]
) -> None:
    (sketch,) = tpu_space(GpuRows("softmax", 20, 1000, element), V5E).sketches
    whole_tiles, _ = sketch.limits({"rows": np.array([4, 8, 16, 20])})
    assert whole_tiles.holds.tolist() == legal


def test_a_block_that_is_no_whole_tile_is_one_clear_error() -> None:
    space = tpu_space(GpuProduct(20, 1000, 1000, "bf16"), V5E)
    (sketch,) = space.sketches
    knobs = tuple(replace(k, values=(8, *k.values)) for k in sketch.knobs)
    wider = replace(space, sketches=(replace(sketch, knobs=knobs),))
    with pytest.raises(ScheduleError, match=r"whole tiles of \(16, 128\), or as long as the array"):
        wider.check(np.array([0, 8, 128, 128], np.int32))


def test_blocks_that_vector_memory_does_not_hold_are_refused() -> None:
    space = tpu_space(GpuRows("softmax", 2048, 1 << 20, "f32"), V5E)
    with pytest.raises(ScheduleError, match="bytes of vector memory for blocks"):
        space.check(space.config("tpu_rows", {"rows": 1024}))


def test_the_kernels_that_tpus_have_no_schedules_for_are_named() -> None:
    expected = "no schedule for convolution, expected a product, attention or rows"
    with pytest.raises(UnsupportedKernel, match=expected):
        tpu_space(GpuConvolution(8, 14, 64, 64, 3, 1, 1, "bf16"), V5E)
    with pytest.raises(UnsupportedKernel, match="does not multiply f16, expected bf16, f32"):
        tpu_space(GpuProduct(64, 64, 64, "f16"), V5E)


def test_a_faster_matrix_unit_is_guessed_to_be_faster() -> None:
    slow, fast = (tpu_space(PRODUCT, target) for target in (V5E, V6E))
    assert (fast.seconds(fast.configs) < slow.seconds(fast.configs)).all()
