"""What arrays leave behind is not handed back to the system between two steps of a search, or two
calls of a kernel."""

import ctypes
import os
import subprocess
import sys

import pytest

from hlotune.codegen.runtime.malloc_settings import MAPPED_APART
from hlotune.schedules.spaces.cpu_rows.streams import NEW_MEMORY
from tests.support.tree import ROOT

FAULTS = """
import resource
import numpy as np
{begin}
SIZES = [200_000, 700_000, 3_000_000]  # bytes: below and above what glibc takes from the heap

def step():
    arrays = [np.ones(size, np.uint8) for size in SIZES for _ in range(4)]
    assert all(a[-1] for a in arrays)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults, 4 * sum(SIZES) // resource.getpagesize())
"""
KEEPING = "from hlotune.codegen.runtime.malloc_settings import keep_memory; keep_memory()"
REGISTERING = (
    "from hlotune.codegen.runtime.dispatcher import ensure_registered; ensure_registered()"
)


def output_of(program: str, **variables: str) -> str:
    told = ("MALLOC_", "GLIBC_TUNABLES")
    kept = {name: v for name, v in os.environ.items() if not name.startswith(told)}
    environment = kept | {"JAX_PLATFORMS": "cpu"} | variables
    command = [sys.executable, "-c", program]
    found = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
@pytest.mark.parametrize("begin", (KEEPING, REGISTERING), ids=("asked", "kernels registered"))
def test_arrays_of_a_step_take_the_pages_of_the_step_before(begin: str) -> None:
    faults, pages_of_a_step = map(int, output_of(FAULTS.format(begin=begin)).split())
    assert faults < pages_of_a_step


LARGE = """
import resource
import numpy as np
from hlotune.codegen.runtime.malloc_settings import keep_memory
keep_memory()

np.ones(48 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    np.ones(48 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def takes_large_arrays() -> bool:
    """Whether glibc keeps arrays of more than 32 MiB."""
    name = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
    return tuple(map(int, name.split()[1].split("."))) >= (2, 35) if name else False


@pytest.mark.skipif(not takes_large_arrays(), reason="an older glibc, or another C library")
def test_an_array_above_32_mib_takes_the_pages_of_the_one_before() -> None:
    assert int(output_of(LARGE)) < 1000  # 12,288 pages each


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library")
@pytest.mark.parametrize(
    ("variable", "value", "kept"),
    (
        ("MALLOC_TRIM_THRESHOLD_", "1", "False"),
        ("GLIBC_TUNABLES", "glibc.malloc.arena_max=1", "False"),
        ("GLIBC_TUNABLES", "glibc.rtld.nns=4", "True"),
    ),
)
def test_who_has_told_malloc_something_is_left_alone(variable: str, value: str, kept: str) -> None:
    program = (
        "from hlotune.codegen.runtime.malloc_settings import keep_memory; print(keep_memory())"
    )
    assert output_of(program, **{variable: value}) == kept


def test_schedules_know_from_which_size_on_results_are_mapped_anew() -> None:
    assert MAPPED_APART[0] == NEW_MEMORY
