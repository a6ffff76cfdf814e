"""The bridge from XLA to our kernels: one custom call, and slots whose kernel can be swapped.

XLA knows a single target, `hlotune_call`.  A call site names its kernel by a key that is the same
in every process; when XLA loads the program, the handler looks the key up once and keeps the
slot.  `bind` decides, at any time, what machine code a slot runs, so that one compiled program
can run one candidate after another.  The handlers are in
`dispatcher.ll` and, for sites of several keys, `sequence.ll`; loops are in `pool.ll`.

Loops of a kernel run on threads of our own, one bound to each processor (`thread_pool.py`), over as
many as the kernel was built for and XLA's pool has: one contiguous range a thread, the same way in
every loop.  No loop waits for a thread that has not started: the caller takes its range instead.

Scratch is a result of the custom call that nobody reads: XLA allocates it, and calls that run at
the same time get different ones.  So that it is no new memory of the system in each call, the
process keeps what is freed (`malloc_settings.py`).  The second to fourth call of a site moves its
arguments and results of 4 MiB and more into pages of 2 MiB, which Linux does on demand from 6.1 on
(`moved_pages.py`); the first that is refused is the last that is tried.  Results above 32 MiB may
be new memory all the same: they are asked for in such pages as long as that is not slow
(`new_pages.ll`).
"""

import ctypes
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any, cast

import jax

from hlotune.codegen.llvm.compile import compile_for_process
from hlotune.codegen.runtime import moved_pages
from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.loader import KERNEL, Host, Library, Loaded
from hlotune.codegen.runtime.malloc_settings import keep_memory
from hlotune.codegen.runtime.thread_pool import Crew, processors, start
from hlotune.schedules.targets.cpu import HOST_PLATFORM

# Formats of the errors that XLA raises for us; each gets the key (length, text), then two numbers.
_MESSAGES = {
    "no_key": "hlotune_call: expected a string attribute 'key', got none%.*s; "
    "make the call with hlotune.codegen.runtime.call_module.replacement",
    "not_loaded": "hlotune_call: kernel '%.*s' is not loaded in this process; "
    "load the program through hlotune, which binds its kernels before XLA compiles it",
    "not_bound": "hlotune_call: kernel '%.*s' has a slot, but no machine code is bound to it; "
    "bind it before the program runs",
    "few_scratch": "hlotune_call: kernel '%.*s' needs %lld bytes of scratch, "
    "the program gives %lld; compile the program with the scratch_bytes of what is bound",
    "not_packed": "hlotune_call: kernel '%.*s' needs argument %lld packed in %lld bytes, "
    "the program gives it otherwise; compile the program with the packed argument",
    "bad_status": "hlotune_call: kernel '%.*s' failed with status %lld; "
    "take its record out of the database, or tune it again",
}
_EXPORTS = (
    "hlotune_instantiate", "hlotune_execute", "hlotune_link", "hlotune_swap", "hlotune_empty",
    "hlotune_state_type", "hlotune_state_info", "hlotune_parallel_for", "hlotune_threads",
    "hlotune_crew", "hlotune_work", "hlotune_serve",
)  # fmt: skip
_PAUSE = {"x86_64": "pause", "AMD64": "pause", "aarch64": "yield", "arm64": "yield"}


class _Slot(ctypes.Structure):
    _fields_ = (
        ("next", ctypes.c_void_p),
        ("binding", ctypes.c_void_p),
        ("running", ctypes.c_int64),
        ("key", ctypes.c_char_p),
        ("key_length", ctypes.c_int64),
    )


class _Packed(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_int64), ("bytes", ctypes.c_int64))


class _Binding(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("threads", ctypes.c_int64),
        ("scratch_bytes", ctypes.c_int64),
        ("packed", ctypes.c_void_p),
        ("packed_count", ctypes.c_int64),
        ("moves", ctypes.c_int64),
    )


@dataclass(slots=True)
class _Entry:
    """A slot, and what lives as long as a call may run it: what is bound, and what was before."""

    struct: _Slot
    bound: list[object] = field(default_factory=list)


_lock = RLock()
_entries: dict[str, _Entry] = {}


def slot(key: str) -> int:
    """Address of a key's slot, made on first use: from then on programs that name it compile."""
    return ctypes.addressof(_entry(key).struct)


def bind(key: str, loaded: Loaded, entry: str = KERNEL) -> None:
    """Makes calls of `key` run an entry of a loaded kernel, from the next call on.

    The kernel bound before is let go once no call of it runs.

    Raises:
        BuildError: the kernel has no such entry.
    """
    built = loaded.built
    forms = sorted(built.packed, key=lambda p: p.argument)
    packed = (_Packed * len(forms))(*(_Packed(p.argument, p.bytes) for p in forms))
    binding = _Binding(
        loaded.address(entry), built.threads, built.scratch_bytes,
        ctypes.addressof(packed), len(packed), True,
    )  # fmt: skip
    _bind(key, binding, (binding, packed, loaded))


def bind_empty(key: str, *, moves: bool = False) -> None:
    """Makes calls of `key` return at once, with results unwritten: what a call itself costs.

    Such calls do not count among those of a site that move its memory, unless they are to: then
    calls of kernels find it moved.
    """
    binding = _Binding(_library().address("hlotune_empty"), 1, 0, None, 0, moves)
    _bind(key, binding, binding)


def _bind(key: str, binding: _Binding, memory: object) -> None:
    with _lock:
        entry = _entry(key)
        swap = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)(
            _library().address("hlotune_swap")
        )
        running = swap(ctypes.addressof(entry.struct), ctypes.addressof(binding))
        if running == 0:
            entry.bound.clear()
        entry.bound.append(memory)


def _entry(key: str) -> _Entry:
    ensure_registered()
    with _lock:
        if key not in _entries:
            name = key.encode()
            _entries[key] = _Entry(_Slot(key=name, key_length=len(name)))
            link = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_library().address("hlotune_link"))
            link(ctypes.addressof(_entries[key].struct))
        return _entries[key]


def ensure_registered() -> None:
    """Makes XLA's CPU backend know `hlotune_call`; some 50 ms the first time, then nothing."""
    with _lock:
        _register()


@cache
def _register() -> None:
    keep_memory()
    _start_crew()
    pycapsule = cast(Callable[[ctypes.c_void_p], Any], jax.ffi.pycapsule)

    def capsule(name: str) -> Any:
        return pycapsule(ctypes.c_void_p(_library().address(name)))

    stages = {
        "instantiate": capsule("hlotune_instantiate"),
        "execute": capsule("hlotune_execute"),
    }
    jax.ffi.register_ffi_type(
        "hlotune_state",
        {"type_id": capsule("hlotune_state_type"), "type_info": capsule("hlotune_state_info")},
        platform=HOST_PLATFORM,
    )
    jax.ffi.register_ffi_target(TARGET, stages, platform=HOST_PLATFORM)


def crew_host() -> Host:
    """The threads on which kernels run that XLA calls, for direct calls."""
    with _lock:
        crew = _start_crew()
    return Host(_library().address("hlotune_parallel_for"), crew.count, crew)


def crew_rests() -> bool:
    """Whether all of these threads sleep: then they keep nobody else's from a processor."""
    crew = _start_crew()
    return all(crew.worker(i).asleep for i in range(crew.count))


def crew_threads() -> tuple[int, ...]:
    """Numbers of these threads, as the system counts threads."""
    return tuple(_start_crew().threads)


@cache
def _start_crew() -> Crew:
    crew = Crew(processors())
    put = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    put(_library().address("hlotune_crew"))(crew.workers, crew.count)
    start(crew, _library().address("hlotune_work"))
    return crew


@cache
def _library() -> Library:
    names = ("new_pages.ll", "dispatcher.ll", "sequence.ll", "pool.ll")
    files = (Path(__file__).with_name(name) for name in names)
    text = "\n".join(
        [
            _messages(),
            _pause(),
            _processor(),
            _now(),
            moved_pages.functions(),
            *(f.read_text(encoding="utf-8") for f in files),
        ]
    )
    return Library(compile_for_process(text, "dispatcher"), _EXPORTS, "dispatcher")


def _messages() -> str:
    """The messages as constants of LLVM text."""
    return "\n".join(
        f'@{name} = internal constant [{len(text) + 1} x i8] c"{text}\\00"'
        for name, text in _MESSAGES.items()
    )


def _pause() -> str:
    instruction = _PAUSE.get(platform.machine(), "")
    return (
        f'define internal void @pause() {{\n  call void asm sideeffect "{instruction}", ""()\n'
        "  ret void\n}"
    )


def _processor() -> str:
    """Which processor the calling thread is on; -1 where the system does not tell."""
    if sys.platform != "linux":
        return "define internal i32 @processor() {\n  ret i32 -1\n}"
    return (
        "declare i32 @sched_getcpu()\ndefine internal i32 @processor() {\n"
        "  %processor = call i32 @sched_getcpu()\n  ret i32 %processor\n}"
    )


def _now() -> str:
    """Nanoseconds by a clock that nobody sets."""
    return (
        "declare i32 @clock_gettime(i32, ptr)\ndefine internal i64 @now() {\n"
        "  %time = alloca { i64, i64 }\n"
        f"  %status = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)\n"
        "  %ns_at = getelementptr { i64, i64 }, ptr %time, i32 0, i32 1\n"
        "  %s = load i64, ptr %time\n  %ns = load i64, ptr %ns_at\n"
        "  %whole = mul i64 %s, 1000000000\n  %now = add i64 %whole, %ns\n  ret i64 %now\n}"
    )
