"""Large arguments and results of kernels that are called again lie in pages of 2 MiB."""

import ctypes
import mmap
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend import backend
from jaxlib import xla_client
from numpy.typing import NDArray

from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.call_module import replacement
from hlotune.codegen.runtime.dispatcher import bind_empty, slot
from hlotune.hlo.graph import TensorType

MAPS, PAGE = Path("/proc/self/smaps"), 2 << 20
NO_LARGE = 15
"""Linux's number of MADV_NOHUGEPAGE."""
LIBC = ctypes.CDLL(None, use_errno=True)
RANGE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ")


def small_pages(size: int) -> NDArray[np.uint8]:
    """Ones from the start of a large page on, in small ones."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    memory = np.frombuffer(mmap.mmap(-1, size + 2 * PAGE, flags=flags), dtype=np.uint8)
    found = memory[-memory.ctypes.data % PAGE :][:size]
    advised(found, NO_LARGE)
    found[...] = 1
    return found


def advised(x: NDArray[np.uint8], advice: int) -> bool:
    whole = x.nbytes // PAGE * PAGE
    address = ctypes.c_void_p(x.ctypes.data)
    return int(LIBC.madvise(address, ctypes.c_size_t(whole), advice)) == 0


def in_large_pages(address: int, size: int) -> int:
    """Bytes in large pages of the mappings that an array lies in; these are its own, as they were
    asked for or refused for it alone."""
    found, inside = 0, False
    for line in MAPS.read_text(encoding="ascii", errors="replace").splitlines():
        if bounds := RANGE.match(line):
            low, high = (int(x, 16) for x in bounds.groups())
            inside = low < address + size and address < high
        elif inside and line.startswith("AnonHugePages:"):
            found += int(line.split()[1]) << 10
    return found


def can_move() -> bool:
    """Whether Linux moves what lies in small pages, which it does from 6.1 on."""
    if sys.platform != "linux" or not MAPS.exists() or dispatcher._small_pages_alone():
        return False
    found = small_pages(PAGE)
    return all(advised(found, n) for n in (dispatcher.MADV_HUGEPAGE, dispatcher.MADV_COLLAPSE))


def repeated(key: str, argument: TensorType, result: TensorType) -> Callable[[Any], Any]:
    """A program of one call of a kernel that does nothing."""
    slot(key)
    bind_empty(key)
    client = backend.get_backend("cpu")
    devices = xla_client.DeviceList((client.local_devices()[0],))
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    text = replacement(key, [argument], [result], 0, {})
    executable = client.compile_and_load(text.encode(), devices, options)

    def run(given: Any) -> Any:
        out = executable.execute_sharded([given]).disassemble_into_single_device_arrays()
        return out[0][0].block_until_ready()

    return run


@pytest.mark.skipif(not can_move(), reason="Linux moves nothing into large pages here")
@pytest.mark.parametrize("megabytes", [8, 3])
def test_large_arguments_of_calls_that_are_repeated_lie_in_large_pages(megabytes: int) -> None:
    size = megabytes << 20
    memory = small_pages(size)
    given = jax.device_put(memory)
    assert given.unsafe_buffer_pointer() == memory.ctypes.data
    run = repeated(f"pages of {size}", TensorType((size,), "ui8"), TensorType((8,), "f32"))
    seen = []
    for _ in range(3):
        run(given)
        seen.append(in_large_pages(memory.ctypes.data, size))
    assert seen == ([0, size, size] if megabytes == 8 else [0, 0, 0])
    assert (memory == 1).all()
