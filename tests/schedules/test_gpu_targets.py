"""GPUs by name, present or absent."""

import pytest

from hlotune.schedules.errors import TargetError
from hlotune.schedules.targets.gpu import GPU_TARGETS, gpu_target, gpu_target_of


def test_targets_are_known_without_a_gpu() -> None:
    assert {"cuda:a100", "cuda:h100", "cuda:h200"} <= GPU_TARGETS.keys()
    assert gpu_target("cuda:h100").architecture == "sm_90"
    assert gpu_target("cuda:a100").architecture == "sm_80"
    assert gpu_target("cuda:h200").memory_bytes_per_s > gpu_target("cuda:h100").memory_bytes_per_s


def test_only_hopper_multiplies_by_warpgroups() -> None:
    names = {name for name, target in GPU_TARGETS.items() if target.warpgroup_products}
    assert names == {"cuda:h100", "cuda:h200"}


def test_a_name_that_is_unknown_is_one_clear_error() -> None:
    with pytest.raises(TargetError, match="no GPU is called 'cuda:x': expected one of cuda:a100"):
        gpu_target("cuda:x")


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "cuda:h100"),
        ("NVIDIA H200", "cuda:h200"),
        ("NVIDIA A100-SXM4-40GB", "cuda:a100"),
    ],
)
def test_a_device_is_known_by_the_drivers_name(title: str, name: str) -> None:
    target = gpu_target_of(title)
    assert (target.name, target.device) == (name, title)


def test_a_device_that_is_unknown_is_one_clear_error() -> None:
    with pytest.raises(TargetError, match="the device is 'cpu': expected one of NVIDIA A100"):
        gpu_target_of("cpu")


def test_measured_rates_replace_the_makers() -> None:
    target = gpu_target("cuda:h100").measured(3.0e12, {"bf16": 7.5e14})
    assert target.memory_bytes_per_s == 3.0e12
    assert target.flops_per_s["bf16"] == 7.5e14
    assert target.flops_per_s["f32"] == gpu_target("cuda:h100").flops_per_s["f32"]
