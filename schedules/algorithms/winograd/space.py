"""The space of one Winograd algorithm: which of its schedules there are, as rows of int32.

Features, trees and digests are those of the products, a matrix product a point, whose operands are
packed: tiles and weights each inside a task or ahead.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.algorithms.winograd.first_candidate import heuristic_config
from hlotune.schedules.algorithms.winograd.limits import IN_TASK, Numbers, fit
from hlotune.schedules.algorithms.winograd.read_back import read_back
from hlotune.schedules.algorithms.winograd.rewriting import PRODUCTS, TILE, TILES, WEIGHTS, winograd
from hlotune.schedules.algorithms.winograd.sketch import (
    LONGEST_SUM,
    WHEN,
    WinogradSketch,
    WinogradTiling,
    even_part,
    line_elements,
    winograd_steps,
)
from hlotune.schedules.dtypes import BYTES
from hlotune.schedules.features.cost_terms import Work
from hlotune.schedules.features.loop_levels import levels_of
from hlotune.schedules.features.loop_paths import CALL_LEVEL, KINDS, LOAD_LEVEL, Ints, Path, digest
from hlotune.schedules.features.loop_trees import Nodes, nodes_of
from hlotune.schedules.features.summary import features_of
from hlotune.schedules.ir.compute import Compute, Stage, Store
from hlotune.schedules.ir.expr import Affine, Load
from hlotune.schedules.ir.flops import real_flops
from hlotune.schedules.patterns.contraction import Contraction, contraction
from hlotune.schedules.spaces.knobs import LONGEST_TILE, LONGEST_UNROLL, Knob, trips
from hlotune.schedules.spaces.moves import retried
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.steps.limit_formulas import tile_registers
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget

SERIAL, PARALLEL, UNROLL, VECTORIZE = range(len(KINDS))
WEIGHTS_LEVEL = {"load": LOAD_LEVEL, "call": CALL_LEVEL, "task": 3}
"""Where the weights at the points are computed: slots of `path`, or levels above."""
SAMPLING_ROUNDS = 20
MOVING_ROUNDS = 6
MOVES = np.array([0.4, 0.3, 0.2, 0.1])
"""Shares of moves: a knob drawn anew, a knob moved by one, another register tile, the sketch.

None passes a factor between levels: of these, panels alone hang on another, vectors."""


@dataclass(frozen=True)
class WinogradSpace:
    """F(outputs, 3) of a convolution; `original` is the compute before the rewriting."""

    original: Compute
    outputs: int
    target: CpuTarget
    can_preload: bool
    pattern: ClassVar[Pattern] = "contraction"
    """Whether the weights are a constant that nothing else reads."""

    @property
    def algorithm(self) -> str:
        return f"winograd({self.outputs})"

    @cached_property
    def compute(self) -> Compute:
        return winograd(self.outputs)(self.original)

    @cached_property
    def contraction(self) -> Contraction:
        """The products at the points, as a matrix product."""
        core = self.compute.stage(PRODUCTS)
        index = tuple(Affine.axis(a.name) for a in core.parallel)
        read = Load(PRODUCTS, index, self.compute.tensor(PRODUCTS).dtype)
        name = self.compute.stages[-1].name
        out = Stage(name, core.parallel, (), (Store(PRODUCTS, index),), (read,))
        return Contraction(self.compute, core, out)

    @cached_property
    def lanes(self) -> int:
        return max(1, self.target.vector_bytes // BYTES[self.contraction.dtype])

    @cached_property
    def sketches(self) -> tuple[WinogradSketch, ...]:
        """What is transformed at load need not be by each call, and is not read as taps."""
        whens = ("load",) if self.can_preload else ("call", "task")
        return tuple(WinogradSketch(self.outputs, w, a) for a in (False, True) for w in whens)

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """Points, tiles, features."""
        points, tiles, features = (a.extent for a in self.contraction.parallel)
        return points, tiles, features

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        _, tiles, features = self.sizes
        vectors, last = ceil(features / self.lanes), self.contraction.reduce[-1]
        return (
            Knob("block", TILE, trips(tiles)),
            Knob("register", TILE, tuple(range(1, min(tiles, LONGEST_TILE) + 1))),
            Knob("register", "", tuple(range(1, min(vectors, LONGEST_TILE) + 1))),
            Knob("group", "", trips(vectors)),
            Knob("unroll", last.name, tuple(range(1, min(last.extent, LONGEST_UNROLL) + 1))),
            Knob("prefetch", "", (0, 1, 2)),
            Knob("depth", last.name, (1,) if self.can_preload else trips(last.extent)),
            Knob("spread", "", (0, 1)),
        )

    @cached_property
    def counts(self) -> NDArray[np.int32]:
        return np.array([len(self.sketches), *(len(k.values) for k in self.knobs)], dtype=np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.counts.astype(np.float64)))

    @cached_property
    def register_tiles(self) -> NDArray[np.int32]:
        """Positions of rows and vectors of all register tiles that fit."""
        rows, vectors = np.meshgrid(*(np.array(k.values) for k in self.knobs[1:3]), indexing="ij")
        fits = tile_registers(rows, vectors) <= self.target.vector_registers
        return (np.stack([rows[fits], vectors[fits]], axis=1) - 1).astype(np.int32)

    @cached_property
    def _values(self) -> tuple[Ints, ...]:
        """The values of each knob."""
        return tuple(np.array(k.values) for k in self.knobs)

    @cached_property
    def _structures(self) -> Ints:
        """`(2, sketches)`: position in WHEN, and whether inputs are apart."""
        return np.array([(WHEN.index(s.when), s.apart) for s in self.sketches]).T

    def numbers(self, configs: Configs) -> Numbers:
        _, tiles, _ = self.sizes
        when, apart = self._structures[:, configs[:, 0]]
        positions = configs[:, 1:].T.astype(np.intp)
        values = [of.take(p) for of, p in zip(self._values, positions, strict=True)]
        block = np.minimum(values[0], tiles)
        unroll, inside = values[4], when == IN_TASK
        sums = self._sums(inside, unroll, values[6])
        return Numbers(
            when=when,
            apart=apart == 1,
            tiles=block,
            rows=values[1],
            across=values[2],
            panels=values[3],
            unroll=unroll,
            prefetch=np.where(inside, 0, values[5]),
            depth=np.where(inside, sums[-1], self.contraction.reduce[-1].extent),
            sums=sums,
            spread=values[7].astype(np.int64),
        )

    def _sums(self, inside: NDArray[np.bool_], unroll: Ints, depth: Ints) -> tuple[Ints, ...]:
        """How much of each reduction is added one to another, outermost first.

        As much from the innermost outwards as makes a sum of LONGEST_SUM terms.  Weights that a
        task computes are those of all other reductions, and of the last so much less.
        """
        *outer, last = (a.extent for a in self.contraction.reduce)
        others, steps = np.where(inside, prod(outer), 1), -(-last // unroll)
        fits = last * others <= LONGEST_SUM  # whole, though its steps may pass its end
        most = np.where(fits, steps, even_part(steps, unroll * others))
        terms = np.minimum(np.where(inside, np.minimum(depth, most), most) * unroll, last)
        sums = [terms]
        for extent in reversed(outer):
            sums.append(even_part(extent, terms))
            terms = terms * sums[-1]
        return tuple(reversed(sums))

    # arrays -----------------------------------------------------------------------------------

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        result = within(configs, self.counts)
        result[result] = fit(self, self.numbers(configs[result]))
        return result

    def path(self, configs: Configs) -> Path:
        n, (points, tiles, features) = self.numbers(configs), self.sizes
        count, one = len(configs), np.ones(len(configs), dtype=np.int64)
        panel = np.minimum(n.across * self.lanes, features)
        group = np.minimum(n.panels * n.across * self.lanes, features)
        *outer, last = (a.extent for a in self.contraction.reduce)
        tile, feature, first = 1, 2, 3
        slots = [
            (tile, -(-tiles // n.tiles), PARALLEL),
            (feature, -(-features // (n.panels * n.across * self.lanes)), PARALLEL),
            (feature, -(-group // (n.across * self.lanes)), SERIAL),
            (first + len(outer), -(-last // n.depth), SERIAL),
            (0, points * one, SERIAL),
            (tile, -(-n.tiles // n.rows), SERIAL),
            *((first + k, -(-extent // n.sums[k]), SERIAL) for k, extent in enumerate(outer)),
            (first + len(outer), -(-n.depth // n.sums[-1]), SERIAL),
            *((first + k, n.sums[k], SERIAL) for k in range(len(outer))),
            (first + len(outer), -(-n.sums[-1] // n.unroll), SERIAL),
            (first + len(outer), n.unroll, UNROLL),
            (tile, np.minimum(n.rows, n.tiles), UNROLL),
            (feature, -(-panel // self.lanes), UNROLL),
            (feature, np.minimum(panel, self.lanes), VECTORIZE),
        ]
        weights = np.array([WEIGHTS_LEVEL[w] for w in WHEN])[n.when]
        inside = n.when == IN_TASK
        return Path(
            axis=np.broadcast_to([a for a, _, _ in slots], (count, len(slots))),
            trips=np.stack([t for _, t, _ in slots], axis=1),
            kind=np.broadcast_to([k for _, _, k in slots], (count, len(slots))),
            held_from=(7 + len(outer)) * one,
            split_from=3 * one,
            packs=np.stack([np.where(n.apart, CALL_LEVEL, 1), weights], axis=1),
            panels=np.stack([one, np.where(inside, 1, n.across * self.lanes)], axis=1),
            borders=np.zeros((count, 2), dtype=np.int64),
            handed_over=0 * one,
            prefetch=n.prefetch,
            asked_along=np.where(n.prefetch == 2, 0, -1),  # the points
            spacing=n.spread * line_elements(self.compute),
            beyond=-n.tiles % np.minimum(n.rows, n.tiles),
        )

    def digest(self, configs: Configs) -> NDArray[np.uint64]:
        return digest(self.path(configs))

    def features(self, configs: Configs) -> NDArray[np.float32]:
        path, work = self.path(configs), self.work(configs)
        return features_of(self.contraction, self.target, self.lanes, path, work)

    def work(self, configs: Configs) -> Work:
        """The sums of the convolution; beside the products all transforms that a call runs."""
        n, (_, tiles, features) = self.numbers(configs), self.sizes
        blocks = -(-tiles // n.tiles)  # each computes the weights anew
        groups = -(-features // (n.panels * n.across * self.lanes))  # each its tiles
        runs = np.where(n.when == IN_TASK, blocks, n.when == WHEN.index("call"))
        beside = sum(self._beside.values()) + (runs - 1) * self._beside[WEIGHTS]
        return Work(self._flops, beside + np.where(n.apart, 0, groups - 1) * self._beside[TILES])

    @cached_property
    def _flops(self) -> float:
        """The operations of the convolution's sums."""
        return 2.0 * contraction(self.original).core.points

    @cached_property
    def _beside(self) -> dict[str, float]:
        """Operations of all stages but the products."""
        stages = (s for s in self.compute.stages if s.name != PRODUCTS)
        found = {s.name: float(real_flops(self.compute, s)) for s in stages}
        return found | {WEIGHTS: found[WEIGHTS] + self._gathering}

    @property
    def _gathering(self) -> float:
        """What it takes to gather weights whose features lie apart, as gradients with respect to
        images read them, in operations."""
        stage, rates = self.compute.stage(WEIGHTS), self.target.rates
        feature, c = stage.parallel[-1].name, self.contraction
        apart = sum(abs(c.stride(x, feature)) > rates.most_stride for x in stage.loads)
        return apart * stage.points * rates.scatter_cycles * rates.multiply_adds

    def nodes(self, configs: Configs) -> Nodes:
        path = self.path(configs)
        slots = path.axis.shape[1]
        v = levels_of(self.contraction, self.target, self.lanes, path, slots)
        return nodes_of(v, self.work(configs))

    # configs ----------------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        kept = [np.empty((0, len(self.counts)), dtype=np.int32)]
        for _ in range(SAMPLING_ROUNDS):
            if (missing := n - sum(map(len, kept))) <= 0:
                break
            drawn = rng.integers(self.counts, size=(missing, len(self.counts)), dtype=np.int32)
            drawn[:, 2:4] = self._tiles(missing, rng)
            kept.append(drawn[self.legal(drawn)])
        found = np.concatenate(kept)[:n]
        if len(found) < n:
            found = np.concatenate([found, np.tile(self.heuristic(), (n - len(found), 1))])
        return found

    def _tiles(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        tiles = self.register_tiles
        drawn: NDArray[np.int32] = tiles[rng.integers(len(tiles), size=n)]
        return drawn

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        def changed(rows: NDArray[np.intp]) -> Configs:
            return self._moved(configs[rows], rng)

        return retried(configs, changed, self.legal, MOVING_ROUNDS)

    def _moved(self, configs: Configs, rng: np.random.Generator) -> Configs:
        result, n = configs.copy(), len(configs)
        kind = rng.choice(len(MOVES), size=n, p=MOVES)
        column = rng.choice(np.flatnonzero(self.counts[1:] > 1) + 1, size=n)
        anew, step, tile, sketch = (np.flatnonzero(kind == k) for k in range(len(MOVES)))
        result[anew, column[anew]] = rng.integers(self.counts[column[anew]])
        near = result[step, column[step]] + rng.choice([-1, 1], size=len(step))
        result[step, column[step]] = np.clip(near, 0, self.counts[column[step]] - 1)
        result[tile, 2:4] = self._tiles(len(tile), rng)
        result[sketch, 0] = rng.integers(self.counts[0], size=len(sketch))
        return result

    def heuristic(self) -> NDArray[np.int32]:
        return heuristic_config(self)

    def firsts(self) -> Configs:
        return self.heuristic()[None]

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        values = [k.values[int(config[1 + n])] for n, k in enumerate(self.knobs)]
        tiles, rows, vectors, panels, unroll, prefetch, _, spread = values
        sketch = self.sketches[int(config[0])]
        tiling = WinogradTiling(
            tiles=tiles, rows=rows, vectors=vectors, panels=panels, unroll=unroll,
            prefetch=prefetch, sums=tuple(int(x[0]) for x in self.numbers(config[None]).sums),
            spread=spread,
        )  # fmt: skip
        steps = winograd_steps(self.compute, sketch, tiling, self.lanes)
        return Schedule(sketch.algorithm, steps)

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        """The config with this schedule, or the nearest; None where no sketch fits."""
        found = read_back(schedule.steps, self.compute)
        if schedule.algorithm != self.sketches[0].algorithm or found is None:
            return None
        config = self.heuristic().copy()
        known = found.when in {s.when for s in self.sketches}
        when = found.when if known else self.sketches[int(config[0])].when
        config[0] = self.sketches.index(WinogradSketch(self.outputs, when, found.apart))
        for n, (knob, value) in enumerate(zip(self.knobs, found.numbers, strict=True)):
            config[1 + n] = _nearest(knob, value)
        return config if bool(self.legal(config[None])[0]) else None


def _nearest(knob: Knob, value: int) -> int:
    """A depth is the first that reaches a value: longer ones are cut to the longest piece."""
    values = np.array(knob.values)
    if knob.kind == "depth":
        return min(int(np.searchsorted(values, value)), len(values) - 1)
    return int(np.argmin(np.abs(values - value)))
