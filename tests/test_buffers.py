"""Guard pages: what is outside of a buffer cannot be touched unseen."""

import subprocess
import sys

import numpy as np
import pytest

from hlotune.measure.buffers import POISON, Placement, guarded, rounded


@pytest.mark.parametrize("placement", ["before", "behind"])
@pytest.mark.parametrize("size", [0, 1, 60, 64, 4096, 5000, 8192])
def test_all_bytes_of_a_buffer_can_be_written(size: int, placement: Placement) -> None:
    buffer = guarded(size, placement)
    buffer.fill(7)
    assert (buffer.data == 7).all()
    assert buffer.data.size == size
    assert buffer.intact


def test_a_fresh_buffer_reads_as_nan() -> None:
    assert np.isnan(guarded(40, "behind").array((2, 5), np.dtype(np.float32))).all()
    assert POISON == 0xFF


def test_arrays_share_the_memory_of_their_buffer() -> None:
    buffer = guarded(16, "behind")
    buffer.array((4,), np.dtype(np.int32))[...] = 5
    assert bytes(buffer.data[:4]) == b"\x05\0\0\0"


def test_an_array_keeps_its_memory_alive() -> None:
    array = guarded(4096, "before").array((1024,), np.dtype(np.float32))
    array[...] = 1.0
    assert float(np.sum(array.astype(np.float64))) == 1024.0


@pytest.mark.parametrize("size", [64, 4096, 6400])
def test_sizes_that_are_multiples_of_64_are_aligned(size: int) -> None:
    assert guarded(size, "behind").address % 64 == 0
    assert guarded(size, "before").address % 64 == 0


def test_rounding_goes_up_to_a_multiple_of_64() -> None:
    assert [rounded(n) for n in (0, 1, 64, 65)] == [0, 64, 64, 128]


@pytest.mark.parametrize(("placement", "offset"), [("behind", -1), ("before", 5000)])
def test_writes_beside_the_data_on_its_pages_are_seen(placement: Placement, offset: int) -> None:
    buffer = guarded(5000, placement)
    buffer.memory[buffer.start + offset] = 0
    assert not buffer.intact


@pytest.mark.parametrize(("placement", "offset"), [("behind", 5000), ("before", -1)])
@pytest.mark.parametrize("act", ["read", "write"])
def test_the_guard_page_ends_the_process(placement: Placement, offset: int, act: str) -> None:
    touch = {
        "read": "ctypes.string_at(b.address + {}, 1)",
        "write": "ctypes.memset(b.address + {}, 0, 1)",
    }
    program = (
        "import ctypes; from hlotune.measure.buffers import guarded;"
        f"b = guarded(5000, {placement!r}); {touch[act].format(offset)}"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode < 0
