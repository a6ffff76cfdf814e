"""Kernels are lowered for GPUs that are not here."""

import jax
import pytest

from hlotune.codegen.pallas.build import HOPPER_JAX, build, operands
from hlotune.codegen.pallas.lowering import lowered_for
from hlotune.schedules.errors import BuildError
from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.targets.gpu import GpuTarget, gpu_target

A100, H100 = gpu_target("cuda:a100"), gpu_target("cuda:h100")
KERNELS: tuple[GpuKernel, ...] = (
    GpuProduct(1024, 1024, 512, "bf16"),
    GpuProduct(1000, 1000, 500, "tf32", epilogue="bias_gelu"),
    GpuProduct(512, 64, 512, "bf16", batch=6),
    GpuProduct(200, 64, 128, "f16", batch=3),
    GpuRows("softmax", 512, 1000, "f32"),
    GpuRows("layer_norm", 512, 20000, "bf16"),
    GpuAttention(4, 512, 512, 128, True, "bf16"),
    GpuAttention(4, 500, 700, 80, False, "f16"),
    GpuConvolution(4, 28, 128, 128, 3, 1, 1, "bf16"),
    GpuConvolution(8, 28, 128, 128, 3, 2, 1, "bf16"),
    GpuConvolution(8, 28, 64, 64, 3, 1, 1, "f16", "bias_relu"),
    GpuProduct(256, 64, 128, "bf16", epilogue="bias_gelu"),
    GpuConvolution(2, 56, 3, 64, 7, 2, 3, "bf16"),
    GpuConvolution(4, 28, 128, 512, 1, 1, 0, "bf16"),
)
RAGGED: dict[str, GpuKernel] = {
    "hopper_ring_product": GpuProduct(1000, 200, 1000, "bf16", epilogue="bias_relu"),
    "hopper_attention": GpuAttention(2, 301, 523, 128, False, "bf16"),
    "hopper_convolution": GpuConvolution(12, 10, 64, 104, 3, 1, 1, "bf16", "bias"),
}
"""Kernels of which no extent is whole blocks, by the sketch for Hopper that takes them."""
OLD = jax.__version_info__[:2] < HOPPER_JAX
CALLS = {"triton": "__gpu$xla.gpu.triton", "hopper": "mosaic_gpu"}


@pytest.mark.parametrize("target", [A100, H100], ids=lambda t: t.architecture)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_each_sketch_of_a_space_is_lowered(kernel: GpuKernel, target: GpuTarget) -> None:
    space = gpu_space(kernel, target)
    proposed = [space.named(c) for c in space.propose(len(space.sketches))]
    buildable = [named for named in proposed if not (OLD and named[0].startswith("hopper_"))]
    for sketch, knobs in buildable:
        text = lowered_for(target, build(kernel, sketch, knobs), operands(kernel)).as_text()
        assert CALLS[sketch.partition("_")[0]] in text
        assert "sdy." not in text, "a kernel is for one device, and names no mesh of several"
    assert buildable


@pytest.mark.skipif(OLD, reason="kernels for Hopper need a newer JAX")
@pytest.mark.parametrize("name", RAGGED)
def test_kernels_for_hopper_take_extents_that_are_no_whole_blocks(name: str) -> None:
    kernel = RAGGED[name]
    space = gpu_space(kernel, H100)
    number = next(n for n, s in enumerate(space.sketches) if s.name == name)
    configs = space.configs[space.configs[:, 0] == number]
    for config in configs[[0, len(configs) // 2, -1]]:
        sketch, knobs = space.named(config)
        text = lowered_for(H100, build(kernel, sketch, knobs), operands(kernel)).as_text()
        assert CALLS["hopper"] in text


def test_warps_and_stages_reach_the_call() -> None:
    rows = GpuRows("softmax", 512, 1000, "f32")
    knobs = {"block": 512, "warps": 16, "stages": 3}
    text = lowered_for(A100, build(rows, "triton_long_rows", knobs), operands(rows)).as_text()
    assert "num_warps = 16" in text
    assert "num_stages = 3" in text


def test_kernels_for_hopper_need_a_jax_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    product = GpuProduct(256, 256, 256, "bf16")
    sketch, knobs = gpu_space(product, H100).named(gpu_space(product, H100).propose(1)[0])
    assert sketch.startswith("hopper_")
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    with pytest.raises(BuildError, match=rf"{sketch} needs jax 0\.11 or newer"):
        build(product, sketch, knobs)
