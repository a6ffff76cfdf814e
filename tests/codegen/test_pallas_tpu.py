"""Kernels for TPUs: interpreted against NumPy at odd shapes, and lowered without a device."""

import pytest

from hlotune.codegen.pallas.build import build, operands
from hlotune.codegen.pallas.lowering import exported_for_tpu
from hlotune.schedules.patterns.gpu import GpuAttention, GpuKernel, GpuProduct, GpuRows
from hlotune.schedules.spaces.tpu.space import tpu_space
from hlotune.schedules.targets.tpu import TPU_TARGETS, TpuTarget, tpu_target
from tests.support.gpu_oracle import error, inputs

LIMITS = {"f32": 2e-6, "bf16": 5e-3}
BLOCKS = {"block_m": 16, "block_n": 128, "block_k": 128}
CASES: dict[str, tuple[GpuKernel, dict[str, int]]] = {
    "a product of whole blocks": (GpuProduct(32, 256, 256, "f32"), BLOCKS),
    "a product whose blocks stick out everywhere": (GpuProduct(37, 300, 190, "f32"), BLOCKS),
    "a product of one block that is no tile": (
        GpuProduct(5, 70, 33, "f32"),
        {"block_m": 5, "block_n": 33, "block_k": 70},
    ),
    "products of a batch": (GpuProduct(33, 200, 130, "bf16", batch=3), BLOCKS),
    "a product with a bias": (GpuProduct(20, 150, 140, "f32", epilogue="bias"), BLOCKS),
    "a product with a Gaussian unit": (
        GpuProduct(20, 150, 140, "bf16", epilogue="bias_gelu"),
        BLOCKS,
    ),
    "a softmax whose last block sticks out": (GpuRows("softmax", 21, 100, "f32"), {"rows": 8}),
    "a softmax of bf16": (GpuRows("softmax", 33, 257, "bf16"), {"rows": 16}),
    "a layer norm": (GpuRows("layer_norm", 21, 130, "f32"), {"rows": 8}),
    "a layer norm of bf16": (GpuRows("layer_norm", 7, 300, "bf16"), {"rows": 7}),
}
_SMALL = {"block_q": 16, "block_k": 128}
CASES |= {
    "an attention whose blocks stick out": (GpuAttention(2, 37, 200, 64, False, "f32"), _SMALL),
    "a causal attention of shared keys": (
        GpuAttention(4, 150, 150, 32, True, "bf16", group=2),
        _SMALL,
    ),
    "an attention of values of another depth": (
        GpuAttention(1, 16, 128, 24, False, "f32", value_depth=40),
        _SMALL,
    ),
}
SKETCHES = {GpuProduct: "tpu_product", GpuRows: "tpu_rows", GpuAttention: "tpu_attention"}


@pytest.mark.parametrize("name", CASES)
def test_interpreted_kernels_agree_with_numpy(name: str) -> None:
    kernel, knobs = CASES[name]
    sketch = SKETCHES[type(kernel)]
    space = tpu_space(kernel, tpu_target("tpu:v5e"))
    space.check(space.config(sketch, knobs))
    assert error(kernel, sketch, knobs, inputs(kernel)) < LIMITS[kernel.element]


@pytest.mark.parametrize("target", TPU_TARGETS.values(), ids=lambda t: t.name)
@pytest.mark.parametrize(
    "kernel",
    [
        GpuProduct(1024, 1024, 512, "bf16"),
        GpuProduct(1000, 900, 500, "f32", epilogue="bias_gelu"),
        GpuProduct(200, 64, 130, "bf16", batch=3),
        GpuRows("softmax", 500, 1000, "f32"),
        GpuRows("layer_norm", 512, 4096, "bf16"),
        GpuAttention(4, 1000, 1000, 80, True, "bf16", group=2),
    ],
    ids=str,
)
def test_proposed_schedules_are_lowered_without_a_device(
    kernel: GpuKernel, target: TpuTarget
) -> None:
    space = tpu_space(kernel, target)
    for config in space.propose(3):
        sketch, knobs = space.named(config)
        lowered = exported_for_tpu(target, build(kernel, sketch, knobs), operands(kernel))
        assert "tpu_custom_call" in lowered.mlir_module()
