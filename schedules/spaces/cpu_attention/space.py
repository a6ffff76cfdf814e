"""The space of attention on a CPU: start at `space_of`.

A sketch says along which axis the scores have vectors.  Knobs say how many queries a task and an
iteration take, which register tiles the two products have, whether values are packed, and how
much of the stages between is written out.  The compute is that of the algorithm's rewriting
(`schedules/algorithms/attention/rewriting.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_paths import Ints
from hlotune.schedules.features.loop_trees import Nodes
from hlotune.schedules.ir.compute import Compute, Stage
from hlotune.schedules.ir.expr import Load
from hlotune.schedules.patterns.attention import DEPTH, FEATURE, KEY, OUT, ROW, SCORES, VALUES
from hlotune.schedules.patterns.rows import Nest
from hlotune.schedules.spaces.cpu_attention.bodies import (
    DEPTH_IN_LANES,
    FEATURES_IN_LANES,
    KEYS_IN_LANES,
    UNROLL,
    Tile,
    between_form,
    between_levels,
    dividing,
    out_levels,
    outer_levels,
    scores_levels,
    scores_tile,
    values_levels,
    values_tile,
)
from hlotune.schedules.spaces.cpu_attention.first_candidate import first_columns
from hlotune.schedules.spaces.cpu_attention.locate import located
from hlotune.schedules.spaces.cpu_rows.bodies import Level, Sizes
from hlotune.schedules.spaces.cpu_rows.decoded import Placed
from hlotune.schedules.spaces.cpu_rows.forms import Form, lanes_of
from hlotune.schedules.spaces.cpu_rows.moves import drawn, moved
from hlotune.schedules.spaces.cpu_rows.partitions import Partition
from hlotune.schedules.spaces.cpu_rows.populations import features_of_rows, nodes_of_rows
from hlotune.schedules.spaces.cpu_rows.sketch import Loops, Written, steps_of
from hlotune.schedules.spaces.knobs import Knob, Knobs, trips
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.limit_formulas import TASK_BYTES
from hlotune.schedules.steps.pack import load_name
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import EndAt, Pack, Parallel, Split, Step, Vectorize
from hlotune.schedules.targets.cpu import CpuTarget

ROWS = tuple(range(1, 17))
VECTORS = tuple(range(1, 9))
CHUNKS = (0, 4, 8, 16, 32, 64, 128, 256, 512)
ALONE_POINTS = 1 << 14
"""Points from which on a stage ahead of all tasks is divided among threads."""
SKETCHES = (KEYS_IN_LANES, DEPTH_IN_LANES)


def space_of(compute: Compute, target: CpuTarget, algorithm: str) -> "AttentionSpace":
    """The space of a compute that the algorithm of this name has rewritten."""
    return AttentionSpace(compute, target, algorithm)


@dataclass(frozen=True)
class AttentionSpace:
    compute: Compute
    target: CpuTarget
    algorithm: str
    pattern: ClassVar[Pattern] = "attention"

    @property
    def sketches(self) -> tuple[Partition, ...]:
        """One nest of all stages, for each form of the scores."""
        return ((self.nest,),) * len(SKETCHES)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """The stages inside the blocks of queries, in order; the last stage at their end."""
        names = [s.name for s in self.compute.stages]
        return self.compute.stages[names.index(SCORES) :]

    @cached_property
    def aside(self) -> tuple[Stage, ...]:
        """The stages that are computed ahead of all tasks."""
        return self.compute.stages[: len(self.compute.stages) - len(self.stages)]

    @cached_property
    def extents(self) -> Mapping[str, int]:
        return {a.name: a.extent for s in self.stages for a in s.axes}

    @cached_property
    def lanes(self) -> dict[str, int]:
        return {s.name: lanes_of(self.compute, s, self.target) for s in self.compute.stages}

    @cached_property
    def nest(self) -> Nest:
        *members, out = self.stages
        rows = {a.name: a.name for a in out.parallel if a.name != FEATURE}
        return Nest(out, tuple(members), tuple((s.name, rows) for s in members))

    @cached_property
    def knobs(self) -> Knobs:
        rows = self.extents[ROW]
        knobs = [
            Knob("tiles", OUT, tuple(n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if n <= rows)),
            Knob("blocks", OUT, trips(rows)),
            Knob("vectors", OUT, VECTORS),
            Knob("rows", "between", ROWS[:8]),
            Knob("vectors", "between", VECTORS),
            Knob("rows", "functions", ROWS[:4]),
            Knob("vectors", "functions", VECTORS),
            Knob("pack", VALUES, (0, 1)),
        ]
        for name in (SCORES, VALUES):
            knobs += [
                Knob("rows", name, ROWS),
                Knob("vectors", name, VECTORS),
                Knob("unroll", name, UNROLL),
            ]
        knobs.append(Knob("chunk", VALUES, CHUNKS))
        return Knobs(tuple(knobs), {})

    @cached_property
    def columns(self) -> dict[tuple[str, str], int]:
        """The columns of a config, by kind and stage of the knob."""
        return {(k.kind, k.axis): 1 + n for n, k in enumerate(self.knobs.knobs)}

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        return np.array([len(SKETCHES), *self.knobs.counts], dtype=np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.counts.astype(np.float64)))

    def values(self, configs: Configs, kind: str, axis: str) -> Ints:
        """`(n,)`: what one knob stands at."""
        column = self.columns[kind, axis]
        table = np.array(self.knobs.knobs[column - 1].values, dtype=np.int64)
        found: Ints = table[configs[:, column]]
        return found

    # what configs mean ----------------------------------------------------------------------------

    def _asked(self, configs: Configs, name: str) -> Tile:
        rows, vectors, unroll = (
            self.values(configs, kind, name) for kind in ("rows", "vectors", "unroll")
        )
        chunk = self.values(configs, "chunk", VALUES) if name == VALUES else rows * 0
        return Tile(rows, vectors, unroll, chunk)

    def placed(self, form: Form, configs: Configs) -> list[Placed]:
        """All stages of configs whose scores have one form; the last stage at the end."""
        registers, rows = self.target.vector_registers, self.extents[ROW]
        lanes = self.lanes
        values = values_tile(self._asked(configs, VALUES), self.extents, lanes[VALUES], registers)
        block = values.rows * self.values(configs, "tiles", OUT)
        block = np.minimum(block, -(-rows // values.rows) * values.rows)
        iterations = -(-rows // block)
        task = block * np.minimum(self.values(configs, "blocks", OUT), iterations)
        scores = scores_tile(
            self._asked(configs, SCORES), form, self.extents, lanes[SCORES], registers
        )
        scores = Tile(dividing(scores.rows, block), scores.vectors, scores.unroll, scores.chunk)
        outer = outer_levels(self.stages[-1], block, task)
        found = list[Placed]()
        for stage in self.stages:
            if stage.name == SCORES:
                own = form, scores_levels(stage, scores, form, lanes[SCORES]), scores.vectors
            elif stage.name == VALUES:
                own = FEATURES_IN_LANES, values_levels(stage, values, lanes[VALUES]), values.vectors
            elif stage.name == OUT:
                wide = self._across(configs, OUT, FEATURE, lanes[OUT])
                own = FEATURES_IN_LANES, (*outer, *out_levels(wide, lanes[OUT])), wide
            else:
                own = self._between(stage, configs, block)
            found.append(self._put(stage, *own, block=block, outer=outer))
        return found

    def _across(self, configs: Configs, name: str, axis: str, lanes: int) -> Ints:
        most = -(-self.extents[axis] // lanes)
        return np.minimum(self.values(configs, "vectors", name), most)

    def _between(
        self, stage: Stage, configs: Configs, block: Ints
    ) -> tuple[Form, tuple[Level, ...], Ints]:
        form, lanes = between_form(stage), self.lanes[stage.name]
        name = "between" if stage.reduce else "functions"
        rows = np.minimum(self.values(configs, "rows", name), self.extents[ROW])
        wide = self._across(configs, name, KEY, lanes)
        if form.reduces:
            rows = np.clip(rows, 1, (self.target.vector_registers - 2) // (2 * wide))
            rows = np.maximum(rows, 1)
            wide = np.clip(wide, 1, (self.target.vector_registers - 2) // (rows + 1))
        rows = dividing(rows, block)
        return form, between_levels(stage, form, rows, wide, lanes), wide

    def _put(
        self, stage: Stage, form: Form, loops: tuple[Level, ...], vectors: Ints, *,
        block: Ints, outer: tuple[Level, ...],
    ) -> Placed:  # fmt: skip
        one = np.ones_like(block)
        sizes = Sizes(one * self.lanes[stage.name], vectors, one, one, one * 0, one * 0)
        own = {a.name for a in stage.axes}
        around = () if stage.name == OUT else tuple(x for x in outer if x.root in own)
        holds = bool(stage.reduce)
        return Placed(
            nest=self.nest, stage=stage, form=form, holds=holds, at=np.arange(len(block)),
            sizes=sizes, outer=around, loops=loops, block={ROW: block}, ahead=one * 0, past=one * 0,
        )  # fmt: skip

    def groups(self, configs: Configs) -> list[tuple[Placed, Ints]]:
        """All stages of all configs, each with the rows of the configs that it belongs to."""
        found = []
        for k, form in enumerate(SKETCHES):
            rows = np.flatnonzero(configs[:, 0] == k)
            if len(rows):
                found += [(p, rows) for p in self.placed(form, configs[rows])]
        return found

    # the protocol of spaces -----------------------------------------------------------------------

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        result = within(configs, self.counts)
        inside = np.flatnonzero(result)
        for p, rows in self.groups(configs[inside]):
            result[inside[rows[~self._fits(p)]]] = False
        return result

    def _fits(self, p: Placed) -> NDArray[np.bool_]:
        """Whether what a stage stores for a block is within the scratch of a task."""
        points = np.minimum(p.block[ROW], self.extents[ROW])
        if p.stage.name != OUT:
            own = [a.name for a in p.stage.parallel if a.name[0] not in "bgt"]
            for a in own:
                points = points * self.extents[a]
        fits: NDArray[np.bool_] = points * 8 <= TASK_BYTES
        return fits

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        """A hash of the nest of each config: equal nests have equal digests."""
        result = configs[:, 0].astype(np.uint64)
        result += self.values(configs, "pack", VALUES).astype(np.uint64) << np.uint64(8)
        for k, (p, rows) in enumerate(self.groups(configs)):
            result[rows] += p.digest() * np.uint64(2 * (k % len(self.stages)) + 1)
        return result

    def features(self, configs: Configs) -> NDArray[np.float32]:
        return features_of_rows(self, configs)

    def nodes(self, configs: Configs) -> Nodes:
        return nodes_of_rows(self, configs)

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        return drawn(self, n, rng)

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        return moved(self, configs, rng)

    def heuristic(self) -> NDArray[np.int32]:
        return first_columns(self)

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        return located(self, schedule)

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        return Schedule(self.algorithm, self._steps(config))

    def _steps(self, config: NDArray[np.int32]) -> tuple[Step, ...]:
        form = SKETCHES[int(config[0])]
        found = self.placed(form, config[None])
        written = [Written(Loops(p.stage, p.loops), p.form, p.holds) for p in found]
        steps = [*steps_of(self.nest, written)]
        place = next(n for n, x in zip(written[-1].loops.names, found[-1].loops, strict=True)
                     if x.root == ROW)  # fmt: skip
        by_name = {p.stage.name: p for p in found}
        if form is KEYS_IN_LANES:
            steps.append(self._packed(by_name[SCORES], KEY, DEPTH, place))
        if self.values(config[None], "pack", VALUES)[0]:
            steps.append(self._packed(by_name[VALUES], FEATURE, KEY, place))
        ended = [p for p in found if p.stage.ends]
        multiple = lcm(*(_inner_step(p, KEY) for p in ended))
        steps += [EndAt(p.stage.name, KEY, multiple) for p in ended]
        for stage in self.aside:
            steps += _ahead(stage, self.lanes[stage.name])
        return tuple(steps)

    def _packed(self, p: Placed, across: str, along: str, place: str) -> Pack:
        """An operand of a product in panels of its vectors, copied by each task."""
        load = next(x for x in p.stage.loads if {across, along} <= set(x.axes))
        wide, deep = (dimension(load, axis) for axis in (across, along))
        lanes = self.lanes[p.stage.name]
        others = [(d, 1) for d in range(len(load.index)) if d not in (wide, deep)]
        panel = int(p.sizes.vectors[0]) * lanes
        layout = (*others, (wide, panel), (deep, 1), (wide, 1))
        return Pack(p.stage.name, self._packed_tensor(p.stage, load), OUT, place, layout, lanes)

    def _packed_tensor(self, stage: Stage, load: Load) -> str:
        """What `Pack` calls a load: queries, keys and values may be parts of one tensor."""
        alone = sum(x.tensor == load.tensor for s in self.stages for x in s.loads) == 1
        return load.tensor if alone else load_name(stage, load)


def dimension(load: Load, axis: str) -> int:
    """The dimension of a tensor that a load walks along an axis."""
    return next(d for d, e in enumerate(load.index) if axis in e.coefficients)


def _inner_step(p: Placed, axis: str) -> int:
    """Points of an axis that the innermost loop along it which is not written out goes on by."""
    return int([x.step for x in p.loops if x.root == axis and x.kind == "serial"][-1].item())


def _ahead(stage: Stage, lanes: int) -> list[Step]:
    """A stage ahead of all tasks: its last axis in vectors, the first one divided among threads."""
    if stage.combine is not None or not stage.parallel or stage.parallel[-1].extent < lanes:
        return []
    *outer, last = (a.name for a in stage.parallel)
    steps: list[Step] = [Split(stage.name, last, (lanes,)), Vectorize(stage.name, f"{last}.1")]
    if outer and stage.points >= ALONE_POINTS:
        steps.append(Parallel(stage.name, outer[0]))
    return steps
