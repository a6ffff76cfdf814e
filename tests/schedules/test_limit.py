"""The least time that measured peaks allow, and how near to it a time comes."""

from dataclasses import replace

import pytest

from hlotune.schedules.targets.gpu import GPU_TARGETS
from hlotune.schedules.targets.limit import Limit, last_cache_bytes, limit_of
from hlotune.schedules.targets.target import Properties
from hlotune.schedules.targets.tpu import TPU_TARGETS
from tests.support.recorded import TARGET

PEAKS = Properties(flops_per_s={"f32": 1e11}, read_bytes_per_s=1e10, clock_hz=3e9)


def test_arithmetic_alone_limits_what_fits_into_the_last_cache() -> None:
    assert limit_of(10**8, TARGET.l3_bytes, "f32", TARGET, PEAKS) == Limit(1e-3, 0.0)


def test_what_does_not_fit_comes_from_memory() -> None:
    found = limit_of(10**6, 10**9, "f32", TARGET, PEAKS)
    assert found == Limit(1e-5, 0.1)
    assert found is not None and (found.time_s, found.bound) == (0.1, "memory")


def test_a_type_without_a_peak_has_no_limit() -> None:
    assert limit_of(10**6, 100, "i4", TARGET, PEAKS) is None
    assert limit_of(10**6, 100, "f32", TARGET, replace(PEAKS, read_bytes_per_s=0.0)) is None
    assert limit_of(0, 100, "f32", TARGET, PEAKS) is None


def test_the_score_is_the_part_of_the_way_that_was_gone() -> None:
    limit = Limit(1e-3, 0.0)
    assert limit.score(3e-3, 3e-3) == 0
    assert limit.score(3e-3, 2e-3) == pytest.approx(0.5)
    assert limit.score(3e-3, 1e-3) == pytest.approx(1.0)
    assert limit.score(3e-3, 0.5e-3) == pytest.approx(1.25)
    assert limit.score(1e-3, 0.9e-3) is None
    assert limit.share(2e-3) == 0.5


def test_each_kind_of_target_has_a_last_cache_or_none() -> None:
    gpu, tpu = next(iter(GPU_TARGETS.values())), next(iter(TPU_TARGETS.values()))
    assert last_cache_bytes(TARGET) == TARGET.l3_bytes
    assert last_cache_bytes(gpu) == gpu.l2_bytes
    assert last_cache_bytes(tpu) == 0
