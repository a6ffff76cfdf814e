"""What was measured, a line a model in a file of `benchmarks.tracked`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import tracked
from benchmarks.models.contestants import ARGUMENTS, OPTIONS, OURS, XLA
from benchmarks.models.tuning import Tuning
from hlotune.measure.timing.comparison import Ratio, ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What the turns of an entry come to, in seconds of a blocking call."""

    median_s: float
    best_s: float | None = None
    """The best turn."""
    over_ours: Ratio | None = None
    """Its time over ours, round by round; None of an entry of which it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One model."""

    model: str
    conditions: Mapping[str, Any]
    tuning: Tuning
    timed: Mapping[str, Timed] = field(default_factory=dict)
    """By label."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By label, why there is no time."""
    errors: Mapping[str, float] = field(default_factory=dict)
    """By label, the largest error of a result against XLA's."""
    moved: float | None = None
    """That of XLA's own where the inputs move by one rounding, of an example with ties."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By label, what has to be said of it."""

    def time_s(self, label: str) -> float | None:
        """The median of the turns."""
        return self.timed[label].median_s if label in self.timed else None

    @property
    def default(self) -> str | None:
        """The label of XLA's better form."""
        return self._fastest([label for label in (XLA, ARGUMENTS) if label in self.timed])

    @property
    def best_peer(self) -> str | None:
        """The label of the fastest of the peers."""
        return self._fastest([x for x in self.timed if x not in (XLA, ARGUMENTS, OPTIONS, OURS)])

    def _fastest(self, labels: Iterable[str]) -> str | None:
        return min(labels, key=lambda label: self.timed[label].median_s, default=None)

    def over_ours(self, label: str | None) -> Ratio | None:
        """The time of an entry over ours, round by round."""
        return self.timed[label].over_ours if label and label in self.timed else None


def timed(turns_s: Mapping[str, tuple[float, ...]]) -> dict[str, Timed]:
    """The times of each entry, by label, from the medians of its turns; turn i of all entries is of
    one round."""
    ours = turns_s.get(OURS)
    return {
        label: Timed(
            median_s=median(turns), best_s=min(turns),
            over_ours=ratio(turns, ours) if ours and label != OURS else None,
        )
        for label, turns in turns_s.items()
    }  # fmt: skip


def add(path: Path, line: Line) -> None:
    tracked.put(path, "model", asdict(line))


def lines(path: Path, order: Iterable[str]) -> list[Line]:
    """The models in an order of names; those that are no more are left out."""
    found = tracked.read(path, "model")
    return [_line(found[name]) for name in order if name in found]


def _line(fields: Mapping[str, Any]) -> Line:
    read = {label: _timed(x) for label, x in fields.get("timed", {}).items()}
    return Line(**{**fields, "tuning": Tuning(**fields["tuning"]), "timed": read})


def _timed(fields: Mapping[str, Any]) -> Timed:
    """An end of an interval that is not there is infinite: JSON has no such number."""
    known = fields.get("over_ours")
    found = Ratio(known["median"], known["low"], known.get("high", inf)) if known else None
    return Timed(median_s=fields["median_s"], best_s=fields.get("best_s"), over_ours=found)
