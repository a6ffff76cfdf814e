"""Kernels for GPUs, interpreted on the processor, against NumPy."""

import jax
import numpy as np
import pytest

from hlotune.codegen.pallas.build import BUILDERS, HOPPER_JAX
from hlotune.schedules.errors import BuildError, ScheduleError
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import gpu_target
from tests.support.gpu_oracle import error, expected, inputs

A100 = gpu_target("cuda:a100")
LIMITS = {"f32": 1e-6, "tf32": 1e-6, "f16": 1e-3, "bf16": 5e-3}
PRODUCT = {"block_m": 32, "block_n": 16, "block_k": 32, "warps": 4, "stages": 2}
WINDOWS = {"block_m": 32, "block_n": 16, "group_m": 1, "warps": 4, "stages": 2}
ATTENTION = {"block_q": 32, "block_k": 16, "warps": 4, "stages": 2}

CASES: dict[str, tuple[GpuKernel, str, dict[str, int]]] = {
    "a product of whole blocks": (
        GpuProduct(64, 96, 32, "f32"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a product whose blocks stick out everywhere": (
        GpuProduct(70, 67, 45, "f32"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a product of 3 parts of k in groups of rows": (
        GpuProduct(140, 190, 45, "f32"),
        "triton_product",
        {**PRODUCT, "split_k": 2, "group_m": 4},
    ),
    "a product rounded as tf32 by a GPU": (
        GpuProduct(33, 40, 20, "tf32"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "products of a batch": (
        GpuProduct(33, 64, 50, "bf16", batch=3),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a product with a bias": (
        GpuProduct(33, 64, 50, "f32", epilogue="bias"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a product with a bias and a rectifier": (
        GpuProduct(33, 64, 50, "f16", epilogue="bias_relu"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a product of parts of k with a Gaussian unit": (
        GpuProduct(33, 64, 50, "f32", epilogue="bias_gelu"),
        "triton_product",
        {**PRODUCT, "split_k": 2, "group_m": 1},
    ),
    "softmax of rows in registers": (
        GpuRows("softmax", 17, 100, "f32"),
        "triton_rows",
        {"rows": 4, "turns": 1, "warps": 4},
    ),
    "softmax of rows in turns": (
        GpuRows("softmax", 300, 20, "f32"),
        "triton_rows",
        {"rows": 2, "turns": 4, "warps": 1},
    ),
    "softmax of rows that are loaded a turn ahead": (
        GpuRows("softmax", 300, 20, "f32"),
        "triton_streamed_rows",
        {"rows": 2, "turns": 4, "warps": 1},
    ),
    "layer norm of rows that are loaded ahead, the last ones missing": (
        GpuRows("layer_norm", 301, 20, "bf16"),
        "triton_streamed_rows",
        {"rows": 2, "turns": 4, "warps": 1},
    ),
    "layer norm of rows in turns, the last ones missing": (
        GpuRows("layer_norm", 301, 20, "f32"),
        "triton_rows",
        {"rows": 2, "turns": 4, "warps": 1},
    ),
    "softmax of whole rows": (
        GpuRows("softmax", 8, 128, "bf16"),
        "triton_rows",
        {"rows": 1, "turns": 1, "warps": 1},
    ),
    "layer norm of rows in registers": (
        GpuRows("layer_norm", 17, 100, "f32"),
        "triton_rows",
        {"rows": 4, "turns": 1, "warps": 4},
    ),
    "softmax of long rows": (
        GpuRows("softmax", 3, 3000, "f32"),
        "triton_long_rows",
        {"block": 1024, "warps": 4, "stages": 2},
    ),
    "layer norm of long rows": (
        GpuRows("layer_norm", 3, 3000, "f32"),
        "triton_long_rows",
        {"block": 1024, "warps": 4, "stages": 1},
    ),
    "causal attention whose blocks stick out": (
        GpuAttention(2, 70, 70, 24, True, "f32"),
        "triton_attention",
        ATTENTION,
    ),
    "causal attention with more keys than queries": (
        GpuAttention(1, 40, 70, 16, True, "f32"),
        "triton_attention",
        ATTENTION,
    ),
    "attention with fewer keys than queries": (
        GpuAttention(2, 64, 50, 40, False, "f32"),
        "triton_attention",
        ATTENTION,
    ),
    "attention of whole blocks": (
        GpuAttention(1, 64, 64, 64, False, "bf16"),
        "triton_attention",
        ATTENTION,
    ),
    "a padded convolution": (
        GpuConvolution(2, 9, 32, 24, 3, 1, 1, "f32"),
        "triton_convolution",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution with a stride and odd channels": (
        GpuConvolution(2, 9, 40, 24, 3, 2, 1, "f32"),
        "triton_convolution",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution with gaps in its windows": (
        GpuConvolution(2, 11, 32, 24, 3, 2, 2, "f32", "bias", dilation=2),
        "triton_convolution",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution in groups whose blocks stick out": (
        GpuConvolution(2, 7, 40, 48, 3, 1, 1, "f32", "bias_relu", groups=2),
        "triton_convolution",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution of single elements with a stride": (
        GpuConvolution(2, 8, 32, 24, 1, 2, 0, "bf16"),
        "triton_convolution",
        {**WINDOWS, "block_k": 32, "group_m": 8},
    ),
    "a convolution of three channels": (
        GpuConvolution(1, 17, 3, 16, 7, 2, 3, "f32"),
        "triton_merged_taps",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution of three channels out of padded images": (
        GpuConvolution(1, 17, 3, 16, 7, 2, 3, "f32"),
        "triton_padded_windows",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution of padded images, two rows of the window a step": (
        GpuConvolution(2, 11, 5, 20, 5, 1, 1, "f32"),
        "triton_padded_windows",
        {**WINDOWS, "block_k": 128},
    ),
    "a convolution of padded images whose windows have one element": (
        GpuConvolution(3, 9, 2, 16, 1, 3, 0, "f32"),
        "triton_padded_windows",
        {**WINDOWS, "block_k": 16},
    ),
    "a convolution with a bias and a rectifier": (
        GpuConvolution(2, 9, 32, 20, 3, 1, 1, "f32", "bias_relu"),
        "triton_convolution",
        {**WINDOWS, "block_k": 32},
    ),
    "a convolution of padded images with a bias": (
        GpuConvolution(2, 9, 3, 20, 3, 2, 1, "f32", "bias"),
        "triton_padded_windows",
        {**WINDOWS, "block_k": 16},
    ),
    "a convolution that is a product with a Gaussian unit": (
        GpuConvolution(2, 8, 32, 24, 1, 1, 0, "f32", "bias_gelu"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
    "a convolution that is a product": (
        GpuConvolution(2, 8, 32, 24, 1, 1, 0, "f32"),
        "triton_product",
        {**PRODUCT, "split_k": 1, "group_m": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_interpreted_kernel_computes_what_numpy_does(name: str) -> None:
    kernel, sketch, knobs = CASES[name]
    assert error(kernel, sketch, knobs, inputs(kernel)) < LIMITS[kernel.element]


def test_every_builder_that_has_an_interpreter_is_tested() -> None:
    """Stages over rows have tests of their own."""
    triton = {name for name in BUILDERS if name.startswith("triton_")}
    interpreted = {name for name in triton if BUILDERS[name] != "stages"}
    assert {sketch for _, sketch, _ in CASES.values()} == interpreted


@pytest.mark.parametrize(
    "kernel",
    [
        GpuProduct(50, 70, 30, "f32"),
        GpuRows("softmax", 9, 50, "f32"),
        GpuAttention(1, 40, 40, 16, True, "f32"),
        GpuConvolution(1, 7, 16, 20, 3, 2, 1, "f32"),
    ],
    ids=lambda k: type(k).__name__,
)
def test_what_a_space_proposes_first_is_right(kernel: GpuKernel) -> None:
    space = gpu_space(kernel, A100)
    for config in space.propose(2):
        assert error(kernel, *space.named(config), inputs(kernel)) < LIMITS["f32"]


def test_large_scores_and_means_do_not_cancel() -> None:
    softmax = GpuRows("softmax", 2, 3000, "f32")
    norm = GpuRows("layer_norm", 2, 3000, "f32")
    knobs = {"block": 1024, "warps": 4, "stages": 1}
    far = [inputs(softmax)[0] * 100 + 1000]
    assert error(softmax, "triton_long_rows", knobs, far) < 1e-4
    shifted = [inputs(norm)[0] + 1000, *inputs(norm)[1:]]
    assert error(norm, "triton_long_rows", knobs, shifted) < 1e-3


def test_the_error_of_a_wrong_kernel_is_seen() -> None:
    """The first row of a causal attention sees one key; without the mask it would see all."""
    causal, open_ = (GpuAttention(1, 32, 32, 16, c, "f32") for c in (True, False))
    values = inputs(causal)
    wide = [np.asarray(v, dtype=np.float64) for v in values]
    assert np.linalg.norm(expected(causal, wide) - expected(open_, wide)) > 1


def test_warpgroups_with_roles_are_refused_by_the_interpreter() -> None:
    product = GpuProduct(128, 128, 128, "bf16")
    space = gpu_space(product, gpu_target("cuda:h100"))
    sketch, knobs = space.named(space.propose(1)[0])
    assert sketch == "hopper_ring_product"
    old = jax.__version_info__[:2] < HOPPER_JAX
    refused = (BuildError, "needs jax") if old else (ScheduleError, "has no interpreter")
    with pytest.raises(refused[0], match=refused[1]):
        error(product, sketch, knobs, inputs(product))
