"""The options of XLA that are tried, by the kind of target, with the values that each may take.

Those that let results be less exact are not among them.  A release of XLA that lacks one refuses
it, and that trial fails.
"""

from dataclasses import dataclass

from hlotune.schedules.targets.kinds import CPU, GPU, TPU
from hlotune.schedules.targets.target import Kind

Value = bool | int | str


@dataclass(frozen=True, slots=True)
class Option:
    """An option, and its values besides the one that XLA has by itself."""

    name: str
    values: tuple[Value, ...]


def _fusions(*kinds: str) -> str:
    return ",".join(f"LIBRARY_FUSION_TYPE_{kind}" for kind in kinds)


OPTIONS: dict[Kind, tuple[Option, ...]] = {
    CPU: (
        Option(
            "xla_cpu_experimental_ynn_fusion_type",
            (
                "",
                _fusions("DOT"),
                _fusions("INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"),
                _fusions("DOT", "REDUCE", "INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"),
                _fusions("DOT", "ELTWISE", "REDUCE", "INDIVIDUAL_DOT", "INDIVIDUAL_CONVOLUTION"),
            ),
        ),
        Option("xla_cpu_enable_fast_min_max", (True, False)),
        Option("xla_cpu_prefer_vector_width", (128, 256, 512)),
        Option("xla_cpu_multi_thread_eigen", (False,)),
        Option("xla_cpu_enable_concurrency_optimized_scheduler", (True, False)),
        Option("xla_cpu_copy_insertion_use_region_analysis", (True,)),
        Option("xla_disable_hlo_passes", ("fusion", "algsimp")),
        Option("xla_llvm_disable_expensive_passes", (True,)),
    ),
    GPU: (
        Option("xla_gpu_autotune_level", (0, 2)),
        Option("xla_gpu_enable_triton_gemm", (True, False)),
        Option("xla_gpu_triton_gemm_any", (True, False)),
        Option("xla_gpu_exhaustive_tiling_search", (True,)),
        Option("xla_gpu_enable_cublaslt", (True, False)),
        Option("xla_gpu_cublas_fallback", (False,)),
        Option("xla_gpu_experimental_enable_fusion_autotuner", (True, False)),
        Option("xla_gpu_enable_latency_hiding_scheduler", (True,)),
        Option("xla_gpu_enable_fast_min_max", (True,)),
        Option("xla_gpu_force_conv_nhwc", (True,)),
        Option("xla_gpu_force_conv_nchw", (True,)),
    ),
    TPU: (
        Option("xla_tpu_scoped_vmem_limit_kib", (16384, 32768, 65536, 98304)),
        Option("xla_tpu_dot_dot_fusion", (True, False)),
        Option("xla_tpu_rwb_fusion", (True, False)),
        Option("xla_tpu_enable_latency_hiding_scheduler", (True, False)),
        Option("xla_jf_conv_input_fusion", (True, False)),
        Option("xla_jf_conv_output_fusion", (True, False)),
    ),
}
