"""What is measured on a GPU, in order of worth."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuKernel,
    GpuProduct,
    GpuRows,
)

KINDS = {k.__name__: k for k in (GpuProduct, GpuRows, GpuAttention, GpuConvolution)}


QUICK = ("xla_default", "torch_eager")
RIVALS = (*QUICK, "torch_compiled", "xla_exhaustive")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    kernel: GpuKernel
    seconds: float
    """How much of the run's time its candidates may take."""
    rivals: tuple[str, ...] = RIVALS


def _attention(causal: bool, queries: int = 2048) -> GpuAttention:
    return GpuAttention(16, queries, queries, 128, causal, "bf16")


FIRST = (
    Case("gemm_4096_bf16", GpuProduct(4096, 4096, 4096, "bf16"), 16),
    Case("attention_16x2048x128", _attention(False), 10),
    Case("attention_16x2048x128_causal", _attention(True), 10),
    Case("softmax_8192x4096_f32", GpuRows("softmax", 8192, 4096, "f32"), 4),
    Case("layer_norm_8192x4096_f32", GpuRows("layer_norm", 8192, 4096, "f32"), 4),
    Case("softmax_8192x4096_bf16", GpuRows("softmax", 8192, 4096, "bf16"), 4),
    Case("layer_norm_8192x4096_bf16", GpuRows("layer_norm", 8192, 4096, "bf16"), 4),
)
PRODUCTS = (
    Case("gemm_4096_tf32", GpuProduct(4096, 4096, 4096, "tf32"), 12),
    Case("gemm_128x768x3072_bf16", GpuProduct(128, 768, 3072, "bf16"), 8),
    Case("gemm_8192x28672x8192_bf16", GpuProduct(8192, 28672, 8192, "bf16"), 10),
    Case("gemm_96x512x64x512_bf16", GpuProduct(512, 64, 512, "bf16", batch=96), 8),
)

_RESNET = (
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 1, 1, 0),
    (56, 64, 64, 3, 1, 1),
    (56, 64, 256, 1, 1, 0),
    (56, 256, 64, 1, 1, 0),
    (56, 256, 128, 1, 1, 0),
    (56, 128, 128, 3, 2, 1),
    (28, 128, 512, 1, 1, 0),
    (56, 256, 512, 1, 2, 0),
    (28, 512, 128, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (28, 512, 256, 1, 1, 0),
    (28, 256, 256, 3, 2, 1),
    (14, 256, 1024, 1, 1, 0),
    (28, 512, 1024, 1, 2, 0),
    (14, 1024, 256, 1, 1, 0),
    (14, 256, 256, 3, 1, 1),
    (14, 1024, 512, 1, 1, 0),
    (14, 512, 512, 3, 2, 1),
    (7, 512, 2048, 1, 1, 0),
    (14, 1024, 2048, 1, 2, 0),
    (7, 2048, 512, 1, 1, 0),
    (7, 512, 512, 3, 1, 1),
)
"""Size, channels, features, window, stride and padding of ResNet-50's convolutions, in order."""


def _convolution(row: tuple[int, int, int, int, int, int]) -> Case:
    size, channels, features, window, stride, padding = row
    name = f"conv_32x{size}x{channels}_{features}_{window}x{window}_s{stride}_bf16"
    kernel = GpuConvolution(32, size, channels, features, window, stride, padding, "bf16")
    return Case(name, kernel, 7.0 if window > 1 else 4.0, QUICK)


CONVOLUTIONS = tuple(_convolution(row) for row in _RESNET)

_RECTIFIED = GpuConvolution(32, 14, 256, 256, 3, 1, 1, "bf16", "bias_relu")
_FORWARD = GpuProduct(4096, 768, 3072, "bf16", epilogue="bias_gelu")
_BACK = GpuProduct(4096, 3072, 768, "bf16", epilogue="bias")
_ODD = GpuConvolution(20, 14, 256, 200, 3, 1, 1, "bf16")
FUSED = (
    Case("conv_32x14x256_256_3x3_s1_relu_bf16", _RECTIFIED, 5, QUICK),
    Case("gemm_4096x768x3072_gelu_bf16", _FORWARD, 5, QUICK),
    Case("gemm_4096x3072x768_bias_bf16", _BACK, 5, QUICK),
)
"""Kernels with the epilogues that follow them in ResNet-50 and in BERT-base."""
FORMS = (
    Case("attention_32x2048x128_gqa_causal", replace(_attention(True), heads=32, group=4), 8),
    Case("attention_16x2000x128", _attention(False, 2000), 8),
    Case("gemm_4000x4016x4008_bf16", GpuProduct(4000, 4008, 4016, "bf16"), 8),
    Case("conv_20x14x256_200_3x3_s1_bf16", _ODD, 5, QUICK),
)
"""Heads that share keys, and extents that are no multiples of a block."""
CASES: tuple[Case, ...] = (*FIRST, *PRODUCTS, *FORMS, *CONVOLUTIONS, *FUSED)

_TINY_FUSED = GpuProduct(64, 48, 32, "f32", epilogue="bias_gelu")
_TINY_SHARED = GpuAttention(4, 40, 40, 16, False, "f32", group=2)
TINY = (
    Case("gemm_96x64x48_f32", GpuProduct(96, 64, 48, "f32"), 4, ("xla_default",)),
    Case("attention_2x64x16_causal", GpuAttention(2, 64, 64, 16, True, "f32"), 4, ("xla_default",)),
    Case("softmax_8x100_f32", GpuRows("softmax", 8, 100, "f32"), 4, ("xla_default",)),
    Case("gemm_64x48x32_gelu_f32", _TINY_FUSED, 4, ("xla_default",)),
    Case("conv_1x8x16_16_3x3", GpuConvolution(1, 8, 16, 16, 3, 1, 1, "f32"), 4, ("xla_default",)),
    Case("attention_4x40x16_gqa", _TINY_SHARED, 4, ("xla_default",)),
)
"""Cases for a run without a GPU, where kernels are interpreted."""


def as_json(kernel: GpuKernel) -> dict[str, Any]:
    return {"kind": type(kernel).__name__, **asdict(kernel)}


def from_json(fields: dict[str, Any]) -> GpuKernel:
    rest = {name: value for name, value in fields.items() if name != "kind"}
    kernel: GpuKernel = KINDS[fields["kind"]](**rest)
    return kernel
