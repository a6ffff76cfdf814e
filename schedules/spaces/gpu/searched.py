"""A space of a GPU or a TPU as searchers see it: positions of knobs, schedules, and features.

A schedule names its sketch and knobs in its algorithm, `blocks(triton_product,block_m=64,...)`, and
has no steps: the sketch says the whole structure.  Those of `tf32_blocks(...)` round f32 operands
of products to tf32.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_trees import NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import COLUMN, NAMES
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.numerics import Numerics
from hlotune.schedules.patterns.gpu import GpuAttention
from hlotune.schedules.patterns.gpu_forms import gpu_form
from hlotune.schedules.patterns.gpu_stages import AnyGpuKernel, GpuStages
from hlotune.schedules.spaces.gpu.space import GpuSketch, GpuSpace
from hlotune.schedules.spaces.gpu.table import gpu_space
from hlotune.schedules.spaces.space import Configs, Pattern
from hlotune.schedules.spaces.tpu.space import TpuSpace, tpu_space
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.target import F32Operands, Target
from hlotune.schedules.targets.tpu import TpuTarget

AnyBlockSpace = GpuSpace | TpuSpace
BLOCKS = "blocks"
"""The name of the algorithm of these schedules."""
TF32_BLOCKS = "tf32_blocks"
"""The same where the operands of products are rounded to tf32."""
_NAME = re.compile(r"(?:tf32_)?blocks\((\w+)((?:,\w+=-?\d+)*)\)")
JUMPS = 0.05
"""The share of moves that go anywhere."""
MOVES = 8
"""Tries to find a legal neighbour before a config is its own."""
FIRSTS = 8
"""First candidates of a space, its sketches in turns."""
KNOB_COLUMNS = len(NAMES) - 16
"""The first of the columns of features that a GPU's knobs stand in."""


def blocks_name(sketch: str, knobs: Mapping[str, int], algorithm: str = BLOCKS) -> str:
    """The algorithm of a schedule with this sketch and these knobs."""
    return f"{algorithm}({sketch}{''.join(f',{k}={v}' for k, v in knobs.items())})"


def blocks_of(algorithm: str) -> tuple[str, dict[str, int]]:
    """Sketch and knobs of an algorithm.  Raises ScheduleError where it names none."""
    found = _NAME.fullmatch(algorithm)
    if found is None:
        raise ScheduleError(
            f"expected a schedule of blocks, {BLOCKS}(sketch,knob=value,...), got {algorithm!r}"
        )
    pairs = (part.split("=") for part in found[2].split(",") if part)
    return found[1], {name: int(value) for name, value in pairs}


def rounded_to(algorithm: str) -> F32Operands:
    """What a schedule by this algorithm rounds f32 operands of products to."""
    return "tf32" if algorithm.startswith(TF32_BLOCKS) else "f32"


def searched_space(
    compute: Compute, target: Target, numerics: Numerics = "standard"
) -> "SearchedSpace":
    """All schedules of a kernel on a GPU or a TPU.

    Products of f32 are rounded to what the target has for them, where program and numerics allow.

    Raises UnsupportedKernel where the target has no schedules for the compute.
    """
    kernel = gpu_form(compute, target.f32_operands(numerics)).kernel
    return SearchedSpace(kernel, block_space(kernel, target))


def block_space(kernel: AnyGpuKernel, target: Target) -> AnyBlockSpace:
    """All schedules of a kernel as blocks.  Raises UnsupportedKernel where there are none."""
    if isinstance(target, TpuTarget):
        return tpu_space(kernel, target)
    if not isinstance(target, GpuTarget):
        raise ScheduleError(f"expected a GPU or a TPU, got {target.title}")
    return gpu_space(kernel, target)


def pattern_of(kernel: AnyGpuKernel) -> Pattern:
    """The kind of compute that a kernel is of."""
    match kernel:
        case GpuAttention():
            return "attention"
        case GpuStages():
            return "rows"
    return "contraction"


@dataclass(frozen=True, eq=False)
class SearchedSpace:
    """A `Space` over a `GpuSpace`, whose configs have values where these have positions."""

    kernel: AnyGpuKernel
    blocks: AnyBlockSpace

    @property
    def algorithm(self) -> str:
        return TF32_BLOCKS if self.rounds else BLOCKS

    @property
    def rounds(self) -> bool:
        """Whether all its schedules round f32 operands of products."""
        return not isinstance(self.kernel, GpuStages) and self.kernel.element == "tf32"

    @property
    def pattern(self) -> Pattern:
        return pattern_of(self.kernel)

    @property
    def sketches(self) -> tuple[GpuSketch, ...]:
        return self.blocks.sketches

    @property
    def size(self) -> float:
        return float(len(self.blocks.configs))

    @cached_property
    def _tables(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Number of values and the values, of each knob of each sketch: `(s, k)`, `(s, k, v)`."""
        most = max(len(knob.values) for s in self.sketches for knob in s.knobs)
        counts = np.ones((len(self.sketches), self.blocks.width - 1), np.int32)
        values = np.zeros((*counts.shape, most), np.int32)
        for i, sketch in enumerate(self.sketches):
            for j, knob in enumerate(sketch.knobs):
                counts[i, j] = len(knob.values)
                values[i, j, : len(knob.values)] = knob.values
        return counts, values

    @cached_property
    def _all(self) -> Configs:
        """All legal configs, as positions."""
        rows = self.blocks.configs.copy()
        _, values = self._tables
        sketches = rows[:, 0]
        for j in range(rows.shape[1] - 1):
            at = values[sketches, j] == rows[:, 1 + j, None]
            rows[:, 1 + j] = at.argmax(axis=1)
        return rows

    def _values(self, configs: Configs) -> Configs:
        """Configs as the space of blocks has them; all of them are inside."""
        _, values = self._tables
        rows = configs.copy()
        for j in range(configs.shape[1] - 1):
            rows[:, 1 + j] = values[configs[:, 0], j, configs[:, 1 + j]]
        return rows

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        counts, _ = self._tables
        known = (configs[:, 0] >= 0) & (configs[:, 0] < len(self.sketches))
        sketches = np.where(known, configs[:, 0], 0)
        inside = known & _within_each(configs[:, 1:], counts[sketches])
        result = np.zeros(len(configs), np.bool_)
        result[inside] = self.blocks.legal(self._values(configs[inside]))
        return result

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        rows: Configs = self._all[rng.integers(len(self._all), size=n)]
        return rows

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        """A step of one knob; seldom, any other config."""
        counts, _ = self._tables
        result = configs.copy()
        open_rows = np.arange(len(configs))
        for _ in range(MOVES):
            tried = configs[open_rows].copy()
            several = counts[tried[:, 0]] > 1
            column = (rng.random(several.shape) * several).argmax(axis=1)
            rows = np.arange(len(tried))
            tried[rows, 1 + column] += rng.choice(np.array([-1, 1], np.int32), len(tried))
            found = self.legal(tried)
            result[open_rows[found]] = tried[found]
            open_rows = open_rows[~found]
        jumps = np.flatnonzero(rng.random(len(configs)) < JUMPS)
        result[jumps] = self.sample(len(jumps), rng)
        return result

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        named = self.blocks.named(self._values(config[None])[0])
        return Schedule(blocks_name(*named, self.algorithm))

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        """The config with each knob at the value nearest to the schedule's; None for a schedule of
        another sketch, or that rounds operands to something else.
        """
        if rounded_to(schedule.algorithm) != rounded_to(self.algorithm):
            return None
        try:
            sketch, knobs = blocks_of(schedule.algorithm)
        except ScheduleError:
            return None
        for number, known in enumerate(self.sketches):
            if known.name == sketch and {k.name for k in known.knobs} == set(knobs):
                row = np.zeros(self.blocks.width, np.int32)
                row[0] = number
                for j, knob in enumerate(known.knobs):
                    away = [abs(v - knobs[knob.name]) for v in knob.values]
                    row[1 + j] = away.index(min(away))
                return row
        return None

    def features(self, configs: Configs) -> NDArray[np.float32]:
        """Rows as wide as those of all spaces: the guessed time as the cost of the whole nest, all
        threads equally loaded, and behind them the sketch and the knobs' logarithms.
        """
        values = self._values(configs)
        rows = np.zeros((len(configs), len(NAMES)), np.float32)
        rows[:, COLUMN["cost_total"]] = np.log2(self.blocks.seconds(values))
        rows[:, [COLUMN["balance"], COLUMN["even"]]] = 1.0
        rows[:, KNOB_COLUMNS : KNOB_COLUMNS + values.shape[1]] = np.log2(1.0 + values)
        return rows

    def nodes(self, configs: Configs) -> Nodes:
        """One node, for the whole kernel: blocks have no loops of ours."""
        values = np.zeros((len(configs), 1, len(NODE_NAMES)), np.float32)
        return Nodes(values, np.full((len(configs), 1), ROOT_PARENT, np.int16))

    def heuristic(self) -> NDArray[np.int32]:
        first: NDArray[np.int32] = self.firsts()[0]
        return first

    def firsts(self) -> Configs:
        """The most promising configs by the guessed time, the sketches in turns."""
        return np.stack([self._located(c) for c in self.blocks.propose(FIRSTS)])

    def _located(self, config: Configs) -> NDArray[np.int32]:
        located = self.locate(Schedule(blocks_name(*self.blocks.named(config), self.algorithm)))
        assert located is not None, "the space has the configs that it proposes"
        return located


def _within_each(positions: Configs, counts: NDArray[np.int32]) -> NDArray[np.bool_]:
    return np.asarray(((positions >= 0) & (positions < counts)).all(axis=1), np.bool_)
