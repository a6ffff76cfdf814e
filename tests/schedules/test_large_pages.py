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


def test_joined_values_are_found_where_their_parts_say() -> None:
    sizes = (7, LEAST_BYTES, 0, REGION_BYTES + 5, 99_999, 64, LEAST_BYTES + 3, 8)
    given = [lasting(values(n, n)) for n in sizes]
    found = joined(given)
    for value, (which, at) in zip(given, found.parts, strict=True):
        part = found.arrays[which][at : at + value.nbytes]
        np.testing.assert_array_equal(part, value)
        assert part.ctypes.data % ALIGNMENT == 0


def test_values_that_lie_in_one_region_are_not_copied() -> None:
    whole = region(REGION_BYTES)
    given = [whole[LEAST_BYTES * n : LEAST_BYTES * n + 100] for n in range(3)]
    small = lasting(values(5, 5))
    found = joined([given[2], small, given[0]])
    assert len(found.arrays) == 2
    for k, value in ((0, given[2]), (2, given[0])):
        which, at = found.parts[k]
        assert found.arrays[which][at:].ctypes.data == value.ctypes.data
    assert not np.shares_memory(found.arrays[found.parts[1][0]], small)


def test_a_joined_array_ends_with_its_last_value() -> None:
    whole = region(REGION_BYTES)
    found = joined([whole[128:192], whole[640:648]])
    assert [(x.ctypes.data - whole.ctypes.data, x.nbytes) for x in found.arrays] == [(128, 520)]
    assert found.parts == ((0, 0), (0, 512))


def test_no_values_are_no_arrays() -> None:
    assert joined([]).arrays == ()


def test_jax_takes_joined_values_without_a_copy() -> None:
    whole = region(REGION_BYTES)
    (array,) = joined([whole[64:LEAST_BYTES], whole[LEAST_BYTES : 2 * LEAST_BYTES]]).arrays
    assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data
