"""Plain loops that move as many bytes as a case: what a cache level or memory gives beside it.

They are forms of our own worker, so that they are timed in turns with everybody else's calls.
"""

from collections.abc import Callable

from benchmarks.bandwidth import reading
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import copy_text
from hlotune.measure.verification.buffers import guarded
from hlotune.schedules.targets.cpu import CpuTarget

READ, COPY, COPY_PAST = "read", "copy", "copy past"
FORMS = (READ, COPY, COPY_PAST)
"""A read, and copies whose stores go to the caches or past them."""
MOST_BYTES = 1 << 29
"""A loop moves no more; what a case has beyond counts at the same rate."""
SHARE_OF_STORES = 8
"""A case whose results are less than this part of its bytes is held against the read."""


def loop_bytes(moved: int, form: str, target: CpuTarget) -> int:
    """The bytes that a loop of a form moves for a case: whole bodies on each thread."""
    parts = target.threads * (1 if form == READ else 2)
    body = max(4096, 8 * target.vector_bytes)
    return max(body, min(moved, MOST_BYTES) // parts // body * body) * parts


def loop(form: str, moved: int) -> tuple[Callable[[], object], int]:
    """A call that moves about so many bytes, and how many: it reads all, or copies one half."""
    target, host = host_target(), crew_host()
    size = loop_bytes(moved, form, target)
    if form == READ:
        return reading(size, target, host), size
    part = size // 2 // target.threads
    text = copy_text(part, target.threads, target.vector_bytes, past_caches=form == COPY_PAST)
    loaded = load(Built(compile_object(text, target, "copy"), 0, (), 0, target.threads))
    source, copied = (guarded(part * target.threads, "before") for _ in range(2))
    source.data[...] = 1
    copied.data[...] = 0
    held = source, copied  # as long as the call: addresses alone keep nothing

    def call() -> object:
        return loaded.call(KERNEL, [held[0].address], [held[1].address], 0, host)

    return call, size
