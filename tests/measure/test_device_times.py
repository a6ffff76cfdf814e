"""Times on a GPU, as far as they can be had without one."""

import jax
import jax.numpy as jnp
import pytest

from hlotune.measure.machine import gpu_clocks
from hlotune.measure.machine.gpu_clocks import GpuClocks
from hlotune.measure.timing.device_times import DeviceTimes, by_call, times


def test_kernels_are_counted_to_the_calls_that_launched_them() -> None:
    kernels = [("product", 2.0), ("sum", 1.0), ("product", 4.0), ("sum", 1.0)]
    assert by_call(kernels, 2) == ((3e-3, 5e-3), 2)


@pytest.mark.parametrize("kernels", [[], [("product", 2.0)] * 3])
def test_calls_that_did_not_launch_equally_many_have_no_times(
    kernels: list[tuple[str, float]],
) -> None:
    assert by_call(kernels, 2) == ((), 0)


def test_the_time_of_kernels_counts_before_that_of_a_queue() -> None:
    assert DeviceTimes((3.0, 1.0, 2.0), 9.0, 1).seconds == 2.0
    assert DeviceTimes((), 9.0, 0).seconds == 9.0


def test_without_a_tracer_calls_are_timed_in_a_queue() -> None:
    x = jnp.ones((64, 64))
    compiled = jax.jit(lambda a: a @ a).lower(x).compile()
    measured = times(compiled, [(x,)], warm_s=0.001, sample_s=0.001)
    assert measured.kernels_s == ()
    assert 0 < measured.seconds < 1


def test_clocks_of_a_machine_without_a_gpu_are_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_clocks, "LIBRARY", "libnot-there.so.1")
    assert GpuClocks().read() == {}
