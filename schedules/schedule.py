"""A schedule: an algorithm and a tuple of steps.  Data; equal when their JSON is equal; replayed by `nest.replay`."""

import json
from dataclasses import dataclass, fields
from typing import Any

from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps import STEPS, Step

XLA = "xla"


@dataclass(frozen=True, slots=True)
class Schedule:
    """`algorithm` is `direct`, ..., or `xla`: leave the kernel to the default compiler (then there are no steps)."""

    algorithm: str
    steps: tuple[Step, ...] = ()

    def to_json(self) -> str:
        """One line: `{"algorithm": "direct", "steps": [["Split", "out", "i0", [14, 7]], ...]}`."""
        steps = [[type(s).__name__, *(getattr(s, f.name) for f in fields(s))] for s in self.steps]
        return json.dumps({"algorithm": self.algorithm, "steps": steps}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Raises ScheduleError where the text is no schedule of this version."""
        try:
            data = json.loads(text)
            steps = tuple(STEPS[name](*map(_frozen, values)) for name, *values in data["steps"])
            return Schedule(data["algorithm"], steps)
        except (KeyError, TypeError, ValueError) as error:
            raise ScheduleError(
                f"expected the JSON of a schedule of this version, got {text[:80]!r} ({error!r})"
            ) from error


DEFAULT = Schedule(XLA)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
