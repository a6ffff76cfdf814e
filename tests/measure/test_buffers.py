"""Guard pages: what is outside of a buffer cannot be touched unseen."""

import subprocess
import sys

import numpy as np
import pytest

from hlotune.measure.verification.buffers import POISON, POISONS, Pages, Placement, guarded, rounded


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


def test_poisons_differ_and_those_of_the_first_two_calls_in_sign_and_lowest_bit() -> None:
    assert len(set(POISONS)) == len(POISONS)
    assert (POISONS[0] ^ POISONS[1]) & 0x81 == 0x81


def test_an_element_is_unwritten_while_all_its_bytes_are_poison() -> None:
    buffer = guarded(12, "behind", POISONS[1])
    buffer.array((3,), np.dtype(np.int32))[:] = [5, 0x7E7E7E7E, 0x7E7E7E7F]
    assert buffer.unwritten(4).tolist() == [False, True, False]


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
        "import ctypes; from hlotune.measure.verification.buffers import guarded;"
        f"b = guarded(5000, {placement!r}); {touch[act].format(offset)}"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode < 0


def test_kept_pages_are_given_again_as_fresh_ones() -> None:
    pages = Pages()
    first, second = pages.guarded(5000, "behind"), pages.guarded(64, "behind")
    assert first.address != second.address
    first.memory[...] = 7  # the data, and what is beside it
    pages.release()
    again = pages.guarded(4992, "before")
    assert again.memory.ctypes.data == first.memory.ctypes.data
    assert (again.data == POISON).all()
    assert again.intact
    assert again.address % 64 == 0


def test_what_does_not_fit_into_kept_pages_gets_others() -> None:
    pages = Pages()
    pages.guarded(64, "before")
    pages.release()
    large = pages.guarded(100_000, "before")
    large.fill(1)
    assert (large.data.size, large.intact) == (100_000, True)


@pytest.mark.parametrize(("placement", "offset"), [("behind", 5000), ("before", 8192)])
def test_the_guard_page_moves_with_the_end_of_what_is_kept(
    placement: Placement, offset: int
) -> None:
    program = (
        "import ctypes; from hlotune.measure.verification.buffers import Pages;"
        "p = Pages(); p.guarded(50_000, 'before').fill(1); p.release();"
        f"b = p.guarded(5000, {placement!r}); b.fill(2); print(b.intact, flush=True);"
        f"ctypes.string_at(b.address + {offset}, 1)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.stdout == b"True\n"
    assert done.returncode < 0


def test_memory_that_was_closed_for_a_small_buffer_is_open_for_a_large_one() -> None:
    pages = Pages()
    for size in (50_000, 5000, 50_000, 9000, 20_000):
        pages.release()
        buffer = pages.guarded(size, "behind")
        buffer.fill(3)
        assert (buffer.data == 3).all()
        assert buffer.intact
