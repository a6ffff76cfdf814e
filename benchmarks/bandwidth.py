"""Products that wait for memory: the share of the bandwidth that a plain read has beside them.

    python -m benchmarks.bandwidth --seconds 20

Each case runs its first candidates, one of each algorithm, in turns with a loop on all threads
that reads as many bytes and does nothing with them: what memory gives changes from minute to minute
on a shared machine.  The loop walks one, two or four streams a thread, as many as are fastest.
Each candidate is held against the oracle first.  A share may pass 100 %: a kernel may go along
other streams than the loop does.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

import jax
import numpy as np
from jax import lax

from benchmarks.command import command
from benchmarks.results import Table, conditions, milliseconds, publish
from hlotune.codegen.build import build
from hlotune.codegen.built import Built
from hlotune.codegen.llvm.compile import compile_object
from hlotune.codegen.runtime.dispatcher import crew_host
from hlotune.codegen.runtime.loader import KERNEL, Host, load
from hlotune.hlo.frontends.program import load as load_program
from hlotune.hlo.sites.sites import sites
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.machine_lock import alone
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.core_sharing_probe import Probe
from hlotune.measure.timing.peaks import READ_STREAMS, host_properties, read_text
from hlotune.measure.timing.timing import Apart, always_apart, settled, steady
from hlotune.measure.trial import Failure
from hlotune.measure.verification.buffers import Guarded, guarded, rounded
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import verify
from hlotune.schedules.algorithms.joined_space import AlgorithmsSpace, space_of
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

CALLS = 2
"""The calls of a turn; the last one counts, so that a kernel is timed right behind itself."""
LEAST_TURNS = 2
CHOOSING_TURNS = 5
"""Turns of a plain read along each number of streams, of which one is chosen."""


def _times(x: jax.Array, w: jax.Array) -> jax.Array:
    return x @ w


def _over_rows(x: jax.Array, g: jax.Array) -> jax.Array:
    return lax.dot_general(x, g, (((0,), (0,)), ((), ())))


Shapes = tuple[tuple[int, ...], tuple[int, ...]]
CASES: dict[str, tuple[Callable[[jax.Array, jax.Array], jax.Array], Shapes]] = {
    "row times matrix": (_times, ((1, 4096), (4096, 4096))),
    "4 rows times matrix": (_times, ((4, 4096), (4096, 4096))),
    "matrix times column": (_times, ((4096, 4096), (4096,))),
    "dot": (_times, ((1 << 22,), (1 << 22,))),
    "weight gradient 16x16": (_over_rows, ((100_000, 16), (100_000, 16))),
    "weight gradient 64x64": (_over_rows, ((100_000, 64), (100_000, 64))),
}
"""Function and shapes of its operands, f32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    case: str
    algorithm: str
    bytes: int
    """The bytes of operands and result."""
    seconds: list[float]
    read_seconds: list[float]
    """The times of reading as many bytes, in the turn that follows."""

    @property
    def share(self) -> float:
        """The share of the plain read's bandwidth, the median of the turns."""
        return median(r / s for r, s in zip(self.read_seconds, self.seconds, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[*CASES], metavar="CASE")
    parser.add_argument("--seconds", type=float, default=20.0, help="for all cases together")
    options = parser.parse_args()
    target = host_target()
    apart = Probe(target).apart
    before = settled_conditions(target, apart)
    lines: list[Line] = []
    for name in options.cases:
        lines += measured(name, target, options.seconds / len(options.cases), apart)
    publish(table(lines), before, [asdict(line) for line in lines])


def settled_conditions(target: CpuTarget, apart: Apart) -> dict[str, Any]:
    """The conditions of a machine that nobody else tunes on, and whose threads have a core each."""
    with alone():
        settled(apart)
        return conditions(target, host_properties(target))


def measured(name: str, target: CpuTarget, seconds: float, apart: Apart) -> list[Line]:
    function, shapes = CASES[name]
    arguments = [np.ones(shape, np.float32) for shape in shapes]
    references = References(sites(load_program(function, *arguments))[0].kernel)
    compute = compute_of(references.graph)
    moved = sum(t.bytes for t in (*compute.arguments, *compute.results))
    sources, host = buffers(compute), crew_host()
    calls = {
        s.algorithm: runs(compute, checked(references, build(compute, s, target)), sources, host)
        for s in firsts(compute, target)
    }
    read = reading(moved, target, host)
    with alone():
        times = in_turns(calls, read, seconds, apart)
    return [
        Line(case=name, algorithm=a, bytes=moved, seconds=own, read_seconds=read)
        for a, (own, read) in times.items()
    ]


def firsts(compute: Compute, target: CpuTarget) -> list[Schedule]:
    """The first candidate of each algorithm, the most promising foremost."""
    space = space_of(compute, target)
    configs = space.firsts() if isinstance(space, AlgorithmsSpace) else space.heuristic()[None]
    return [space.schedule(c) for c in configs]


def buffers(compute: Compute) -> list[Guarded]:
    rng, found = np.random.default_rng(0), []
    for t in compute.arguments:
        buffer = guarded(t.bytes, "before")
        buffer.data.view(np.float32)[...] = rng.standard_normal(t.elements, dtype=np.float32)
        found.append(buffer)
    return found


def checked(references: References, built: Built) -> Built:
    """Raises WrongResult for a kernel whose time would mean nothing."""
    verdict = verify(references.kernel, built, references=references)
    if isinstance(verdict, Failure):
        raise WrongResult(f"expected {built.algorithm} to be right, got: {verdict.message}")
    return built


def runs(
    compute: Compute, built: Built, sources: Sequence[Guarded], host: Host
) -> Callable[[], object]:
    """A call on buffers of its own.  Raises WrongResult where the kernel gives up."""
    loaded = load(built)
    results = [guarded(t.bytes, "before") for t in compute.results]
    scratch = guarded(rounded(loaded.built.scratch_bytes), "before")
    held = [*sources]  # as long as the call: addresses alone keep nothing

    def call() -> None:
        into, out = [s.address for s in held], [r.address for r in results]
        status = loaded.call(KERNEL, into, out, scratch.address, host)
        if status:
            raise WrongResult(f"expected status 0, got {status}; the kernel gave up")

    return call


def reading(size: int, target: CpuTarget, host: Host) -> Callable[[], object]:
    """A call that reads about as many bytes, an equal part on each thread, along as many streams
    as are fastest."""
    part = max(16384, size // target.threads // 16384 * 16384)
    source = guarded(part * target.threads, "before")
    sink = guarded(512 * target.threads, "before")
    source.data[...] = 1

    def along(streams: int) -> Callable[[], object]:
        text = read_text(part, target.threads, target.vector_bytes, streams)
        loaded = load(Built(compile_object(text, target, "read"), 0, (), 0, target.threads))
        return lambda: loaded.call(KERNEL, [source.address], [sink.address], 0, host)

    found = [along(n) for n in READ_STREAMS]
    return min(found, key=lambda call: min(timed(call) for _ in range(CHOOSING_TURNS)))


def in_turns(
    calls: dict[str, Callable[[], object]],
    read: Callable[[], object],
    seconds: float,
    apart: Apart = always_apart,
) -> dict[str, tuple[list[float], list[float]]]:
    """By name: times of the call, and of the read right behind; two at least, as quartiles need.

    A turn during which the threads came together is taken again, whole.
    """
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in calls}
    end = time.perf_counter() + seconds
    turns = 0
    while turns < LEAST_TURNS or time.perf_counter() < end:
        for name, call in calls.items():
            for t, times in zip(turn(call, read, apart), found[name], strict=True):
                times.append(t)
        turns += 1
    return found


def turn(
    call: Callable[[], object], read: Callable[[], object], apart: Apart
) -> tuple[float, float]:
    pair = (0.0, 0.0)

    def sample() -> float:
        nonlocal pair
        pair = timed(call), timed(read)
        return sum(pair)

    steady(sample, apart)
    return pair


def timed(call: Callable[[], object]) -> float:
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
    return seconds


def table(lines: Sequence[Line]) -> Table:
    return Table(
        name="bandwidth",
        columns=["case", "algorithm", ">MB", ">ms", ">middle half", ">GB/s", ">read GB/s",
                 ">of the read"],
        rows=[cells(line) for line in lines],
        notes=[
            "first candidates, called directly, in turns with a loop that reads as many bytes",
            "of the read: median of the turns; calls of a kernel and of the loop follow each other",
        ],
    )  # fmt: skip


def cells(line: Line) -> list[str]:
    low, middle, high = quantiles(line.seconds, n=4)
    return [
        line.case,
        line.algorithm,
        f"{line.bytes / 1e6:.1f}",
        milliseconds(middle),
        f"{milliseconds(low)} to {milliseconds(high)}",
        f"{line.bytes / middle / 1e9:.1f}",
        f"{line.bytes / median(line.read_seconds) / 1e9:.1f}",
        f"{line.share:.0%}",
    ]


if __name__ == "__main__":
    command(main)
