"""Spaces of schedules for GPUs: sketches with knobs, what is legal, and which come first.

A config is a row of int32: column 0 is the sketch, the others are values of that sketch's knobs in
their order, then zeros.  Rules are functions over arrays of configs, so one statement serves
thousands and one alike.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.targets.gpu import GpuTarget
from hlotune.schedules.targets.target import Target

RESEMBLANCE = 0.3
"""By how much a guess is worse where another one that is the same was taken."""
Device = TypeVar("Device", bound=Target)
Configs = NDArray[np.int32]
Columns = Mapping[str, NDArray[np.int64]]
"""The values of each knob over n configs."""


@dataclass(frozen=True, slots=True)
class GpuKnob:
    """One choice of a schedule and the values that it may take."""

    name: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """What must hold of a config."""

    message: str
    """What was expected, for the error message."""
    holds: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class GpuSketch:
    """One structure of a kernel, its numbers left open."""

    name: str
    """The name of the builder that emits it."""
    knobs: tuple[GpuKnob, ...]
    limits: Callable[[Columns], tuple[Limit, ...]]
    seconds: Callable[[Columns], NDArray[np.float64]]
    """A guess at the time, for the order in which configs are tried."""


@dataclass(frozen=True)
class BlockSpace(Generic[Device]):
    """All schedules of one kernel on one device."""

    target: Device
    sketches: tuple[GpuSketch, ...]
    correction: Callable[[Configs], NDArray[np.float64]] | None = None
    """By what factor times differ from the roofline's guesses, where it was learned."""

    @property
    def width(self) -> int:
        return 1 + max(len(s.knobs) for s in self.sketches)

    @cached_property
    def configs(self) -> Configs:
        """All legal configs, `(n, width)`."""
        grids = [self._grid(number) for number in range(len(self.sketches))]
        return np.concatenate([g[self.legal(g)] for g in grids])

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        """`(n,)`: whether each config can be built and run on the target."""
        allowed = np.ones(len(configs), dtype=np.bool_)
        for sketch, rows, columns in self.by_sketch(configs):
            for limit in sketch.limits(columns):
                allowed[rows] &= limit.holds
        return allowed

    def check(self, config: Configs) -> None:
        """Raises ScheduleError, which names the first limit that one config `(width,)` breaks."""
        if not 0 <= config[0] < len(self.sketches):
            known = ", ".join(s.name for s in self.sketches)
            raise ScheduleError(f"sketch {config[0]} is none of this space: 0.. are {known}")
        ((sketch, _, columns),) = self.by_sketch(config[None])
        for knob in sketch.knobs:
            if columns[knob.name][0] not in knob.values:
                value = columns[knob.name][0]
                raise ScheduleError(f"{knob.name} is {value}: expected one of {knob.values}")
        for limit in sketch.limits(columns):
            if not limit.holds[0]:
                chosen = ", ".join(f"{name}={values[0]}" for name, values in columns.items())
                raise ScheduleError(f"{sketch.name}({chosen}): expected {limit.message}")

    def seconds(self, configs: Configs) -> NDArray[np.float64]:
        """`(n,)`: the guessed time of each config, with what was learned."""
        guesses = self.roofline(configs)
        return guesses if self.correction is None else guesses * self.correction(configs)

    def roofline(self, configs: Configs) -> NDArray[np.float64]:
        """`(n,)`: the time of each config by its sketch's formula alone."""
        guesses = np.full(len(configs), np.inf)
        for sketch, rows, columns in self.by_sketch(configs):
            guesses[rows] = sketch.seconds(columns)
        return guesses

    def propose(self, count: int) -> Configs:
        """The best guesses that differ, the sketches in turns: `(at most count, width)`.

        What resembles a config that was taken is worth less, so that guesses which are equal for
        the model do not all have the same blocks.
        """
        taken = [self._taken(number, count) for number in range(len(self.sketches))]
        turns = [row for turn in zip_longest(*taken) for row in turn if row is not None]
        return self.configs[turns[:count]]

    def _taken(self, number: int, count: int) -> list[int]:
        """Rows of `configs` that one sketch offers, the most promising first."""
        rows = np.flatnonzero(self.configs[:, 0] == number)
        knobs = self.configs[rows, 1 : 1 + len(self.sketches[number].knobs)]
        worth = self.seconds(self.configs[rows])
        taken = list[int]()
        for _ in range(min(count, len(rows))):
            best = int(np.argmin(worth))
            taken.append(int(rows[best]))
            worth *= 1 + RESEMBLANCE * np.mean(knobs == knobs[best], axis=1) ** 4
            worth[best] = np.inf
        return taken

    def neighbours(self, config: Configs) -> Configs:
        """Legal configs that differ from `config` by a step of one knob: `(n, width)`."""
        sketch, rows = self.sketches[config[0]], [config]
        for column, knob in enumerate(sketch.knobs, start=1):
            at = knob.values.index(int(config[column]))
            for other in knob.values[max(at - 1, 0) : at] + knob.values[at + 1 : at + 2]:
                rows.append(config.copy())
                rows[-1][column] = other
        near = np.stack(rows)[1:]
        near = near[self.legal(near)]
        return near[np.argsort(self.seconds(near), kind="stable")]

    def named(self, config: Configs) -> tuple[str, dict[str, int]]:
        """The builder's name and the knobs by name of one config `(width,)`."""
        sketch = self.sketches[config[0]]
        return sketch.name, {k.name: int(v) for k, v in zip(sketch.knobs, config[1:], strict=False)}

    def config(self, sketch: str, knobs: Mapping[str, int]) -> Configs:
        """The config of these names.

        Raises:
            ScheduleError: where the space has no such sketch, or the sketch other knobs.
        """
        for number, known in enumerate(self.sketches):
            if known.name == sketch and {k.name for k in known.knobs} == set(knobs):
                row = np.zeros(self.width, dtype=np.int32)
                row[: 1 + len(knobs)] = [number, *(knobs[k.name] for k in known.knobs)]
                return row
        raise ScheduleError(f"no sketch {sketch} with the knobs {', '.join(knobs)} in this space")

    def _grid(self, number: int) -> Configs:
        axes = np.meshgrid(*(k.values for k in self.sketches[number].knobs), indexing="ij")
        grid = np.zeros((axes[0].size, self.width), dtype=np.int32)
        grid[:, 0] = number
        grid[:, 1 : 1 + len(axes)] = np.stack([a.ravel() for a in axes], axis=1)
        return grid

    def by_sketch(self, configs: Configs) -> Iterator[tuple[GpuSketch, NDArray[np.intp], Columns]]:
        for number, sketch in enumerate(self.sketches):
            rows = np.flatnonzero(configs[:, 0] == number)
            if len(rows):
                values = configs[rows].astype(np.int64)
                yield sketch, rows, {k.name: values[:, 1 + n] for n, k in enumerate(sketch.knobs)}


GpuSpace = BlockSpace[GpuTarget]


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """The powers of two from `low` to `high`, both included."""
    return tuple(2**n for n in range(low.bit_length() - 1, high.bit_length()))


def ceil_div(a: NDArray[np.int64] | int, b: NDArray[np.int64] | int) -> NDArray[np.int64]:
    return np.asarray(-(-a // b), dtype=np.int64)


def next_power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
