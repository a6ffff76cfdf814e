"""Faults planted in kernels that were emitted from schedules: verification finds each of them.

A worker process holds the faulty kernel, as in a search: what reads or writes outside of its
buffers may end it.
"""

import platform
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import Failure
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import verify
from hlotune.measure.workers.channel import Channel, Message
from hlotune.measure.workers.early_start import DEVICE_WORKER, device_environment
from hlotune.measure.workers.wire import from_target, to_outcome
from hlotune.schedules.ir.expr import Affine
from tests.support.computes import Case
from tests.support.faults import (
    BASES,
    CRASH,
    Fault,
    base,
    edited,
    extents,
    indexed,
    loading,
    moved,
    not_stored,
    off_by_one,
    one_term_lost,
    packing,
    planted,
    shaped,
    shortened,
    stale,
    storing,
    swapped,
    typed,
    unwritten,
    without,
    wrong,
)

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs code of x86-64")

axis = Affine.axis
V4 = "<4 x float>"
FUSED = rf"(= call {V4} @llvm\.\w+\.v4f32\({V4} %\w+, {V4} %\w+, {V4} )%\w+"
SELECTED = rf"select i1 %\w+, {V4} zeroinitializer"
STORED = rf"\n  store {V4} (%\w+), ptr (%\w+), align 4"
TAIL_STORED = rf"(\n  call void @llvm\.masked\.store\.v4f32\.p0\({V4} %\w+, ptr) (%\w+),"
TAIL = r"<i1 true, i1 true, i1 true, i1 false>"
SWAP = "<4 x i32> <i32 1, i32 0, i32 2, i32 3>"
WHOLE = "<i1 true, i1 true, i1 true, i1 true>"

FAULTS: dict[str, Fault] = {
    "the last tap is lost": Fault(
        "conv", lambda c: extents(c, {"r1": 2}), says=wrong(1004, (0, 0, 0, 0), 0, 8)
    ),
    "the reduction starts at 1": Fault(
        "gemm",
        lambda c: loading("a0", moved(1, 1))(loading("a1", moved(0, 1))(extents(c, {"r0": 15}))),
        says=wrong(210, (1, 12), 0, 4, of=256),
    ),
    "the sum so far is dropped at one tap": Fault(
        "conv",
        text=edited(FUSED, r"\1zeroinitializer", count=1),
        says=wrong(203, (0, 0, 0, 10), 0, 5),
    ),
    "the padding is one row off": Fault(
        "conv", loading("a0", moved(0, 1)), says=wrong(1393, (0, 0, 0, 3), 0, 43)
    ),
    "the padding is one column off": Fault(
        "clipped", loading("a0", moved(1, -1)), says=wrong(1374, (0, 0, 0, 0), 0, 29)
    ),
    "what lies outside counts as one": Fault(
        "conv", loading("a0", lambda x: replace(x, outside=1)), says=wrong(333, (0, 0, 0, 3), 0, 18)
    ),
    "borders are not checked": Fault(
        "conv",
        text=edited(
            r"select i1 %\w+, ptr (%\w+), ptr @zeros", r"select i1 true, ptr \1, ptr @zeros"
        ),
        says=CRASH,
    ),
    "a clipped loop starts at 1": Fault(
        "clipped",
        text=edited(r"(@llvm\.smax\.i64\()i64 0, ", r"\1i64 1, "),
        says=wrong(1158, (0, 0, 1, 7), 0, 2),
    ),
    "the stride is forgotten": Fault(
        "strided",
        loading("a0", indexed(lambda e: (axis("i0") + axis("r0") + (-1), *e[1:]))),
        says=wrong(408, (0, 1, 0, 1), 0, 23, of=665),
    ),
    "the channels stand in reverse order": Fault(
        "conv",
        loading("a1", indexed(lambda e: (*e[:3], axis("i2", -1) + 18))),
        says=wrong(1323, (0, 0, 0, 0), 0, 37),
    ),
    "two channels are swapped": Fault(
        "conv",
        text=edited(
            STORED,
            rf"\n  %swap = shufflevector {V4} \1, {V4} poison, {SWAP}"
            rf"\n  store {V4} %swap, ptr \2, align 4",
            count=1,
        ),
        says=wrong(102, (0, 0, 4, 4), 0, 42),
    ),
    "rows and columns of the window are swapped": Fault(
        "conv",
        loading("a1", indexed(lambda e: (e[1], e[0], *e[2:]))),
        says=wrong(1245, (0, 0, 0, 1), 0, 19),
    ),
    "the weights are transposed": Fault(
        "gemm", loading("a1", indexed(lambda e: e[::-1])), says=wrong(256, (1, 12), 0, -35, of=256)
    ),
    "the operands are swapped": Fault("gemm", swapped, says=wrong(251, (1, 12), 0, 2, of=256)),
    "signed bytes are taken for unsigned ones": Fault(
        "bytes", lambda c: typed(c, "a0", "ui8"), says=wrong(149, (0, 0), 30, -482, of=160)
    ),
    "the accumulator is a bfloat16": Fault(
        "chunked", lambda c: typed(c, "acc", "bf16"), says="worst at (0, 8, 5, 5): expected 17.154"
    ),
    "the bias is that of another channel": Fault(
        "conv",
        loading("a2", indexed(lambda e: (axis("i2", -1) + 18,)), "out"),
        says=wrong(806, (0, 0, 0, 4), 0, 3),
    ),
    "the bias is dropped": Fault("conv", without("add"), says=wrong(894, (0, 0, 1, 6), 0, 1)),
    "the relu is dropped": Fault("conv", without("maximum"), says=wrong(941, (0, 0, 0, 0), 0, -16)),
    "a register is stale": Fault("conv", text=stale, says=wrong(170, (0, 0, 0, 12), 0, 13)),
    "scratch is not cleared before the first chunk": Fault(
        "chunked",
        text=edited(SELECTED, f"select i1 false, {V4} zeroinitializer"),
        says=unwritten(1881),
    ),
    "the sums of earlier chunks are lost": Fault(
        "chunked",
        text=edited(SELECTED, f"select i1 true, {V4} zeroinitializer"),
        says=wrong(1259, (0, 0, 0, 4), 0, 2),
    ),
    "the results of one task are missing": Fault(
        "conv",
        text=edited(
            r"i64 (\d+), ptr @stage_0",
            lambda m: f"i64 {int(m[1]) - 1}, ptr @stage_0",
        ),
        says=unwritten(9),
    ),
    "a row of the register tile is not stored": Fault(
        "conv", text=edited(STORED, "", count=1), says=unwritten(288)
    ),
    "a tail is stored without its mask": Fault(
        "conv", text=edited(rf"(@llvm\.masked\.store.*){TAIL}", rf"\1{WHOLE}"), says=CRASH
    ),
    "a tail is read without its mask": Fault(
        "conv", text=edited(rf"(@llvm\.masked\.load.*){TAIL}", rf"\1{WHOLE}"), says=CRASH
    ),
    "a read one element past the end": Fault(
        "conv", lambda c: loading("a2", moved(0, 1), "out")(shaped(c, "a2", 20)), says=CRASH
    ),
    "the input is taken for one row longer": Fault(
        "conv", lambda c: shaped(c, "a0", 10, 11, 5), says=CRASH
    ),
    "the results stand one channel off": Fault(
        "conv", storing(lambda e: (*e[:2], e[2] + (-1))), says=unwritten(99)
    ),
    "the results stand one row off": Fault(
        "conv", storing(lambda e: (e[0] + 1, *e[1:])), says=unwritten(209)
    ),
    "a write before the start": Fault(
        "conv",
        text=edited(
            STORED,
            rf"\n  \2.off = getelementptr i8, ptr \2, i64 -4\n  store {V4} \1, ptr \2.off, align 4",
            count=1,
        ),
        says="no write outside of result 0 (7524 bytes), got one beside it",
    ),
    "a write past the end": Fault(
        "conv",
        text=edited(TAIL_STORED, r"\n  \2.off = getelementptr i8, ptr \2, i64 4\1 \2.off,"),
        says=CRASH,
    ),
    "all tasks share the scratch of one": Fault(
        "chunked",
        text=edited(r"mul nsw i64 %slot, \d+", "mul nsw i64 %slot, 0"),
        says="to be written by the tasks of two threads, got",
    ),
    "a panel is packed one row off": Fault(
        "packed", nest=packing("a1", moved(0, 1)), says=wrong(225, (0, 0), 0, 31, of=228)
    ),
    "a copy holds ones for the padding": Fault(
        "copied",
        nest=packing("a0", lambda x: replace(x, outside=1)),
        says=wrong(333, (0, 0, 0, 3), 0, 18),
    ),
    "a copy is of the row above": Fault(
        "copied", nest=packing("a0", moved(0, -1)), says=wrong(1403, (0, 0, 0, 0), 0, 26)
    ),
    "a channel of tiles is lost before a smooth function": Fault(
        "tiles", nest=shortened, says="worst at (0, 8, 8, 2): expected -0.185"
    ),
}


@pytest.fixture(scope="module")
def worker() -> Iterator[Channel]:
    channel = Channel(DEVICE_WORKER, device_environment())
    yield channel
    channel.close()


def verdict(worker: Channel, case: Case, built: Built) -> Failure | None:
    """What the worker says of a kernel; None where it is right."""
    header = {
        "do": "verify", "kernel": case.kernel.text, "target": from_target(host_target()),
        "numerics": "standard", "thorough": False,
    }  # fmt: skip
    reply = worker.request(Message(header, built.to_bytes()), 60.0)
    if isinstance(reply, Failure):
        return reply
    if reply.header["is"] == "verdict":
        return None
    outcome = to_outcome(dict(reply.header))
    assert isinstance(outcome, Failure)
    return outcome


@pytest.mark.parametrize("name", BASES)
def test_a_kernel_without_a_fault_is_right(worker: Channel, name: str) -> None:
    assert verdict(worker, *planted(Fault(name))) is None


@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_fault_is_found_and_named(worker: Channel, name: str) -> None:
    says = FAULTS[name].says
    found = verdict(worker, *planted(FAULTS[name]))
    assert found is not None, "the fault was not found"
    assert found.kind == ("crash" if says == CRASH else "wrong_result"), found
    assert says and says in found.message, found


def test_one_lost_term_shows_where_sums_have_few(worker: Channel) -> None:
    """With other inputs it hides: the function is flat there, or the bound of tiles too wide."""
    found = verdict(worker, *planted(Fault("steep", text=one_term_lost)))
    assert found is not None
    assert "few inputs" in found.message


def unweighed(kernel: Kernel) -> References:
    """References as of a kernel whose sums nobody can weigh: there are boxes alone."""
    references = References(kernel)
    references.__dict__["_ways"] = {}
    return references


@pytest.fixture(scope="module")
def unseen_task() -> int:
    """A task of the kernel `many` inside its result, of which no box has an element."""
    case, _ = base("many")
    seen = np.zeros(512 * 256, bool)
    for references in (References(case.kernel), unweighed(case.kernel)):
        for kind in ("integers", "normal"):
            for together in references.case(kind).together:
                seen[together.places] = True
    tiles = np.flatnonzero(~seen.reshape(256, 2, 64, 4).any(axis=(1, 3)))
    task = int(tiles[len(tiles) // 2])
    assert 0 < task // 64 < 255 and 0 < task % 64 < 63, "no tile inside"
    return task


def test_a_tile_of_integers_that_is_not_stored_shows_where_nothing_is_compared(
    unseen_task: int,
) -> None:
    case, built = planted(Fault("many", text=not_stored(unseen_task)))
    found = verify(case.kernel, built, references=unweighed(case.kernel))
    assert isinstance(found, Failure), "the fault was not found"
    assert "result 0 to be written with a number, got 8 of 131072 unwritten" in found.message


def test_a_tile_of_wrong_sums_shows_where_the_oracle_does_not_look(
    worker: Channel, unseen_task: int
) -> None:
    found = verdict(worker, *planted(Fault("many", text=off_by_one(unseen_task))))
    assert found is not None, "the fault was not found"
    assert "weighed by random integers, to be those of its operands" in found.message
