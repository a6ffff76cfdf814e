"""The space of a contraction on a CPU: sketches of `sketch.py`, numbers of
`schedules/spaces/knobs.py`, as arrays.

Start at `space_of`.  `CpuSpace` turns rows of int32 into paths (`schedules/features/loop_paths.py`)
and asks them whether they are legal and what their features are; `schedule` turns one row into
steps.  The limits are those of `schedules/steps/limits.py`.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.errors import UnsupportedKernel
from hlotune.schedules.features.cost_terms import Work
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import Ints, Path, digest
from hlotune.schedules.features.loop_trees import Nodes, nodes_of
from hlotune.schedules.features.summary import features_of
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.ir.nest import initial, stored_bytes
from hlotune.schedules.patterns.contraction import Contraction, contraction
from hlotune.schedules.spaces.cpu_contraction.batch import (
    Population,
    legal_of,
    path_of_population,
    tile_of,
)
from hlotune.schedules.spaces.cpu_contraction.first_candidate.build import heuristic_config
from hlotune.schedules.spaces.cpu_contraction.first_candidate.single_thread import may_run_alone
from hlotune.schedules.spaces.cpu_contraction.first_candidate.streams import (
    STREAMS,
    has_streams,
)
from hlotune.schedules.spaces.cpu_contraction.locate import located
from hlotune.schedules.spaces.cpu_contraction.results_past import pass_caches
from hlotune.schedules.spaces.cpu_contraction.sketch import PACK_LEVELS, Sketch, Tiling, steps_of
from hlotune.schedules.spaces.cpu_contraction.tables import Tables, tables_of
from hlotune.schedules.spaces.cpu_contraction.vector_axes import vector_axes
from hlotune.schedules.spaces.knobs import Knobs, knobs_of, tile_rows
from hlotune.schedules.spaces.moves import TOGETHER, moved, with_random_tiles
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.limit_formulas import CALL_BYTES, tile_registers
from hlotune.schedules.steps.pack import has_one_load
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import NonTemporal
from hlotune.schedules.targets.cpu import CpuTarget

SAMPLING_ROUNDS = 20


def space_of(compute: Compute, target: CpuTarget) -> "CpuSpace":
    """Raises UnsupportedKernel where there is no rule for the compute, or no legal schedule."""
    c, nest = contraction(compute), initial(compute, target)
    for stage in c.before:
        if (size := stored_bytes(nest, nest.stage(stage.name))) > CALL_BYTES:
            raise UnsupportedKernel(
                f"expected stages ahead of the contraction of at most {CALL_BYTES} bytes, got "
                f"{stage.name} of {size}: the kernel stays with the default compiler"
            )
    return CpuSpace(c, target)


@dataclass(frozen=True)
class CpuSpace:
    contraction: Contraction
    target: CpuTarget
    algorithm: str = "direct"
    work: Work | None = None
    """What the kernel asks for, where the algorithm does other sums."""
    pattern: ClassVar[Pattern] = "contraction"
    hands_over: ClassVar[bool] = True
    """Whether the last stage reads sums in registers, where reductions are whole."""

    @cached_property
    def lanes(self) -> int:
        """Elements of the accumulator's type in a vector."""
        return max(1, self.target.vector_bytes // BYTES[self.contraction.dtype])

    @cached_property
    def sketches(self) -> tuple[Sketch, ...]:
        return sketches_of(self.contraction)

    @cached_property
    def knobs(self) -> Knobs:
        c = self.contraction
        small = may_run_alone(c, self.target)
        return knobs_of(
            c.parallel, c.reduce, c.windowed, self.target.threads, apart=c.apart, small=small,
            streams=STREAMS if has_streams(c, self.target) else (),
        )  # fmt: skip

    @cached_property
    def tables(self) -> Tables:
        return tables_of(self.contraction, self.target, self.sketches)

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        """Values of each column of a config."""
        return np.array([len(self.sketches), *self.knobs.counts], dtype=np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.counts.astype(np.float64)))

    @cached_property
    def tiles(self) -> dict[str, NDArray[np.int32]]:
        """For each vector axis the register tiles that fit, as positions in the register knobs."""
        return {v: self._tiles(v) for v in dict.fromkeys(s.vector for s in self.sketches)}

    def _tiles(self, vector: str) -> NDArray[np.int32]:
        c = self.contraction
        choices = [(1,) if a.name in c.apart else tile_rows(a.extent) for a in c.parallel]
        rows = np.array(_products(choices, self.target.vector_registers), dtype=np.int64)
        column = [a.name for a in c.parallel].index(vector)
        across = rows[:, column]
        extent = c.parallel[column].extent
        others = rows.prod(axis=1) // across
        fits = tile_registers(others, across) <= self.target.vector_registers
        fits &= (across - 1) * self.lanes < extent
        tiles: NDArray[np.int32] = (rows[fits] - 1).astype(np.int32)
        return tiles

    def held(self, vector: Ints, tile: Ints, unrolled: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        rows, across = tile_of(vector, tile, self.lanes)
        fits = tile_registers(rows, across) <= self.target.vector_registers
        return rows * across * unrolled, fits

    def path(self, configs: Configs) -> Path:
        return path_of_population(self, Population(self, configs))

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        result = within(configs, self.counts)
        result[result] = legal_of(self, Population(self, configs[result]))
        return result

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        """A hash of the nest of each config: equal nests have equal digests."""
        return digest(self.path(configs))

    def features(self, configs: Configs) -> NDArray[np.float32]:
        path = self.path(configs)
        return features_of(self.contraction, self.target, self.lanes, path, self.work)

    def nodes(self, configs: Configs) -> Nodes:
        path = self.path(configs)
        slots = path.axis.shape[1]  # so that all configs of the space have the same slots
        levels = levels_of(self.contraction, self.target, self.lanes, path, slots)
        return nodes_of(levels, self.work)

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        kept = [self._draw(n, rng)]
        kept[0] = kept[0][self.legal(kept[0])]
        for _ in range(SAMPLING_ROUNDS):
            if (missing := n - sum(map(len, kept))) <= 0:
                break
            drawn = self._draw(max(2 * missing, TOGETHER), rng)
            kept.append(drawn[self.legal(drawn)])
        found = np.concatenate(kept)[:n]
        if len(found) < n:
            found = np.concatenate([found, np.tile(self.heuristic(), (n - len(found), 1))])
        return found

    def _draw(self, n: int, rng: np.random.Generator) -> Configs:
        """Uniform in each knob, but for two that would seldom go together: half of the reductions
        are not unrolled, and register tiles are drawn among those that fit."""
        configs = np.empty((n, 1 + len(self.knobs.knobs)), dtype=np.int32)
        configs[:, 0] = rng.integers(len(self.sketches), size=n)
        configs[:, 1:] = rng.integers(self.knobs.counts, size=(n, len(self.knobs.knobs)))
        plain = rng.random((n, len(self.contraction.reduce))) < 0.5
        columns = 1 + np.array(self.knobs.columns("unroll"))
        configs[:, columns] = np.where(plain, 0, configs[:, columns])
        return with_random_tiles(self, configs, rng)

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        return moved(self, configs, rng)

    def heuristic(self) -> NDArray[np.int32]:
        return self._heuristic.copy()

    @cached_property
    def _heuristic(self) -> NDArray[np.int32]:
        """Each schedule that is located begins with it."""
        return heuristic_config(self)

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        return located(self, schedule)

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        sketch = self.sketches[int(config[0])]
        steps = steps_of(self.contraction, sketch, self.tiling(config), self.lanes)
        if pass_caches(self.contraction, self.target):
            steps = (*steps, NonTemporal(self.contraction.out.name))
        return Schedule(self.algorithm, steps)

    def tiling(self, config: NDArray[np.int32]) -> Tiling:
        """The numbers of one config, by axis."""
        table: dict[str, dict[str, int]] = {}
        for knob, position in zip(self.knobs.knobs, config[1:], strict=True):
            table.setdefault(knob.kind, {})[knob.axis] = knob.values[int(position)]
        parallel = [a.name for a in self.contraction.parallel]
        reduce = [a.name for a in self.contraction.reduce]

        def order(kind: str, names: list[str]) -> tuple[str, ...]:
            return tuple(names[k] for k in self.knobs.orders[kind][table[kind][""]])

        return Tiling(
            register=table["register"], block=table["block"], group=table["group"],
            unroll=table["unroll"], steps=table["steps"],
            task_order=order("task_order", parallel), group_order=order("group_order", parallel),
            tile_order=order("tile_order", parallel), reduce_order=order("reduce_order", reduce),
            clip=frozenset(a for a, on in table.get("clip", {}).items() if on),
            prefetch=table["prefetch"][""],
            peel=frozenset(a for a, on in table.get("peel", {}).items() if on),
            serial=bool(table.get("serial", {}).get("", 0)),
            streams=table.get("streams", {}).get("", 1),
        )  # fmt: skip


def sketches_of(c: Contraction) -> tuple[Sketch, ...]:
    """One sketch for each good vector axis, whole or chunked reduction, and place of each pack."""
    result = []
    for vector in vector_axes(c):
        for chunked in (False, True):
            places = [pack_levels(c, x.tensor, chunked) for x in c.operands]
            for levels in product(*places):
                packs = zip((x.tensor for x in c.operands), levels, strict=True)
                result.append(Sketch(vector, chunked, tuple(packs)))
    return tuple(result)


def pack_levels(c: Contraction, tensor: str, chunked: bool) -> tuple[str, ...]:
    at_load = c.compute.tensor(tensor).role == "constant" and has_one_load(c.compute, tensor)
    levels = [x for x in PACK_LEVELS if x != "load" or at_load]
    return tuple(x for x in levels if x != "chunk" or chunked)


def _products(choices: list[tuple[int, ...]], limit: int) -> list[tuple[int, ...]]:
    """All tuples of one value of each range whose product stays below the limit."""
    rows: list[tuple[int, ...]] = [()]
    for values in choices:
        rows = [(*row, v) for row in rows for v in values if prod(row) * v < limit]
    return rows
