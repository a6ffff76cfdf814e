"""Our threads awake before a kernel is timed, as they are behind another kernel of a program.

They look for work for some tens of microseconds, about as long as Python takes from call to call:
without this, one call in seven of a kernel of 0.4 ms met sleeping threads, and took 0.06 ms more.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import Template

import numpy as np

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.codegen.runtime.support import machine_code
from hlotune.schedules.targets.cpu import CpuTarget

_LOOKS = 1 << 18
"""Longer than a thread takes to wake: one that never comes is not waited for much longer."""


@cache
def meeting(target: CpuTarget) -> Callable[[], bool]:
    """Brings all threads of kernels together; it tells whether all of them came.

    A thread does not come while another process has its processor.
    """
    text = Template(Path(__file__).with_name("wake_threads.ll").read_text(encoding="utf-8"))
    source = text.substitute(threads=target.threads, looks=_LOOKS)
    object_ = machine_code(source, target, "meeting")
    kernel = load(Built(object_, 0, (), 0, target.threads))
    state, host = np.zeros(8, np.int64), crew_host()

    def meet() -> bool:
        state[:2] = 0
        kernel.call(KERNEL, [], [int(state.ctypes.data)], 0, host)
        return not state[1]

    return meet
