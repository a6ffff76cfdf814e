"""The loop in which a tuned case spends its time: its assembly, and a count of its cycles.

    python -m benchmarks.inner_loop C6_frozen --database build/peers.db

The loop is the innermost one that executes most multiply-adds.  What it takes at least is counted
by the places of a core (`ports.py`); how long the whole kernel would take if all its arithmetic
went at that rate stands beside it, and is no measurement.
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from textwrap import TextWrapper

from benchmarks.assembly import Instruction, Loop, hottest
from benchmarks.cases import CASES, FROZEN, forms
from benchmarks.command import command
from benchmarks.peers.contestants import Weights
from benchmarks.peers.records import Record, record
from benchmarks.ports import Count, core_of, count, cycles
from hlotune.codegen.llvm.compile import assembly
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.to_compute.assemble import compute_of
from hlotune.measure.machine.targets import host_target
from hlotune.measure.trial import CacheMode
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.flops import real_flops
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.tuning_logs.database import Database

SHOWN = 48
"""Instructions of a loop: an unrolled one repeats itself."""
WRAPPER = TextWrapper(
    width=110, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
)

PRODUCTS = {"vdpbf16ps": 2, "vpdpbusd": 4, "vpdpbssd": 4, "vpdpwssd": 2}
"""Products that an instruction adds up in each lane of 32 bits; others have one a lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InnerLoop:
    algorithm: str
    loop: Loop
    count: Count
    cycles: dict[str, float]
    """At least so many a pass, by what they go into."""
    flops: int
    """The operations of one pass."""
    passes: float
    """So many passes through the loop do all arithmetic of the kernel's largest stage, on one
    thread.
    """

    @property
    def least_cycles(self) -> float:
        return max(self.cycles.values())

    @property
    def limit(self) -> str:
        """What the loop's cycles go into."""
        return max(self.cycles, key=lambda name: self.cycles[name])

    def least_s(self, clock_hz: float) -> float:
        """The time of all arithmetic at the rate of this loop."""
        return self.passes * self.least_cycles / clock_hz


def inner_loop(kernel: Kernel, schedule: Schedule, target: CpuTarget) -> InnerLoop | None:
    """None where no loop of the kernel multiplies and adds.

    Raises:
        ValueError: nothing is known of the processor's core.
        ScheduleError: the schedule does not apply to the kernel.
    """
    core = core_of(target)
    nest = replay(compute_of(graph_of(kernel)), schedule, target)
    loop = hottest(assembly(emit(nest).text, target))
    if loop is None:
        return None
    found, flops = count(loop.body), sum(map(flops_of, loop.body))
    return InnerLoop(
        algorithm=schedule.algorithm,
        loop=loop,
        count=found,
        cycles=cycles(found, core),
        flops=flops,
        passes=largest_flops(nest) / flops / threads_of(nest),
    )


def flops_of(instruction: Instruction) -> int:
    """The operations of a multiply-add on all lanes; 0 for every other instruction."""
    if not instruction.is_multiply_add:
        return 0
    bits = {"%xmm": 128, "%ymm": 256, "%zmm": 512}[instruction.operands[-1][:4]]
    if instruction.name in PRODUCTS:
        return 2 * PRODUCTS[instruction.name] * bits // 32
    if instruction.name.endswith(("ss", "sd", "sh")):
        return 2
    return 2 * bits // {"ps": 32, "pd": 64, "ph": 16}[instruction.name[-2:]]


def largest_flops(nest: LoopNest) -> int:
    """Arithmetic of the stage that has most: of a convolution or product, its sums."""
    return max(real_flops(nest.compute, s.stage) for s in nest.stages if s.scope != "load")


def threads_of(nest: LoopNest) -> int:
    is_parallel = any(loop.kind == "parallel" for s in nest.stages for loop in s.loops)
    return nest.target.threads if is_parallel else 1


def described(found: InnerLoop, clock_hz: float) -> str:
    """Counts, cycles, and the loop itself."""
    body = (f"    {i.text}" for i in found.loop.body)
    return "\n".join([summary(found, clock_hz), "", f"{found.loop.label}:", *body])


def summary(found: InnerLoop, clock_hz: float) -> str:
    """Counts and cycles."""
    counts = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in asdict(found.count).items())
    each = ", ".join(f"{name} {n:.1f}" for name, n in found.cycles.items())
    rate = found.flops / found.least_cycles
    return "\n".join([
        f"{found.algorithm}; a pass of {found.loop.function} {found.loop.label}: {counts}",
        f"cycles at least: {each}; so {found.least_cycles:.1f}, for {found.limit}, "
        f"{rate:.0f} operations a cycle",
        f"all arithmetic at that rate: {1e3 * found.least_s(clock_hz):.4g} ms "
        f"at {clock_hz / 1e9:.2f} GHz",
    ])  # fmt: skip


def compact(body: Sequence[Instruction]) -> list[str]:
    """Lines in which neighbours of one name stand together; what is behind the first is counted."""
    lines: list[str] = []
    for name, alike in groupby(body[:SHOWN], lambda i: i.name):
        operands = " | ".join(i.text.removeprefix(name).strip() for i in alike)
        lines += WRAPPER.wrap(f"{name} {operands}")
    left = Counter(i.name for i in body[SHOWN:])
    if left:
        counted = ", ".join(f"{n} {name}" for name, n in left.most_common())
        lines.append(f"and {left.total()} more: {counted}")
    return lines


def of_case(name: str, database: Path, target: CpuTarget, cache: CacheMode) -> Record:
    weights: Weights = "constants" if name.endswith(FROZEN) else "arguments"
    return record(name.removesuffix(FROZEN), weights, database, target, cache)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", help="C6, or C6_frozen for constant weights")
    parser.add_argument("--database", type=Path, default=Path("build/peers.db"))
    parser.add_argument("--cache", choices=("model", "warm"), default="warm")
    options = parser.parse_args()
    if options.case not in (name for case in CASES for name in forms(case)):
        parser.error(f"expected a case of benchmarks/cases.py, got {options.case}")
    target = host_target()
    found = of_case(options.case, options.database, target, options.cache)
    if found.schedule == DEFAULT:
        parser.error(f"expected a case that was tuned, got {options.case}: {found.status}")
    with Database(options.database, create=False) as opened:
        properties = opened.properties(target)
    try:
        loop = inner_loop(found.kernel, found.schedule, target)
    except ValueError as error:
        parser.error(str(error))
    if loop is None or properties is None:
        parser.error(f"expected a loop of multiply-adds in {options.case}, got none")
    print(described(loop, properties.clock_hz))


if __name__ == "__main__":
    command(main)
