"""A schedule: an algorithm and a tuple of steps.

Schedules are data, equal when their JSON is equal; `schedules/algorithms/replay.py` makes loop
nests of them.
"""

import json
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps.steps import STEPS, Step

XLA = "xla"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a kernel is computed: an algorithm, and the steps that make its loop nest."""

    algorithm: str
    """`direct`, or `xla`: the kernel is left to the default compiler, and there are no steps."""
    steps: tuple[Step, ...] = ()

    def to_json(self) -> str:
        """One line: `{"algorithm": "direct", "steps": [["Split", "out", "i0", [14, 7]], ...]}`.

        Last fields that a step leaves at their defaults are left out: records that were made before
        there were such fields say the same.
        """
        steps = [[type(s).__name__, *_said(s)] for s in self.steps]
        return json.dumps({"algorithm": self.algorithm, "steps": steps}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Raises ScheduleError where the text is no schedule of this version."""
        try:
            data = json.loads(text)
            steps = tuple(_step(name, *map(_frozen, values)) for name, *values in data["steps"])
            return Schedule(data["algorithm"], steps)
        except (KeyError, TypeError, ValueError) as error:
            raise ScheduleError(
                f"expected the JSON of a schedule of this version, got {text[:80]!r} ({error!r})"
            ) from error


DEFAULT = Schedule(XLA)


def _said(step: Step) -> list[Any]:
    """The fields of a step up to the last that is not left at its default."""
    found = [(getattr(step, f.name), f.default) for f in fields(step)]
    while found and found[-1][0] == found[-1][1]:
        found.pop()
    return [value for value, _ in found]


def _step(name: str, *values: Any) -> Step:
    step = STEPS[name](*values)
    for (field, kind), value in zip(_kinds(name).items(), values, strict=False):
        if not _fits(value, kind):
            raise TypeError(f"{name} takes as {field} a value of type {kind}, not {value!r}")
    return step


@cache
def _kinds(name: str) -> dict[str, Any]:
    return get_type_hints(STEPS[name])


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is not tuple:
        return type(value) is kind
    parts = get_args(kind)
    parts = parts[:1] * len(value) if isinstance(value, tuple) and parts[-1] is ... else parts
    return isinstance(value, tuple) and len(value) == len(parts) and all(map(_fits, value, parts))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
