"""Memory in large pages: values that stay lie in it one behind the other, and JAX takes them so."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from hlotune.schedules.large_pages import (
    ALIGNMENT,
    LEAST_BYTES,
    PAGE_BYTES,
    REGION_BYTES,
    joined,
    lasting,
    region,
)


def values(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, size, np.uint8)


def test_values_are_copied_and_keep_what_they_are_when_more_come() -> None:
    given = [values(n, n) for n in (7, LEAST_BYTES, LEAST_BYTES + 3, REGION_BYTES + 5, 99_999)]
    kept = [lasting(v) for v in given]
    for a, b in zip(given, kept, strict=True):
        np.testing.assert_array_equal(a, b)
        assert b.ctypes.data % ALIGNMENT == 0
        assert not np.shares_memory(a, b)


def test_a_region_begins_with_a_page_and_is_as_large_as_asked_for() -> None:
    found = region(3 * PAGE_BYTES + 1)
    assert found.ctypes.data % PAGE_BYTES == 0
    assert found.size > 3 * PAGE_BYTES
    assert not found[:: PAGE_BYTES // 2].any()


def test_jax_takes_lasting_values_without_a_copy() -> None:
    kept = lasting(values(LEAST_BYTES, 0))
    assert jax.device_put(kept).unsafe_buffer_pointer() == kept.ctypes.data


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not list mappings so")
def test_linux_is_asked_for_large_pages_of_memory_that_is_not_shared() -> None:
    found = region(PAGE_BYTES)
    flags = flags_at(found.ctypes.data)
    assert "hg" in flags
    assert "sh" not in flags


def flags_at(address: int) -> list[str]:
    """The flags of the mapping that an address of this process lies in."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            low, high = (int(n, 16) for n in first.split("-"))
            inside = low <= address < high
        elif inside and first == "VmFlags:":
            return rest
    raise AssertionError(f"{address:#x} lies in no mapping")


def test_joined_values_lie_one_behind_the_other() -> None:
    given = [values(n, n) for n in (7, LEAST_BYTES, 0, 99_999, 64, 8)]
    array, offsets = joined(given)
    assert offsets == (0, 64, 64 + LEAST_BYTES, 64 + LEAST_BYTES, 165_632, 165_696)
    for value, at in zip(given, offsets, strict=True):
        np.testing.assert_array_equal(array[at : at + value.nbytes], value)
    assert array.ctypes.data % ALIGNMENT == 0
    assert array.nbytes == 165_760


def test_no_values_are_an_array_of_no_bytes() -> None:
    array, offsets = joined([])
    assert (array.nbytes, offsets) == (0, ())
