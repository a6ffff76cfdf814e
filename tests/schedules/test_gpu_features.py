"""What a cost model sees of schedules for GPUs."""

import numpy as np
import pytest

from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.spaces.gpu.features import NAMES, SKETCHES, features
from hlotune.schedules.spaces.gpu.registers import needed, occupancy, spilled, threads_of
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target

H200 = gpu_target("cuda:h200")
KERNELS: tuple[GpuKernel, ...] = (
    GpuProduct(4096, 4096, 4096, "bf16"),
    GpuProduct(100, 70, 50, "tf32", batch=3),
    GpuRows("layer_norm", 8192, 4096, "f32"),
    GpuAttention(16, 2048, 2048, 128, True, "bf16"),
    GpuConvolution(32, 14, 256, 256, 3, 1, 1, "bf16"),
    GpuConvolution(32, 224, 3, 64, 7, 2, 3, "bf16"),
)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_every_config_has_finite_features_that_tell_it_from_others(kernel: GpuKernel) -> None:
    space = gpu_space(kernel, H200)
    seen = features(kernel, space, space.configs)
    assert seen.shape == (len(space.configs), len(NAMES))
    assert np.isfinite(seen).all()
    assert len(np.unique(seen, axis=0)) == len(seen)


def test_all_sketches_that_spaces_have_are_features() -> None:
    made = {s.name for kernel in KERNELS for s in gpu_space(kernel, H200).sketches}
    assert made == set(SKETCHES)


def test_blocks_and_waves_are_those_of_the_schedule() -> None:
    product = KERNELS[0]
    space = gpu_space(product, H200)
    knobs = {"block_m": 128, "block_n": 256, "block_k": 64, "split_k": 1, "group_m": 8}
    config = space.config("triton_product", {**knobs, "warps": 8, "stages": 3})
    seen = dict(zip(NAMES, features(product, space, config[None])[0], strict=True))
    blocks = (4096 // 128) * (4096 // 256)
    assert seen["blocks"] == np.log2(blocks)
    assert seen["waves"] == pytest.approx(np.log2(blocks / H200.multiprocessors))
    assert seen["last_wave_share"] == pytest.approx(blocks / H200.multiprocessors / 4)
    assert seen["held_share"] == pytest.approx(3 * (128 + 256) * 64 * 2 / H200.block_shared_bytes)
    assert seen["registers"] == pytest.approx(np.log2(32 + 128 * 256 / 256 + 2 * 384 * 8 / 256))
    assert seen["spilled_share"] == 0
    assert seen["occupancy"] == pytest.approx(256 / 2048)  # registers for one block of 256 threads
    assert seen["is_triton_product"] == 1
    assert seen["is_hopper_product"] == 0


def test_blocks_that_need_more_registers_than_there_are_spill_and_small_ones_share() -> None:
    product = KERNELS[0]
    knobs = {"block_k": 32, "split_k": 1, "group_m": 1, "stages": 2}
    large = {**knobs, "block_m": 256, "block_n": 256, "warps": 8}
    small = {**knobs, "block_m": 64, "block_n": 64, "warps": 4}
    columns = {k: np.array([large[k], small[k]]) for k in large}
    block = tuple(np.asarray(columns[f"block_{axis}"], np.float64) for axis in "mnk")
    registers = needed(product, "triton_product", columns, block)
    share = spilled(H200, "triton_product", columns, registers)
    assert share[0] == pytest.approx(1 - 255 / registers[0])
    assert share[1] == 0
    many = occupancy(H200, "triton_product", columns, registers, np.array([65536.0, 16384.0]))
    assert many[0] == pytest.approx(256 / 2048)
    assert many[1] == pytest.approx(65536 // (registers[1] * 128) * 128 / 2048)


def test_three_warpgroups_of_a_ring_have_fewer_registers_each() -> None:
    columns = {"block_m": np.array([128, 192])}
    assert threads_of("hopper_ring_product", columns).tolist() == [256, 384]
    assert threads_of("hopper_product", columns).tolist() == [256, 256]


def test_what_was_learned_corrects_the_roofline() -> None:
    space = gpu_space(KERNELS[2], H200)
    half = type(space)(space.target, space.sketches, lambda configs: np.full(len(configs), 0.5))
    np.testing.assert_allclose(half.seconds(space.configs), space.roofline(space.configs) / 2)
