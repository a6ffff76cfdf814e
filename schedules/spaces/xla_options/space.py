"""Options of XLA as a space that searchers walk: a column an option, position 0 as XLA has it."""

import json

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.features.loop_trees import NODE_NAMES, ROOT_PARENT, Nodes
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.space import Configs, Pattern, within
from hlotune.schedules.spaces.xla_options.table import OPTIONS, Option, Value
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Kind

ALGORITHM = "xla_options"
"""The algorithm of schedules that leave a program to XLA with some options."""
OFTEN_OWN = 0.6
"""The share of options that a random config leaves as XLA has them: most help alone or not."""


def schedule_of(options: dict[str, Value]) -> Schedule:
    """The schedule that stands for some options: `xla_options{"xla_cpu_...": true}`."""
    return Schedule(ALGORITHM + json.dumps(options, sort_keys=True))


def options_of(schedule: Schedule) -> dict[str, Value]:
    """The options of a schedule.  Raises ScheduleError where it is another one."""
    try:
        if not schedule.algorithm.startswith(ALGORITHM + "{"):
            raise ValueError
        found = json.loads(schedule.algorithm.removeprefix(ALGORITHM))
    except ValueError:
        raise ScheduleError(
            f"expected options of XLA, as {ALGORITHM}{{...}}, got {schedule.algorithm!r}"
        ) from None
    return dict(found)


class OptionsSpace:
    """All combinations of the options of one kind of target."""

    pattern: Pattern = "rows"

    def __init__(self, kind: Kind, options: tuple[Option, ...] | None = None) -> None:
        self.options = OPTIONS[kind] if options is None else options
        self.counts = np.array([1 + len(o.values) for o in self.options], np.int32)

    @property
    def size(self) -> float:
        return float(np.prod(self.counts.astype(float)))

    def sample(self, n: int, rng: np.random.Generator) -> Configs:
        rows = self._drawn(n, rng)
        own = rng.random(rows.shape) < OFTEN_OWN
        return self._whole(np.where(own, 0, rows))

    def neighbours(self, configs: Configs, rng: np.random.Generator) -> Configs:
        """One option of each config changed."""
        moved, rows = configs.copy(), np.arange(len(configs))
        column = rng.integers(0, len(self.options), len(configs))
        step = rng.integers(1, self.counts[column])
        moved[rows, 1 + column] = (moved[rows, 1 + column] + step) % self.counts[column]
        return moved

    def legal(self, configs: Configs) -> NDArray[np.bool_]:
        return within(configs, np.array([1, *self.counts], np.int32))

    def schedule(self, config: NDArray[np.int32]) -> Schedule:
        chosen = zip(self.options, config[1:], strict=True)
        return schedule_of({o.name: o.values[k - 1] for o, k in chosen if k})

    def locate(self, schedule: Schedule) -> NDArray[np.int32] | None:
        try:
            given = options_of(schedule)
        except ScheduleError:
            return None
        config = np.zeros(1 + len(self.options), np.int32)
        for column, option in enumerate(self.options, 1):
            value = given.pop(option.name, None)
            if value is not None:
                if value not in option.values:
                    return None
                config[column] = 1 + option.values.index(value)
        return None if given else config

    def features(self, configs: Configs) -> NDArray[np.float32]:
        """Positions, in columns that are no costs."""
        rows = np.zeros((len(configs), len(NAMES)), np.float32)
        rows[:, : len(self.options)] = configs[:, 1:]
        return rows

    def nodes(self, configs: Configs) -> Nodes:
        """A root with a leaf an option."""
        n, knobs = len(configs), len(self.options)
        values = np.zeros((n, 1 + knobs, len(NODE_NAMES)), np.float32)
        values[:, 1:, 0] = configs[:, 1:]
        values[:, 1:, 1] = np.arange(knobs)
        parent = np.zeros((n, 1 + knobs), np.int16)
        parent[:, 0] = ROOT_PARENT
        return Nodes(values, parent)

    def heuristic(self) -> NDArray[np.int32]:
        """The first option with its first value: XLA by itself is the default."""
        config = np.zeros(1 + len(self.options), np.int32)
        config[1] = 1
        return config

    def firsts(self) -> Configs:
        """Each value of each option alone."""
        rows = [
            [0, *(value if k == column else 0 for k in range(len(self.options)))]
            for column, option in enumerate(self.options)
            for value in range(1, 1 + len(option.values))
        ]
        return np.array(rows, np.int32)

    def _drawn(self, n: int, rng: np.random.Generator) -> NDArray[np.int32]:
        return rng.integers(0, self.counts, (n, len(self.options)), dtype=np.int32)

    def _whole(self, knobs: NDArray[np.int32]) -> Configs:
        sketch = np.zeros((len(knobs), 1), np.int32)
        return np.concatenate([sketch, knobs.astype(np.int32)], axis=1)
