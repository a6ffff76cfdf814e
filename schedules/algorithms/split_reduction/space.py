"""The spaces of split reductions: that of the parts as a contraction of its own, and a last sum.

Knobs, limits, features and digests are those of the parts
(`schedules/spaces/cpu_contraction/space.py`); the sum at the end has one schedule, in vectors along
the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.algorithm import Algorithm
from hlotune.schedules.algorithms.split_reduction.rewriting import (
    PART,
    PARTS,
    SUM,
    SplitReduction,
    named,
)
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.features.cost_terms import Work
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_trees import Nodes, nodes_of
from hlotune.schedules.features.summary import features_of
from hlotune.schedules.ir.compute import Axis, Compute, Stage
from hlotune.schedules.patterns.contraction import SPLIT_LANE, Contraction, contraction
from hlotune.schedules.spaces.cpu_contraction.first_candidate.streamed_operands import (
    REPAYS_PACKING,
)
from hlotune.schedules.spaces.cpu_contraction.space import CpuSpace
from hlotune.schedules.spaces.space import Configs, Pattern
from hlotune.schedules.steps.limit_formulas import CALL_BYTES
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import (
    Accumulate,
    ComputeAt,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
    VectorizeReduction,
)
from hlotune.schedules.targets.cpu import CpuTarget
from hlotune.schedules.targets.machine import SHARED_ELEMENTS

FEW_RESULTS = 1 << 13
"""Results up to which tasks may want parts of the reduction."""
STEPS_OF_A_PART = 256
"""Multiply-adds of a result from which on a part is worth a task of its own."""
RESULTS_TOGETHER = 4
"""Results whose lanes are added up side by side."""
CHAINS = 8
"""Independent sums that keep the multiply-add units busy."""


@dataclass(frozen=True)
class SplitSpace:
    """The schedules of one way to split a reduction; `original` is the compute before."""

    original: Compute
    split: SplitReduction
    target: CpuTarget
    pattern: ClassVar[Pattern] = "contraction"

    @cached_property
    def compute(self) -> Compute:
        return self.split(self.original)

    @cached_property
    def parts(self) -> CpuSpace:
        """The space of the contraction that keeps its parts; what comes behind is left out."""
        stages = self.compute.stages
        keep = next(k for k, s in enumerate(stages) if s.name == PARTS)
        ahead = replace(self.compute, stages=stages[: keep + 1])
        return CpuSpace(replace(contraction(ahead), apart=(PART,)), self.target)

    @cached_property
    def last_steps(self) -> tuple[Step, ...]:
        return last_steps(self.compute, self.parts.lanes)

    @property
    def algorithm(self) -> str:
        return str(self.split)

    @property
    def contraction(self) -> Contraction:
        return self.parts.contraction

    @property
    def lanes(self) -> int:
        return self.parts.lanes

    @property
    def sketches(self) -> tuple[object, ...]:
        return self.parts.sketches

    @property
    def size(self) -> float:
        return self.parts.size

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Values of each column of a config."""
        return self.parts.counts

    @cached_property
    def work(self) -> Work:
        """The sums of the kernel; beside them all else that a call runs."""
        core = self.contraction.core
        beside = sum(s.flops for s in self.compute.stages if s is not core)
        return Work(2.0 * contraction(self.original).core.points, float(beside))

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        return self.parts.legal(configs)

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        return self.parts.digest(configs)

    def features(self, configs: Configs) -> NDArray[np.float32]:
        path = self.parts.path(configs)
        return features_of(self.contraction, self.target, self.lanes, path, self.work)

    def nodes(self, configs: Configs) -> Nodes:
        path = self.parts.path(configs)
        slots = path.axis.shape[1]
        v = levels_of(self.contraction, self.target, self.lanes, path, slots)
        return nodes_of(v, self.work)

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        return self.parts.sample(n, rng)

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        return self.parts.neighbours(configs, rng)

    def heuristic(self) -> NDArray[np.int32]:
        return self.parts.heuristic()

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        steps = self.parts.schedule(config).steps
        return Schedule(str(self.split), (*steps, *self.last_steps))

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        """The config with this schedule, or the nearest; None where it splits in another way."""
        if schedule.algorithm != str(self.split):
            return None
        own = {s.name for s in self.parts.contraction.compute.stages}
        steps = tuple(s for s in schedule.steps if s.stage in own or s.stage.endswith(".packed"))
        return self.parts.locate(Schedule("direct", steps))


def split_spaces(compute: Compute, target: CpuTarget) -> tuple[SplitSpace, ...]:
    """The spaces of the splits that may pay, and have a legal schedule."""
    c = contraction(compute)
    ways = [(p, n) for p in _parts(c, target) for n in _lanes(c, target) if p[1] * n[1] > 1]
    found = []
    for (axis, parts), (lane_axis, lanes) in ways:
        split = SplitReduction(axis, parts, lane_axis, lanes)
        kept_bytes = c.out.points * parts * lanes * BYTES[c.dtype]
        if not split.refusal(compute) and kept_bytes <= CALL_BYTES:
            found.append(SplitSpace(compute, split, target))
    return tuple(s for s in found if s.legal(s.heuristic()[None])[0])


def _parts(c: Contraction, target: CpuTarget) -> list[tuple[str, int]]:
    """One part; and one a thread along the longest axis, where there are few results."""
    longest = max(c.reduce, key=lambda r: r.extent)
    steps = c.core.points // max(1, c.out.points)
    few = target.threads > 1 and c.out.points <= FEW_RESULTS
    pays = few and steps >= STEPS_OF_A_PART * target.threads and longest.extent >= target.threads
    return [(longest.name, 1), *([(longest.name, target.threads)] if pays else [])]


def _lanes(c: Contraction, target: CpuTarget) -> list[tuple[str, int]]:
    """One lane; and vectors along what the largest operand has together, where it is used little.

    Few results get several vectors each, so that their sums do not wait for one another.
    """
    plain, lanes = (c.reduce[0].name, 1), max(1, target.vector_bytes // BYTES[c.dtype])
    axis = _together(c, lanes)
    if axis is None:
        return [plain]
    while lanes * c.out.points < CHAINS * target.vector_bytes // BYTES[c.dtype]:
        lanes *= 2
    return [plain, (axis, lanes)]


def _together(c: Contraction, lanes: int) -> str | None:
    """The reduce axis along which the largest operand, and all that vary along it, lie together.

    None where whole vectors along a parallel axis read it as well, or copying it first pays.
    """
    size = c.compute.tensor
    if not c.operands:
        return None
    largest = max(c.operands, key=lambda x: size(x.tensor).bytes)
    often = c.core.flops / max(1, size(largest.tensor).bytes) >= REPAYS_PACKING
    plain = any(c.stride(largest, a.name) == 1 and a.extent >= lanes for a in c.parallel)
    if often or plain or size(largest.tensor).role == "constant":
        return None
    found = [r for r in c.reduce if c.stride(largest, r.name) == 1]
    varying = [x for x in c.core.loads for r in found if r.name in x.axes]
    near = all(c.stride(x, r.name) == 1 for r in found for x in varying)
    return found[0].name if found and near else None


def last_steps(compute: Compute, lanes: int) -> tuple[Step, ...]:
    """The sum of the parts in registers, where the last stage reads it."""
    out, add = compute.stages[-1], compute.stage(SUM)
    if not out.parallel:
        return ()
    v, rows = out.parallel[-1].name, [a.name for a in out.parallel[:-1]]
    in_lanes = add.reduce[-1] == Axis(SPLIT_LANE, lanes)
    steps: list[Step] = [
        Split(out.name, v, (lanes,)),
        Vectorize(out.name, f"{v}.1"),
        ComputeAt(SUM, out.name, f"{v}.0"),
        *(_sum_of_lanes(add, rows, v) if in_lanes else _sum_of_vectors(add, rows, v, lanes)),
    ]
    if add.points >= SHARED_ELEMENTS:
        steps.append(Parallel(out.name, _outermost(out.parallel)))
    return tuple(steps)


def _sum_of_lanes(add: Stage, rows: Sequence[str], v: str) -> list[Step]:
    """Where each result has one vector of parts, whose lanes come together in registers."""
    pieces = [r.name for r in add.reduce[:-1]]
    return [
        Split(SUM, v, (min(RESULTS_TOGETHER, add.extents[v]),)),
        Reorder(SUM, (*rows, f"{v}.0", *pieces, f"{v}.1", SPLIT_LANE)),
        VectorizeReduction(SUM, SPLIT_LANE),
        Unroll(SUM, f"{v}.1"),
        Accumulate(SUM, f"{v}.0"),
    ]


def _sum_of_vectors(add: Stage, rows: Sequence[str], v: str, lanes: int) -> list[Step]:
    """Vectors of results, part by part."""
    return [
        Split(SUM, v, (lanes,)),
        Reorder(SUM, (*(r.name for r in add.reduce), *rows, f"{v}.0", f"{v}.1")),
        Vectorize(SUM, f"{v}.1"),
        *(Unroll(SUM, a) for a in (f"{v}.0", *reversed(rows))),
        Accumulate(SUM, ""),
    ]


def _outermost(axes: tuple[Axis, ...]) -> str:
    """The loop over all axes of the result up to the first that has several iterations."""
    name = next((a.name for a in axes[:-1] if a.extent > 1), "")
    return name or f"{axes[-1].name}.0"


SPLIT_REDUCTION = Algorithm(
    name="split_reduction",
    signature="split_reduction(axis, parts, axis, lanes)",
    rewriting=named,
    spaces=split_spaces,
)
