"""The space of a compute without a contraction on a CPU.

Start at `space_of`.  A sketch is a partition of the stages into nests; knobs say for each stage in
which form it is written, and for each axis of it how many rows an iteration and a task take where
the stage is an anchor.  Knobs that a sketch does not use change nothing, and do not count in
digests.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import ScheduleError, UnsupportedKernel
from hlotune.schedules.features.loop_trees import Nodes
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.far_requests import streamed
from hlotune.schedules.ir.nest import initial, stored_bytes, without_empty_reduction
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_rows.decoded import Placed, placed
from hlotune.schedules.spaces.cpu_rows.first_candidate import first_columns
from hlotune.schedules.spaces.cpu_rows.forms import Form, forms_of, lanes_of, peeled_axes
from hlotune.schedules.spaces.cpu_rows.likes import likes_of
from hlotune.schedules.spaces.cpu_rows.locate import located
from hlotune.schedules.spaces.cpu_rows.moves import drawn, moved
from hlotune.schedules.spaces.cpu_rows.partitions import Partition, held_bytes, partitions
from hlotune.schedules.spaces.cpu_rows.populations import features_of_rows, nodes_of_rows
from hlotune.schedules.spaces.cpu_rows.sketch import Loops, Written, steps_of
from hlotune.schedules.spaces.cpu_rows.stages import groups
from hlotune.schedules.spaces.cpu_rows.streams import (
    bytes_of_row,
    distances_ahead,
    may_pass_caches,
    stream_steps,
)
from hlotune.schedules.spaces.knobs import Knob, Knobs, trips
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.limit_formulas import CALL_BYTES, TASK_BYTES
from hlotune.schedules.steps.limits import check
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Step
from hlotune.schedules.targets.cpu import CpuTarget

VECTORS = (1, 2, 3, 4, 6, 8, 12, 16)
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
UNROLL = (1, 2, 4, 8)
CHUNKS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MOST_TILES_OF_MANY = 1024
"""Bodies in a task of an update of many arrays, which is written over its arguments as a rule.

Each thread has one range of all tasks, in which one of a small array counts as much as any other:
Adam over ResNet-50's parameters takes 12.0 ms with tasks of 1,024 elements, 14.1 of 4,096, and 18
with a task an array.  Stores past the caches take 22 ms there, since the lines have been read just
before."""


def space_of(
    compute: Compute, target: CpuTarget, algorithm: str = "direct", apart: str = ""
) -> "RowsSpace":
    """The space of a compute as an algorithm has rewritten it, one stage apart if it is named.

    Raises UnsupportedKernel where what stages hand over is larger than scratch may be.
    """
    nest = initial(compute, target)
    for stage in compute.stages:
        if (size := stored_bytes(nest, nest.stage(stage.name))) > CALL_BYTES:
            raise UnsupportedKernel(
                f"expected results between stages of at most {CALL_BYTES} bytes, got {size} of "
                f"{stage.name}: the kernel stays with the default compiler"
            )
    stages = tuple(map(without_empty_reduction, compute.stages))
    return RowsSpace(replace(compute, stages=stages), target, algorithm, apart)


@dataclass(frozen=True)
class RowsSpace:
    compute: Compute
    target: CpuTarget
    algorithm: str = "direct"
    apart: str = ""
    """A stage that has a nest of its own; "" where any may share one."""
    pattern: ClassVar[Pattern] = "rows"

    @cached_property
    def _partitions(self) -> tuple[Partition, ...]:
        return partitions(self.compute, self.target)

    @cached_property
    def sketches(self) -> tuple[Partition, ...]:
        """The partitions whose first candidates have code, and the one with every stage alone."""
        *shared, alone = self._partitions
        own = [Nest(self.compute.stage(self.apart))] if self.apart else []
        found = (*(p for p in shared if self._applies(p)), alone)
        return tuple(p for p in found if all(nest in p for nest in own))

    def _applies(self, partition: Partition) -> bool:
        nest = initial(self.compute, self.target)
        try:
            for step in self._steps(partition, first_columns(self, partition)):
                nest = step.apply(nest)
            check(nest)
        except ScheduleError:
            return False
        return True

    @cached_property
    def lanes(self) -> dict[str, int]:
        return {s.name: lanes_of(self.compute, s, self.target) for s in self.compute.stages}

    @cached_property
    def holds(self) -> dict[str, bool]:
        """By stage: whether it is a reduction whose results may stay in registers."""
        return {s.name: self._may_hold(s) for s in self.compute.stages}

    def _may_hold(self, stage: Stage) -> bool:
        single = len(stage.stores) == len(stage.stored)
        fits = len(stage.stores) + 2 <= self.target.vector_registers
        return bool(stage.combine and stage.reduce and not stage.onto) and single and fits

    @cached_property
    def forms(self) -> dict[str, tuple[Form, ...]]:
        found = {}
        for s in self.compute.stages:
            forms = forms_of(self.compute, s, self.lanes[s.name])
            lanes = self.holds[s.name] and not (s.combine and s.combine.is_ordered)
            kept = tuple(f for f in forms if lanes or not f.reduces)
            found[s.name] = kept or (Form("", "", False),)
        return found

    @cached_property
    def peeled(self) -> dict[str, tuple[str, ...]]:
        """By stage: axes along which loads may lie outside of their tensors."""
        return {s.name: peeled_axes(self.compute, s) for s in self.compute.stages}

    @cached_property
    def likes(self) -> dict[str, str]:
        """By stage, the one that has its knobs: of many that do the same, the largest."""
        return likes_of(self.compute)

    @cached_property
    def shared(self) -> frozenset[str]:
        """The stages whose knobs are those of others too."""
        return frozenset(like for name, like in self.likes.items() if name != like)

    @cached_property
    def knobs(self) -> Knobs:
        knobs: list[Knob] = []
        for s in self.compute.stages:
            if self.likes[s.name] != s.name:
                continue
            knobs.append(Knob("form", s.name, tuple(range(len(self.forms[s.name])))))
            knobs.append(Knob("vectors", s.name, VECTORS))
            knobs.append(Knob("rows", s.name, ROWS))
            knobs.append(Knob("unroll", s.name, UNROLL if s.reduce else (1,)))
            knobs.append(Knob("chunk", s.name, CHUNKS if s.reduce else (0,)))
            if self.peeled[s.name]:
                knobs.append(Knob("peel", s.name, (0, 1)))
            is_one_of_many = s.name in self.shared
            for a in s.parallel:
                tiles, blocks = trips(a.extent), trips(a.extent)
                if is_one_of_many:
                    tiles, blocks = tuple(n for n in tiles if n <= MOST_TILES_OF_MANY), (1,)
                knobs.append(Knob("tiles", f"{s.name} {a.name}", tiles))
                knobs.append(Knob("blocks", f"{s.name} {a.name}", blocks))
            if streamed(self.compute, s):
                knobs.append(Knob("ahead", s.name, self._distances_ahead(s)))
            if not is_one_of_many and may_pass_caches(self.compute, s, self.target):
                knobs.append(Knob("past", s.name, (0, 1)))
        return Knobs(tuple(knobs), {})

    def _distances_ahead(self, stage: Stage) -> tuple[int, ...]:
        nests = [n for p in self._partitions for n in p if any(s is stage for s in n.stages)]
        sizes = {bytes_of_row(self.compute, nest, stage) for nest in nests}
        return distances_ahead(self.compute, stage, self.forms[stage.name][0], sizes)

    @cached_property
    def columns(self) -> dict[tuple[str, str], int]:
        """The values of a config, by kind and axis of the knob."""
        own = {(k.kind, k.axis): 1 + n for n, k in enumerate(self.knobs.knobs)}
        shared = dict(own)
        for name, like in self.likes.items():
            for (kind, axis), column in own.items() if name != like else ():
                stage, _, rest = axis.partition(" ")
                if stage == like:
                    shared[kind, f"{name} {rest}".strip()] = column
        return shared

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Values of each column of a config."""
        return np.array([len(self.sketches), *self.knobs.counts], dtype=np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.counts.astype(np.float64)))

    def values(self, configs: Configs, kind: str, axis: str) -> NDArray[np.int64]:
        """`(n,)`: what one knob stands at; 0 where the space has no such knob."""
        if (kind, axis) not in self.columns:
            return np.zeros(len(configs), dtype=np.int64)
        column = self.columns[kind, axis]
        table = np.array(self.knobs.knobs[column - 1].values, dtype=np.int64)
        found: NDArray[np.int64] = table[configs[:, column]]
        return found

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        result = within(configs, self.counts)
        inside = np.flatnonzero(result)
        for p, rows in groups(self, configs[inside]):
            result[inside[rows[~_fits(self.compute, p)]]] = False
        return result

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        """A hash of the nest of each config: equal nests have equal digests."""
        result = configs[:, 0].astype(np.uint64)
        for k, s in enumerate(self.compute.stages):
            own = [(p, rows) for p, rows in groups(self, configs) if p.stage is s]
            for p, rows in own:
                result[rows] += p.digest() * np.uint64(2 * k + 1)
        return result

    def groups(self, configs: Configs) -> list[tuple[Placed, NDArray[np.int64]]]:
        return groups(self, configs)

    def features(self, configs: Configs) -> NDArray[np.float32]:
        return features_of_rows(self, configs)

    def nodes(self, configs: Configs) -> Nodes:
        return nodes_of_rows(self, configs)

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        return drawn(self, n, rng)

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        return moved(self, configs, rng)

    def heuristic(self) -> NDArray[np.int32]:
        """The first candidate of the most promising sketch."""
        return first_columns(self, self.sketches[0])

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        return located(self, schedule, self.algorithm)

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        return Schedule(self.algorithm, self._steps(self.sketches[int(config[0])], config))

    def _written(self, p: Placed) -> Written:
        axes = tuple(a for a, here in p.peeled.items() if here[0])
        return Written(Loops(p.stage, p.loops), p.form, p.holds, axes)

    def _steps(self, partition: Partition, config: NDArray[np.int32]) -> tuple[Step, ...]:
        by_stage = {p.stage.name: p for p in placed(self, partition, config[None])}
        found = [by_stage[s.name] for nest in partition for s in nest.stages]
        steps: list[Step] = []
        for nest in partition:
            own = [p for p in found if p.nest is nest]
            steps += steps_of(nest, [self._written(p) for p in own])
            for p in own:
                ahead, past = (int(x.item()) for x in (p.ahead, p.past))
                steps += stream_steps(self.compute, p.stage, ahead, bool(past))
        return tuple(steps)


def _fits(compute: Compute, p: Placed) -> NDArray[np.bool_]:
    """Whether what a member hands over in an iteration is within the scratch of a task."""
    points = np.ones(len(p.at), dtype=np.int64)
    if p.stage is p.nest.anchor:
        return points > 0
    for axis, size in p.block.items():
        points *= np.minimum(size, p.nest.anchor.extents[axis])
    fits: NDArray[np.bool_] = points * held_bytes(compute, p.nest, p.stage) <= TASK_BYTES
    return fits
