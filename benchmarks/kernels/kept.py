"""What was measured, a line a case in a file: the last line of a case counts."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.kernels.tuning import Tuning, read

XLA, FIRST, OURS = "ours xla", "ours first", "ours tuned"
"""Labels of entries; all others are peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One case.  Times are seconds of a blocking call, the median of its turns."""

    case: str
    conditions: Mapping[str, Any]
    tuning: Tuning
    times_s: Mapping[str, float]
    """By the label of an entry: `pytorch compiled`."""
    refused: Mapping[str, str]
    """By label, why there is no time."""
    left_to_xla: str = ""
    """Why no kernel of ours is in the program; nothing where one is."""
    goal_s: float | None = None

    @property
    def xla_s(self) -> float | None:
        return self.times_s.get(XLA)

    @property
    def ours_s(self) -> float | None:
        """XLA's where nothing of ours is in the program; that of first candidates where no search
        followed them."""
        if self.left_to_xla:
            return self.xla_s
        return self.times_s.get(OURS, self.times_s.get(FIRST))

    @property
    def best_peer(self) -> tuple[str, float] | None:
        """Label and time of the fastest of the peers."""
        peers = {k: s for k, s in self.times_s.items() if k not in (XLA, FIRST, OURS)}
        return min(peers.items(), key=lambda pair: pair[1]) if peers else None


def add(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def lines(path: Path, order: Iterable[str]) -> list[Line]:
    """The latest of each case, in an order of names; cases that are no more are left out."""
    if not path.exists():
        return []
    found: dict[str, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(text)
        found[fields["case"]] = Line(**{**fields, "tuning": read(fields["tuning"])})
    return [found[name] for name in order if name in found]
