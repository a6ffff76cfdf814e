"""What another thread costs and saves: small products on one thread and on all.

    python -m benchmarks.waking --seconds 15

Each size runs its first candidate with rows cut into a task a thread, and the same tasks one after
the other, called directly.  *awake* is the mean of calls right behind one another; *asleep* is one
call after a pause in which the workers have gone to sleep.  Calls are from Python; what such a call
costs by itself is measured beside them, on a kernel that does nothing.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median

import numpy as np

from benchmarks.bandwidth import buffers, checked, runs, settled_conditions
from benchmarks.command import command
from benchmarks.results import Table, publish
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL
from hlotune.codegen.runtime.loader import load as load_built
from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import Probe
from hlotune.measure.timing.timing import Apart, always_apart, steady
from hlotune.measure.verification.buffers import guarded
from hlotune.measure.verification.references import References
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_contraction.sketch import steps_of
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace, space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

SIZES = (32, 48, 64, 96, 128, 192, 256)
"""The extents of square products in f32."""
CALLS = 30
PAUSE_S = 3e-4
"""Workers look for work for some 50 us."""

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    size: int
    awake_s: dict[str, list[float]]
    """By `one` and `all` threads."""
    asleep_s: dict[str, list[float]]
    empty_s: list[float]
    """The times of a kernel that does nothing, with threads awake."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    target = host_target()
    apart = Probe(target).apart
    before = settled_conditions(target, apart)
    calls = {size: pair(size, target) for size in SIZES}
    nothing = empty(target)
    with alone():
        lines = measured(calls, nothing, options.seconds, apart)
    publish(table(lines), before, [asdict(line) for line in lines])


def pair(size: int, target: CpuTarget) -> dict[str, Call]:
    square = np.ones((size, size), np.float32)
    references = References(sites(load(lambda x, w: x @ w, square, square))[0].kernel)
    compute = compute_of(references.graph)
    sources, host = buffers(compute), crew_host()
    return {
        name: runs(compute, checked(references, build(compute, s, target)), sources, host)
        for name, s in zip(("one", "all"), schedules(compute, target), strict=True)
    }


def empty(target: CpuTarget) -> Call:
    """A kernel that returns at once, with as many operands."""
    text = "define i32 @kernel(ptr %call) {\n  ret i32 0\n}\n"
    loaded = load_built(Built(compile_object(text, target, "empty"), 0, (), 0, 1))
    held, host = guarded(4096, "before"), crew_host()
    return lambda: loaded.call(KERNEL, [held.address] * 2, [held.address], 0, host)


def schedules(compute: Compute, target: CpuTarget) -> tuple[Schedule, Schedule]:
    """The first candidate's register tile with a task a thread, run by one thread and by all."""
    space: CpuSpace = space_of(compute, target)
    config = space.heuristic()
    c, tiling, sketch = space.contraction, space.tiling(config), space.sketches[int(config[0])]
    rows = c.parallel[0]
    tiles = -(-rows.extent // tiling.register[rows.name])
    group = {a.name: a.extent for a in c.parallel} | {rows.name: -(-tiles // target.threads)}
    cut = replace(tiling, group=group, block=dict.fromkeys(tiling.block, 1))
    one, several = (
        Schedule("direct", steps_of(c, sketch, replace(cut, serial=serial), space.lanes))
        for serial in (True, False)
    )
    return one, several


def measured(
    calls: dict[int, dict[str, Call]], nothing: Call, seconds: float, apart: Apart = always_apart
) -> list[Line]:
    lines = [
        Line(size=n, awake_s={k: [] for k in pair}, asleep_s={k: [] for k in pair}, empty_s=[])
        for n, pair in calls.items()
    ]
    end = time.perf_counter() + seconds
    while not lines[0].empty_s or time.perf_counter() < end:
        for line in lines:
            for name, call in calls[line.size].items():
                line.awake_s[name].append(steady(partial(awake, call), apart))
                line.asleep_s[name].append(steady(partial(asleep, call), apart))
            line.empty_s.append(steady(partial(awake, nothing), apart))
    return lines


def awake(call: Call) -> float:
    call()
    return timed(call, CALLS)


def asleep(call: Call) -> float:
    time.sleep(PAUSE_S)
    return timed(call, 1)


def timed(call: Call, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def table(lines: Sequence[Line]) -> Table:
    empty_us = [median(line.empty_s) * 1e6 for line in lines]
    return Table(
        name="waking",
        columns=["product", ">one awake us", ">all awake us", ">saved us", ">one asleep us",
                 ">all asleep us", ">saved us"],
        rows=[cells(line) for line in lines],
        notes=[
            "medians; all of them with what it takes to call from Python, which an empty kernel "
            f"shows: {median(empty_us or [0.0]):.2f} us awake",
        ],
    )  # fmt: skip


def cells(line: Line) -> list[str]:
    awake = {name: median(times) * 1e6 for name, times in line.awake_s.items()}
    asleep = {name: median(times) * 1e6 for name, times in line.asleep_s.items()}
    return [
        "x".join([str(line.size)] * 3),
        *(f"{awake[k]:.2f}" for k in ("one", "all")),
        f"{awake['one'] - awake['all']:.2f}",
        *(f"{asleep[k]:.1f}" for k in ("one", "all")),
        f"{asleep['one'] - asleep['all']:.1f}",
    ]


if __name__ == "__main__":
    command(main)
