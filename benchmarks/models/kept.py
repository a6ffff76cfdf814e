"""What was measured, a line a model in a file: the last line of a model counts."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.models.contestants import ARGUMENTS, OPTIONS, OURS, XLA
from benchmarks.models.tuning import Tuning
from hlotune.measure.timing.comparison import Ratio, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model.  Times are seconds of a blocking call, by the label of an entry."""

    model: str
    conditions: Mapping[str, Any]
    tuning: Tuning
    turns_s: Mapping[str, tuple[float, ...]]
    """The median of each turn; turn i of all entries is of one round."""
    refused: Mapping[str, str]
    """By label, why there is no time."""
    errors: Mapping[str, float]
    """By label, the largest error of a result against XLA's."""
    notes: Mapping[str, str]
    """By label, what has to be said of it."""

    def time_s(self, label: str) -> float | None:
        """The median of the turns."""
        return median(self.turns_s[label]) if label in self.turns_s else None

    @property
    def default(self) -> str | None:
        """The label of XLA's better form."""
        forms = [label for label in (XLA, ARGUMENTS) if label in self.turns_s]
        return min(forms, key=lambda label: median(self.turns_s[label]), default=None)

    @property
    def best_peer(self) -> str | None:
        """The label of the fastest of the peers."""
        own = (XLA, ARGUMENTS, OPTIONS, OURS)
        peers = [label for label in self.turns_s if label not in own]
        return min(peers, key=lambda label: median(self.turns_s[label]), default=None)

    def over_ours(self, label: str | None) -> Ratio | None:
        """The time of an entry over ours, round by round."""
        if label is None or OURS not in self.turns_s:
            return None
        return ratio(self.turns_s[label], self.turns_s[OURS])


def add(path: Path, line: Line) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(line)) + "\n")


def lines(path: Path, order: Iterable[str]) -> list[Line]:
    """The latest of each model, in an order of names; models that are no more are left out."""
    if not path.exists():
        return []
    found: dict[str, Line] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        fields = json.loads(text)
        turns = {label: tuple(values) for label, values in fields["turns_s"].items()}
        made = {**fields, "tuning": Tuning(**fields["tuning"]), "turns_s": turns}
        found[fields["model"]] = Line(**made)
    return [found[name] for name in order if name in found]
