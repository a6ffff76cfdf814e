"""What the parts of a processor have to do for a nest, as arrays over populations.

Each cost is a number of cycles of one core, divided by the cycles that the multiply-adds of all
cores together would take at their peak: 1 is as long as the whole kernel takes at best.  The rates
are those of no processor in particular; a model learns what they are worth on the one at hand.
The reuse of caches follows the idea of AutoTVM's curve features (arXiv:1805.08166), per buffer.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hlotune.schedules.features.footprint import Floats
from hlotune.schedules.features.loop_levels import OPERANDS, Levels, outermost
from hlotune.schedules.features.loop_paths import CALL_LEVEL
from hlotune.schedules.patterns.contraction import Contraction
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.machine import SHARED_ELEMENTS
from hlotune.schedules.targets.machine_rates import MachineRates


@dataclass(frozen=True)
class Work:
    """What a kernel asks for, whatever its algorithm, and what a nest does beside its sums."""

    flops: float
    """The operations of the sums as the kernel states them."""
    beside: Floats | float
    """Operations of all other stages, `(n,)` or for all; not what runs as a program is loaded."""
    rate: float = 1.0
    """Sums that a unit of its own adds to in the time of one; it loads whole rows of operands."""
    enters: Floats | None = None
    """`(caches, buffers, n)`, the result last: 0 where a stage that runs just before left a buffer
    in a cache, else 1; None where every cache starts without them."""


@lru_cache(maxsize=64)
def plain_work(c: Contraction) -> Work:
    """The work of a kernel that is computed as it is stated."""
    others = (s.flops for s in c.compute.stages if s is not c.core)
    return Work(2.0 * c.core.points, float(sum(others)))


@dataclass(frozen=True)
class Costs:
    v: Levels
    work: Work

    @property
    def rates(self) -> MachineRates:
        return self.v.target.rates

    @cached_property
    def peak_cycles(self) -> np.float32:
        """The cycles of all multiply-adds that the kernel asks for, on all cores."""
        v = self.v
        return np.float32(
            self.work.flops / (2.0 * v.lanes * self.rates.multiply_adds * v.target.threads)
        )

    @cached_property
    def tasks(self) -> Floats:
        return self.v.at(self.v.runs, self.v.task)

    @cached_property
    def balance(self) -> Floats:
        """Share of the cores' time in which they have tasks."""
        threads = np.float32(self.v.target.threads)
        busy: Floats = self.tasks / (np.ceil(self.tasks / threads) * threads)
        return busy

    @cached_property
    def share(self) -> Floats:
        """Cycles that cost 1 where all cores share them as evenly as tasks allow."""
        share: Floats = self.peak_cycles * self.v.target.threads * self.balance
        return share

    def of(self, cycles: Floats) -> Floats:
        """Cost of cycles that all cores share as evenly as tasks allow."""
        shared: Floats = cycles / self.share
        return shared

    @cached_property
    def accumulators(self) -> Floats:
        """Vectors of results in registers, in the mean over all tiles.

        A result whose reduction runs along lanes has vectors of its own.
        """
        v = self.v
        sums: Floats = v.at(v.sums, v.held)
        whole = sums * v.lane_trips / v.lanes
        return np.where(v.reduces_lanes, whole, sums / (v.lanes * v.lanes_used))

    @cached_property
    def multiply(self) -> Floats:
        cycles = self.v.flops / (2.0 * self.v.lanes * self.rates.multiply_adds * self.v.lanes_used)
        return self.of(cycles / self.work.rate)

    @cached_property
    def latency(self) -> Floats:
        """Where a tile has too few sums to keep the units busy; nothing waits without sums."""
        if self.v.c.core.combine is None:
            return np.zeros(self.v.count, np.float32)
        return self.multiply * (
            self.rates.add_latency * self.rates.multiply_adds / self.accumulators
        )

    @cached_property
    def loads(self) -> Floats:
        """`(operands, n)`: vectors where lanes lie together, else a load an element."""
        v = self.v
        elements = v.at(v.touched.elements[:-1], v.inner)
        rows = (v.lane_kinds == 1) | (self.work.rate > 1)
        wide = np.where(rows, v.lanes * v.lanes_used, np.float32(1))
        return self.of(self.repeats * elements / (self.rates.multiply_adds * wide))

    @cached_property
    def repeats(self) -> Floats:
        """How often the innermost body that is written out is executed."""
        return self.v.at(self.v.runs, self.v.inner)

    @cached_property
    def results(self) -> Floats:
        """Sums that enter and leave registers."""
        v = self.v
        times = np.where(v.path.handed_over == 1, np.float32(1), np.float32(2))
        return self.of(v.at(v.runs, v.held) * self.accumulators * times)

    @cached_property
    def loops(self) -> Floats:
        return self.of(self.repeats * self.rates.loop_cycles)

    @cached_property
    def exits(self) -> Floats:
        return self.of(self.v.at(self.v.runs, self.v.around) * self.rates.exit_cycles)

    @cached_property
    def checks(self) -> Floats:
        """The cost of borders: windows of operands that are read where they lie, a check a row."""
        v, total = self.v, np.zeros(self.v.count, dtype=np.float32)
        rows, _ = v.tile
        for k, level in enumerate(v.window_levels):
            if level is not None:
                total += np.where(v.is_plain[k], v.at(v.runs, level) * rows, np.float32(0))
        return self.of(total * self.rates.check_cycles)

    @cached_property
    def moved(self) -> Floats:
        """`(caches, buffers, n)`, the result last: bytes that enter each cache, all executions.

        A buffer stays as long as a loop's share of it and all else that an iteration touches fit.
        """
        v, touched = self.v, self.v.touched.bytes
        rooms = np.array(
            [self.rates.cache_share * size for size in v.target.caches_bytes], dtype=np.float32
        )
        fits = touched[:, :-1] + v.footprint[1:] <= rooms.reshape(-1, 1, 1, 1)
        levels = outermost(fits)
        np.minimum(levels[:, -1], v.held, out=levels[:, -1])
        moved: Floats = v.at(v.runs, levels) * v.each_at(touched, levels)
        return moved if self.work.enters is None else moved * self.work.enters

    @cached_property
    def caches(self) -> dict[str, Floats]:
        """The cost of what enters each cache, by its name."""
        rates = np.array(self.rates.entering_bytes, dtype=np.float32).reshape(-1, 1)
        return dict(zip(("l1", "l2", "l3"), self.of(self.moved.sum(axis=1) / rates), strict=True))

    @cached_property
    def packing(self) -> Floats:
        """`(operands, n)`: copies, in vectors where the source lies together.

        Once a call, a small operand is copied by one core, a large one by all; what is packed when
        a program is loaded costs nothing.
        """
        v = self.v
        packs = v.packs[: len(v.is_plain)]
        levels = np.maximum(packs, 0)
        runs = np.where(packs >= CALL_LEVEL, v.at(v.runs, levels), np.float32(0))
        wide = np.where(v.lane_strides > 1, np.float32(1), np.float32(v.lanes))
        cycles = (
            self.rates.copied_vector_cycles
            * runs
            * v.each_at(v.touched.elements[:-1], levels)
            / wide
        )
        ahead = cycles / (self.peak_cycles * copying_cores(v.c, v.target))
        return np.where(packs == CALL_LEVEL, ahead, self.of(cycles))

    @cached_property
    def stages(self) -> Floats:
        """The cost of the other stages, in vectors."""
        beside = np.full(self.v.count, self.work.beside, dtype=np.float32)
        return self.of(beside / (self.v.lanes * self.rates.multiply_adds))

    @cached_property
    def waking(self) -> Floats:
        several = np.where(self.tasks > 1, np.float32(self.rates.wake_cycles), np.float32(0))
        return (
            several + self.tasks * self.rates.task_cycles / self.v.target.threads
        ) / self.peak_cycles

    @cached_property
    def total(self) -> Floats:
        """Work of the core and of the caches one after the other."""
        total: Floats = self.core + self.apart
        return total + self.caches["l1"] + self.caches["l2"] + self.caches["l3"]

    @cached_property
    def overlapped(self) -> Floats:
        """The slowest of core and caches, and what runs beside neither."""
        slowest = [self.core, *self.caches.values()]
        longest: Floats = np.maximum.reduce(slowest)
        return longest + self.apart

    @property
    def parts(self) -> dict[str, Floats]:
        """All costs of a nest by name."""
        return {
            "multiply": self.multiply, "latency": self.latency, "loads": self.loads.sum(axis=0),
            "results": self.results, "loops": self.loops, "exits": self.exits,
            "checks": self.checks, "stages": self.stages,
            **self.caches,
            "packing": self.packing.sum(axis=0), "waking": self.waking,
            "core": self.core, "total": self.total, "overlapped": self.overlapped,
        }  # fmt: skip

    @cached_property
    def core(self) -> Floats:
        full: Floats = np.maximum(self.multiply, self.loads.sum(axis=0) / 2) + self.latency / 2
        return full + self.results + self.loops + self.exits + self.checks + self.stages

    @cached_property
    def apart(self) -> Floats:
        apart: Floats = sum(self.packing, self.waking)
        return apart


@lru_cache(maxsize=64)
def copying_cores(c: Contraction, target: CpuTarget) -> Floats:
    """`(operands, 1)`: cores that copy an operand ahead of a nest."""
    sizes = [c.compute.tensor(x.tensor).elements for x in c.operands[:OPERANDS]]
    cores = [target.threads if size >= SHARED_ELEMENTS else 1 for size in sizes]
    return np.array(cores, dtype=np.float32).reshape(-1, 1)
