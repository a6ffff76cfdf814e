"""What arrays leave behind is not handed back to the system between two steps of a search."""

import resource

import numpy as np
import pytest

from hlotune.codegen.kept_memory import keep_memory

SIZES = [200_000, 700_000, 3_000_000]
"""Bytes: below and above what glibc takes from the heap unless it is told."""


@pytest.mark.skipif(not keep_memory(), reason="the C library has no such setting")
def test_arrays_of_a_step_take_the_pages_of_the_step_before() -> None:
    def step() -> None:
        arrays = [np.ones(size, np.uint8) for size in SIZES for _ in range(4)]
        assert all(a[-1] for a in arrays)

    step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    pages_of_a_step = 4 * sum(SIZES) // resource.getpagesize()
    assert faults < pages_of_a_step, (faults, pages_of_a_step)
