"""Large results that are new memory are asked for in large pages as long as that is not slow."""

import ctypes
import sys
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.extend import backend
from jaxlib import xla_client

from hlotune.codegen.llvm.compile import compile_for_process
from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.call_module import replacement
from hlotune.codegen.runtime.dispatcher import bind, slot
from hlotune.codegen.runtime.loader import Library, load
from hlotune.codegen.runtime.malloc_settings import MAPPED_APART
from hlotune.codegen.runtime.moved_pages import MOVING_CALLS
from hlotune.hlo.graph import TensorType
from tests.support.ir_kernels import build
from tests.support.pages import flags_of, needs_moves

MS = 1_000_000
SMALL_NS = 100 * MS
"""What a result of `BYTES` costs in small pages."""
BYTES = 4 * SMALL_NS
ASK = """
define i32 @ask(ptr %known, ptr %binding) {
  %asks = call i1 @asks_for_large(ptr %known, ptr %binding)
  %wide = zext i1 %asks to i32
  ret i32 %wide
}
define void @note(ptr %known, i64 %bytes, i64 %took, i32 %asked) {
  %was_asked = trunc i32 %asked to i1
  call void @note_pages(ptr %known, i64 %bytes, i64 %took, i1 %was_asked)
  ret void
}"""


@cache
def library() -> Library:
    text = Path(dispatcher.__file__).with_name("new_pages.ll").read_text(encoding="utf-8")
    return Library(compile_for_process(text + ASK, "new pages"), ("ask", "note"), "new pages")


@dataclass
class Site:
    """What is known of the new pages of one site."""

    known: Any = field(default_factory=lambda: (ctypes.c_int64 * 4)())

    def asks(self, took_ns: int, binding: int = 64) -> bool:
        """Whether a call that takes so long asks for large pages."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
        place = ctypes.addressof(self.known)
        asked = bool(kind(library().address("ask"))(place, binding))
        kinds = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
        ctypes.CFUNCTYPE(None, *kinds)(library().address("note"))(place, BYTES, took_ns, asked)
        return asked


FAST, SLOW = 40 * MS, 40 * MS + 2 * SMALL_NS


def test_calls_that_stay_fast_ask_each_time() -> None:
    site = Site()
    assert all(site.asks(FAST + n % 50 * MS) for n in range(200))


def test_a_slow_call_is_followed_by_some_that_do_not_ask() -> None:
    site = Site()
    site.asks(FAST)
    assert site.asks(SLOW)
    assert [site.asks(FAST + SMALL_NS) for _ in range(6)] == [False] * 4 + [True] * 2


def test_where_asking_stays_slow_it_is_tried_ever_more_seldom() -> None:
    site, tries = Site(), list[int]()
    site.asks(FAST)
    for call in range(400):
        if site.asks(SLOW):
            tries.append(call)
    gaps = [b - a - 1 for a, b in pairwise(tries)]
    assert gaps[:7] == [4, 8, 16, 32, 64, 64, 64]


def test_a_call_that_is_fast_again_ends_that() -> None:
    site = Site()
    for took_ns in (FAST, SLOW, *[FAST] * 4, SLOW, *[FAST] * 8):
        site.asks(took_ns)
    assert site.asks(FAST)
    assert site.asks(SLOW)
    assert [site.asks(FAST) for _ in range(5)] == [False] * 4 + [True]


def test_calls_that_do_not_ask_may_take_long() -> None:
    site = Site()
    for took_ns in (FAST, SLOW):
        site.asks(took_ns)
    assert [site.asks(10 * SLOW) for _ in range(5)] == [False] * 4 + [True]


def test_a_long_call_may_spread_by_a_quarter() -> None:
    site = Site()
    site.asks(100 * SLOW)
    assert site.asks(120 * SLOW)
    assert site.asks(100 * SLOW)


def test_nothing_is_known_of_another_kernel() -> None:
    site = Site()
    for took_ns in (FAST, SLOW):
        site.asks(took_ns)
    assert site.asks(100 * SLOW, binding=128)
    assert site.asks(100 * SLOW, binding=128)


WAITING = """
define i32 @kernel(ptr %call) {
entry:
  %args = load ptr, ptr %call
  %count_at = load ptr, ptr %args
  %count = load i64, ptr %count_at
  br label %check
check:
  %i = phi i64 [ 0, %entry ], [ %next, %wait ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %wait, label %done
wait:
  call void asm sideeffect "nop; nop; nop; nop", ""()
  %next = add i64 %i, 1
  br label %check
done:
  ret i32 0
}"""
"""Writes nothing, and passes by so often."""
SLOW_COUNT = 1 << 29


@needs_moves
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such pages")
def test_new_results_are_not_asked_for_behind_a_call_that_was_slow() -> None:
    """Results that malloc maps anew in each call, which nobody touches."""
    key, kind = "new pages", TensorType((MAPPED_APART[0] + (64 << 20),), "ui8")
    slot(key)
    bind(key, load(build(WAITING)))
    client = backend.get_backend("cpu")
    devices = xla_client.DeviceList((client.local_devices()[0],))
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    text = replacement(key, [TensorType((1,), "i64")], [kind], 0, {})
    program = client.compile_and_load(text.encode(), devices, options)

    def is_asked(count: int) -> bool:
        with jax.enable_x64(True):
            given = jax.device_put(np.array([count]))
        ((result,),) = program.execute_sharded([given]).disassemble_into_single_device_arrays()
        return " hg" in flags_of(result.block_until_ready().unsafe_buffer_pointer() + (64 << 20))

    for _ in range(MOVING_CALLS):
        assert is_asked(0)
    assert is_asked(SLOW_COUNT)
    assert [is_asked(0) for _ in range(5)] == [False] * 4 + [True]
