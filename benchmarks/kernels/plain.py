"""Plain loops that move as many bytes as a case: what a cache level or memory gives beside it.

They are forms of our own worker, so that they are timed in turns with everybody else's calls, and
each is there twice.  As a custom call of a jitted function it is called as our kernels are: by the
same handler, on arrays of JAX, into results that XLA allocates in each call.  A case is held
against that.  Without XLA, on memory that is prepared beforehand, it tells what a loop alone takes.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bandwidth import CHOOSING_TURNS, reading
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.dispatcher import bind, crew_host
from hlotune.codegen.runtime.loader import KERNEL, load
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.peaks import READ_STREAMS, copy_text, read_text
from hlotune.measure.verification.buffers import guarded
from hlotune.schedules.targets.cpu import CpuTarget

READ, COPY, COPY_PAST = "read", "copy", "copy past"
DIRECT = (READ, COPY, COPY_PAST)
"""A read, and copies whose stores go to the caches or past them."""
JITTED = tuple(f"jitted {form}" for form in DIRECT)
"""The same as calls of a jitted function."""
FORMS = (*JITTED, *DIRECT)
MOST_BYTES = 1 << 29
"""A loop moves no more; what a case has beyond counts at the same rate."""
SHARE_OF_STORES = 8
"""A case whose results are less than this part of its bytes is held against the read."""
COPY_STREAMS = (1, 2)
"""Streams of a copy through the caches that are tried; past them one is the fastest."""
AHEAD_BYTES = (0, 8192)
"""How far ahead copies past the caches ask for what they read; both are tried."""
SINK_BYTES = 512
"""What a read stores for each thread."""


def loop_bytes(moved: int, form: str, target: CpuTarget) -> int:
    """The bytes that a loop of a form moves for a case: whole bodies on each thread."""
    parts = target.threads * (1 if form == READ else 2)
    body = max(4096, 8 * target.vector_bytes)
    return max(body, min(moved, MOST_BYTES) // parts // body * body) * parts


def loop(form: str, moved: int) -> tuple[Callable[[], object], int]:
    """A call without XLA that moves about so many bytes, and how many: it reads all, or copies one
    half."""
    target, host = host_target(), crew_host()
    size = loop_bytes(moved, form, target)
    if form == READ:
        return reading(size, target, host), size
    part = size // 2 // target.threads
    text = copy_text(part, target.threads, target.vector_bytes, past_caches=form == COPY_PAST)
    loaded = load(_built(text, target))
    source, copied = (guarded(part * target.threads, "before") for _ in range(2))
    source.data[...] = 1
    copied.data[...] = 0
    held = source, copied  # as long as the call: addresses alone keep nothing

    def call() -> object:
        return loaded.call(KERNEL, [held[0].address], [held[1].address], 0, host)

    return call, size


@dataclass(frozen=True, slots=True)
class Jitted:
    """A plain loop as a jitted function of one argument."""

    function: Any
    argument: Any
    bytes: int
    """The bytes that a call moves."""
    donates: bool
    """Whether the result lies where the argument was."""


def jitted(form: str, moved: int, *, in_place: bool) -> Jitted:
    """A jitted function that moves about so many bytes.

    Of a read's streams, a copy's streams and its requests ahead those are taken that are the
    fastest in calls.  A copy in place, whose argument is donated, stores what it reads where it
    was: a case whose arguments are donated is held against it.
    """
    plain_form, target = form.removeprefix("jitted "), host_target()
    size, reads = loop_bytes(moved, plain_form, target), plain_form == READ
    held = size if reads else size // 2
    results = SINK_BYTES * target.threads if reads else held
    donates = in_place and not reads
    functions = [
        _called(f"{form}.{size}.{k}.{donates}", text, results, target, donates=donates)
        for k, text in enumerate(texts(plain_form, size, target))
    ]
    argument = jax.device_put(np.ones(held, np.uint8))
    best, argument = fastest(functions, argument, donates=donates)
    return Jitted(best, argument, size, donates)


def texts(form: str, size: int, target: CpuTarget) -> list[str]:
    """The loops of a form that are tried."""
    tasks, vector = target.threads, target.vector_bytes
    if form == READ:
        return [read_text(size // tasks, tasks, vector, n) for n in READ_STREAMS]
    part = size // 2 // tasks
    if form == COPY:
        return [copy_text(part, tasks, vector, past_caches=False, streams=n) for n in COPY_STREAMS]
    return [copy_text(part, tasks, vector, past_caches=True, ahead_bytes=n) for n in AHEAD_BYTES]


def _called(key: str, text: str, result_bytes: int, target: CpuTarget, *, donates: bool) -> Any:
    bind(key, load(_built(text, target)))
    result = jax.ShapeDtypeStruct((result_bytes,), jnp.uint8)  # type: ignore[no-untyped-call]
    aliases = {0: 0} if donates else None
    call = jax.ffi.ffi_call(TARGET, result, input_output_aliases=aliases)
    number = np.int64(0)
    return jax.jit(
        lambda x: call(x, key=key, scratch_bytes=number), donate_argnums=(0,) if donates else ()
    )


def fastest(functions: Sequence[Any], argument: Any, *, donates: bool) -> tuple[Any, Any]:
    """The function whose shortest call in turns is the shortest, and the argument, which calls may
    have replaced."""
    times = [float("inf")] * len(functions)
    for _ in range(CHOOSING_TURNS):
        for k, function in enumerate(functions):
            for _ in range(2):  # the first call behind another function's warms up
                start = time.perf_counter()
                result = function(argument).block_until_ready()
                seconds = time.perf_counter() - start
                argument = result if donates else argument
            times[k] = min(times[k], seconds)
    return functions[times.index(min(times))], argument


def _built(text: str, target: CpuTarget) -> Built:
    return Built(compile_object(text, target, "plain"), 0, (), 0, target.threads)
