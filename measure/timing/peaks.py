"""Multiply-add peaks, clock and bandwidth of this machine, measured by kernels of our own.

Every measure is `peaks.ll` with another loop body: independent chains of full vectors, long
enough that starting threads does not matter.  The best of many runs counts: a peak is what the
machine can do.  Runs of multiply-adds are shorter than the turns that the system gives to the
processes on a processor, so that some meet no other process where there is one all the time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from string import Template

from hlotune.codegen.built import Built
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.hosts import serial
from hlotune.codegen.runtime.loader import KERNEL, Host, load
from hlotune.codegen.runtime.support import machine_code
from hlotune.measure.machine.targets import require_host
from hlotune.measure.verification.buffers import guarded
from hlotune.schedules.dtypes import GROUPS
from hlotune.schedules.large_pages import region
from hlotune.schedules.targets.cpu import LINE_BYTES, CpuTarget
from hlotune.schedules.targets.target import Properties
from hlotune.schedules.targets.units import has_matrix_unit

CHAINS = 12
"""Independent chains: more than latency times units, and with operands fewer than 16 registers."""
DOT_CHAINS = 24
"""The chains for dot instructions, which take longer, and come with 32 registers."""
TILE_CHAINS = 6
"""The chains for a matrix unit: more than latency times units, and with operands its eight
registers.
"""

SMALL = 0x38
"""This byte repeated is 4.4e-5 as f32 and bf16, 7e-37 as f64: no chain overflows."""

_RUN_S = 0.002
_RUNS = 100
READ_STREAMS = (1, 2, 4)
"""Streams of a plain read that are tried."""
_READS = 10
"""Runs of a plain read, which takes several milliseconds."""
_LLVM_TYPES = {"f64": "double", "f32": "float"}
_BITS = {"f64": 64, "f32": 32}


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop body of `peaks.ll`: what goes round in it, and how much work one trip is."""

    vector: str
    operands: int
    """Vectors read once, before the loop."""
    chains: int
    step: Callable[[int], str]
    """Text that makes `%next.<i>` of `%chain.<i>`."""
    work: int
    """Operations, cycles or bytes of a trip."""
    declarations: str = ""
    before: str = ""
    """Text ahead of all tasks, and behind them."""
    end: str = ""
    tiles: bool = False
    """Whether it uses a matrix unit."""


@dataclass(frozen=True, slots=True)
class _Dot:
    """An instruction that adds the products of groups of neighbours to sums, by LLVM's name."""

    name: str
    sums: str
    elements: str
    group: int


@dataclass(frozen=True, slots=True)
class _Unit:
    """A product of tiles, by LLVM's name."""

    name: str
    group: str


_DOTS = {
    "bf16": _Dot("@llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", 2),
    "i8": _Dot("@llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", 4),
}
_UNITS = {
    "bf16": _Unit("@llvm.x86.tdpbf16ps", "bf16x2"),
    "i8": _Unit("@llvm.x86.tdpbssd", "i8x4"),
}


@cache
def host_properties(target: CpuTarget) -> Properties:
    """Measures once in a process, in under two seconds.

    Raises TargetError where the target is not this machine.
    """
    require_host(target.fingerprint)
    hosts = crew_host() if target.threads > 1 else serial()
    flops = {dtype: _rate(loop, target, hosts) for dtype, loop in peak_loops(target).items()}
    one = _rate(_dependent_adds(), target, serial(), tasks=1)
    return Properties(flops_per_s=flops, read_bytes_per_s=_read_rate(target, hosts), clock_hz=one)


def peak_loops(target: CpuTarget) -> dict[str, Loop]:
    """The most that a target can multiply and add, by type of the operands."""
    loops = {dtype: multiply_add_loop(dtype, target) for dtype in _LLVM_TYPES}
    if "avx512bf16" in target.features:
        loops["bf16"] = _dots("bf16")
    if "avx512vnni" in target.features:
        loops["i8"] = _dots("i8")
    return loops | {t: _tiles(t) for t in _UNITS if has_matrix_unit(target, _UNITS[t].group)}


def compute_text(loop: Loop, trips: int, tasks: int) -> str:
    """A kernel that runs a loop `trips` times in each of `tasks` tasks, and stores its chains."""
    ids = range(loop.chains)
    before = [
        f"  %operand.{i}.at = getelementptr i8, ptr %in, i64 {64 * i}\n"
        f"  %operand.{i} = load {loop.vector}, ptr %operand.{i}.at, align 8"
        for i in range(loop.operands)
    ]
    phis = [
        f"  %chain.{i} = phi {loop.vector} [ %operand.0, %tasks ], [ %next.{i}, %loop ]"
        for i in ids
    ]
    after = [
        f"  %sink.{i} = getelementptr i8, ptr %sink, i64 {64 * i}\n"
        f"  store {loop.vector} %next.{i}, ptr %sink.{i}, align 8"
        for i in ids
    ]
    return _module(
        declarations=loop.declarations,
        before="\n".join((*before, loop.before)),
        phis="\n".join(phis),
        body="\n".join(loop.step(i) for i in ids),
        after="\n".join(after),
        end=loop.end,
        trips=trips,
        tasks=tasks,
        task_bytes=0,
        sink_bytes=64 * loop.chains,
    )


def read_text(task_bytes: int, tasks: int, vector_bytes: int, streams: int = 1) -> str:
    """A kernel that reads `tasks` times `task_bytes` bytes, eight vectors a trip of each stream.

    The streams are equal parts of what a task reads, side by side.
    """
    vector, ids = f"<{vector_bytes // 8} x i64>", range(8)
    stream_bytes = task_bytes // streams
    before = [*(f"%chain.{i}" for i in ids), *(f"%sum.{i}" for i in range(8 * streams))]
    places = [n * stream_bytes + vector_bytes * i for n in range(streams) for i in ids]
    loads = [
        f"  %offset.{i} = add i64 %position, {place}\n"
        f"  %at.{i} = getelementptr i8, ptr %source, i64 %offset.{i}\n"
        f"  %value.{i} = load {vector}, ptr %at.{i}, align 8\n"
        f"  %sum.{i} = or {vector} {before[i]}, %value.{i}"
        for i, place in enumerate(places)
    ]
    last = 8 * (streams - 1)
    stores = [
        f"  %sink.{i} = getelementptr i8, ptr %sink, i64 {64 * i}\n"
        f"  store {vector} %sum.{last + i}, ptr %sink.{i}, align 8"
        for i in ids
    ]
    phis = [
        f"  %chain.{i} = phi {vector} [ zeroinitializer, %tasks ], [ %sum.{last + i}, %loop ]"
        for i in ids
    ]
    return _module(
        declarations="",
        before="",
        end="",
        phis="\n".join(phis),
        body="\n".join([f"  %position = mul i64 %trip, {8 * vector_bytes}", *loads]),
        after="\n".join(stores),
        trips=stream_bytes // (8 * vector_bytes),
        tasks=tasks,
        task_bytes=task_bytes,
        sink_bytes=64 * 8,
    )


def copy_text(
    task_bytes: int,
    tasks: int,
    vector_bytes: int,
    *,
    past_caches: bool,
    streams: int = 1,
    ahead_bytes: int = 0,
) -> str:
    """A kernel that copies `tasks` times `task_bytes` bytes, eight vectors a trip of each stream.

    Its stores go past the caches where `past_caches` says so; both buffers begin at a cache line.
    The streams are equal parts of what a task copies, side by side.  Each line is asked for so many
    bytes ahead, where there are any.
    """
    vector, hint = f"<{vector_bytes // 8} x i64>", ", !nontemporal !0" if past_caches else ""
    lines = [
        f"  %position = mul i64 %trip, {8 * vector_bytes}",
        "  %copied = getelementptr i8, ptr %out, i64 %source.offset",
    ]
    stream_bytes = task_bytes // streams
    places = [n * stream_bytes + vector_bytes * i for n in range(streams) for i in range(8)]
    for i, place in enumerate(places):
        lines += [
            f"  %offset.{i} = add i64 %position, {place}",
            f"  %from.{i} = getelementptr i8, ptr %source, i64 %offset.{i}",
            f"  %to.{i} = getelementptr i8, ptr %copied, i64 %offset.{i}",
            f"  %value.{i} = load {vector}, ptr %from.{i}, align {vector_bytes}",
            f"  store {vector} %value.{i}, ptr %to.{i}, align {vector_bytes}{hint}",
        ]
        if ahead_bytes and place % LINE_BYTES == 0:
            lines += [
                f"  %ahead.{i} = getelementptr i8, ptr %from.{i}, i64 {ahead_bytes}",
                f"  call void @llvm.prefetch.p0(ptr %ahead.{i}, i32 0, i32 3, i32 1)",
            ]
    return _module(
        declarations="declare void @llvm.prefetch.p0(ptr, i32, i32, i32)\n!0 = !{i32 1}",
        before="",
        end="",
        phis="",
        body="\n".join(lines),
        after="",
        trips=stream_bytes // (8 * vector_bytes),
        tasks=tasks,
        task_bytes=task_bytes,
        sink_bytes=0,
    )


def _module(**values: str | int) -> str:
    text = Path(__file__).with_name("peaks.ll").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def multiply_add_loop(dtype: str, target: CpuTarget) -> Loop:
    """Chains of multiply-adds on full vectors, fused where the processor can."""
    lanes = 8 * target.vector_bytes // _BITS[dtype]
    vector = f"<{lanes} x {_LLVM_TYPES[dtype]}>"
    name = f"@llvm.fma.v{lanes}f{_BITS[dtype]}"
    fused = "fma" in target.features or target.triple.startswith("aarch64")

    def step(i: int) -> str:
        if fused:
            operands = f"{vector} %operand.1, {vector} %operand.2, {vector} %chain.{i}"
            return f"  %next.{i} = call {vector} {name}({operands})"
        product = f"  %product.{i} = fmul {vector} %chain.{i}, %operand.1"
        return f"{product}\n  %next.{i} = fadd {vector} %product.{i}, %operand.2"

    declared = f"declare {vector} {name}({vector}, {vector}, {vector})" if fused else ""
    return Loop(vector, 3, CHAINS, step, 2 * CHAINS * lanes, declared)


def _dots(dtype: str) -> Loop:
    """AVX-512's dot instruction of a type: 16 lanes, as many multiply-adds each as a group has."""
    dot = _DOTS[dtype]
    declared = f"declare {dot.sums} {dot.name}({dot.sums}, {dot.elements}, {dot.elements})"

    def step(i: int) -> str:
        casts = "\n".join(
            f"  %group.{i}.{k} = bitcast {dot.sums} %operand.{k} to {dot.elements}" for k in (1, 2)
        )
        groups = f"{dot.elements} %group.{i}.1, {dot.elements} %group.{i}.2"
        return f"{casts}\n  %next.{i} = call {dot.sums} {dot.name}({dot.sums} %chain.{i}, {groups})"

    return Loop(dot.sums, 3, DOT_CHAINS, step, 2 * 16 * dot.group * DOT_CHAINS, declared)


def _tiles(dtype: str) -> Loop:
    """Products of a matrix unit, each on the same operands: tiles have 16 rows of 64 bytes."""
    unit = _UNITS[dtype]

    def step(_: int) -> str:
        products = (f"  call void {unit.name}(i8 {k}, i8 6, i8 7)" for k in range(TILE_CHAINS))
        return "\n".join((*products, "  %next.0 = add i64 %chain.0, 1"))

    config = bytes([1, *[0] * 15, *[64, 0] * 8, *[0] * 16, *[16] * 8, *[0] * 8])
    text = "".join(f"\\{byte:02X}" for byte in config)
    declared = (
        f'@shape = internal constant [64 x i8] c"{text}", align 64\n'
        "declare void @llvm.x86.ldtilecfg(ptr)\ndeclare void @llvm.x86.tilerelease()\n"
        "declare void @llvm.x86.tilezero(i8)\n"
        f"declare void {unit.name}(i8, i8, i8)"
    )
    zeros = "\n".join(f"  call void @llvm.x86.tilezero(i8 {k})" for k in range(8))
    before = f"  call void @llvm.x86.ldtilecfg(ptr @shape)\n{zeros}"
    work = 2 * 16 * 16 * 16 * GROUPS[unit.group][1] * TILE_CHAINS
    return Loop(
        "i64", 3, 1, step, work, declared, before, "  call void @llvm.x86.tilerelease()", tiles=True
    )


def _dependent_adds() -> Loop:
    """One chain of 64 operations of a cycle each: additions and xors, so that nothing folds."""

    def step(_: int) -> str:
        names = ["chain.0", *(f"link.{k}" for k in range(63)), "next.0"]
        return "\n".join(
            f"  %{new} = {'xor' if k % 2 else 'add'} i64 %{old}, %operand.{1 + k % 2}"
            for k, (old, new) in enumerate(pairwise(names))
        )

    return Loop("i64", 3, 1, step, 64)


def _rate(loop: Loop, target: CpuTarget, host: Host, tasks: int = 0) -> float:
    """Work a second, over all tasks: one a thread unless said otherwise."""
    tasks = tasks or target.threads
    trips = 1 << 10
    while True:
        text, sunk = compute_text(loop, trips, tasks), 64 * loop.chains * tasks
        seconds = _best_s(text, target, host, 4096, sunk, _RUNS, tiles=loop.tiles)
        if seconds >= _RUN_S / 4 or trips >= 1 << 34:
            return loop.work * trips * tasks / seconds
        trips *= max(2, int(_RUN_S / max(seconds, 1e-7)))


def _read_rate(target: CpuTarget, host: Host) -> float:
    """Bytes a second from memory: twice the last-level cache, between 64 and 256 MB.

    A core asks memory for more lines at a time along several streams; the best number counts.
    """
    total = min(max(64 << 20, 2 * target.l3_bytes), 256 << 20)
    task_bytes = total // target.threads // 16384 * 16384
    read, sunk = task_bytes * target.threads, 512 * target.threads
    seconds = min(
        _best_s(
            read_text(task_bytes, target.threads, target.vector_bytes, n),
            target, host, read, sunk, _READS,
        )
        for n in READ_STREAMS
    )  # fmt: skip
    return read / seconds


def _best_s(
    text: str, target: CpuTarget, host: Host, input_bytes: int, output_bytes: int, runs: int, *,
    tiles: bool = False,
) -> float:  # fmt: skip
    """Least time of some calls, on small positive numbers."""
    compiled = machine_code(text, target, "peaks")
    loaded = load(Built(compiled, 0, (), 0, target.threads, tiles=tiles))
    source, sink = region(input_bytes), guarded(output_bytes, "before")
    source[...] = SMALL
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        loaded.call(KERNEL, [source.ctypes.data], [sink.address], 0, host)
        times.append(time.perf_counter() - start)
    return min(times)
