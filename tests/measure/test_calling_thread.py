"""A process that measures runs programs in the thread that calls them."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from pathlib import Path

import numpy as np

from hlotune.hlo.mlir.versions import run_in_the_calling_thread
from hlotune.measure.timing.xla import compiled, on_device

if sys.argv[1] == "calling":
    run_in_the_calling_thread()
SQUARE = "tensor<256x256xf32>"
product = compiled(
    f"func.func @main(%a: {SQUARE}) -> {SQUARE} {{ %c = stablehlo.dot_general %a, %a, "
    f"contracting_dims = [1] x [0] : ({SQUARE}, {SQUARE}) -> {SQUARE} return %c : {SQUARE} }}"
)
square = on_device(np.ones((256, 256), np.float32))
for _ in range(20):
    product([square])[0].block_until_ready()
turns = 0
for thread in Path("/proc/self/task").iterdir():
    if (thread / "comm").read_text().startswith("tf_XLAExecute"):
        turns += int((thread / "schedstat").read_text().split()[2])
print(turns)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_call_is_handed_to_no_other_thread_where_that_is_asked_for() -> None:
    """To each of 20 calls, a thread that programs are handed to would have run at least once."""
    assert turns("calling") < 20
    if turns("any") < 20:
        pytest.skip("this release of jaxlib has no such thread")


def turns(mode: str) -> int:
    """How often threads that programs are handed to had their turn on a processor."""
    command = [sys.executable, "-c", PROGRAM, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return int(done.stdout)
