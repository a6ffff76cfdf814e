"""The space of each kind of kernel that GPUs have schedules for."""

from hlotune.schedules.patterns.gpu import (
    GpuAttention,
    GpuConvolution,
    GpuProduct,
    GpuRows,
)
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu.attention import attention_space
from hlotune.schedules.spaces.gpu.convolutions import convolution_space
from hlotune.schedules.spaces.gpu.products import product_space
from hlotune.schedules.spaces.gpu.rows import rows_space
from hlotune.schedules.spaces.gpu.space import GpuSpace
from hlotune.schedules.spaces.gpu.stages import stages_space
from hlotune.schedules.targets.gpu import GpuTarget


def gpu_space(kernel: AnyGpuKernel, target: GpuTarget) -> GpuSpace:
    """All schedules of a kernel on a GPU."""
    match kernel:
        case GpuProduct():
            return product_space(kernel, target)
        case GpuRows():
            return rows_space(kernel, target)
        case GpuStages():
            return stages_space(kernel, target)
        case GpuAttention():
            return attention_space(kernel, target)
        case GpuConvolution():
            return convolution_space(kernel, target)
