"""Large arrays whose values repeat take the memory of one period."""

import gc
import mmap

import numpy as np
import pytest

from hlotune.measure.verification.repeated import PERIOD, is_large, repeated


def test_the_elements_are_those_of_the_period_again_and_again() -> None:
    period = np.random.default_rng(0).standard_normal(mmap.PAGESIZE // 4, np.float32)
    values = repeated(period, (7, 500))
    assert np.array_equal(values, np.resize(period, (7, 500)))
    assert values.ctypes.data % mmap.PAGESIZE == 0
    with pytest.raises(ValueError, match="read-only"):
        values[0, 0] = 1


def test_the_memory_lives_as_long_as_any_view_of_it() -> None:
    period = np.arange(mmap.PAGESIZE // 4, dtype=np.int32)
    row = repeated(period, (4, period.size))[3, 5:8]
    gc.collect()
    assert row.tolist() == [5, 6, 7]


def test_an_array_of_a_few_periods_is_drawn_element_by_element() -> None:
    assert not is_large((PERIOD, 3))
    assert is_large((4096, 25088))
