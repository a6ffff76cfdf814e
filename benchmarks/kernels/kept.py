"""What was measured, a line a case in a file of `benchmarks.tracked`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import tracked
from benchmarks.kernels import plain
from benchmarks.kernels.tuning import Tuning, read

XLA, FIRST, OURS = "ours xla", "ours first", "ours tuned"
JITTED, DIRECT = (tuple(f"ours {x}" for x in forms) for forms in (plain.JITTED, plain.DIRECT))
PLAIN = (*JITTED, *DIRECT)
"""Labels of entries, and of plain loops over as many bytes; all others are peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One case.  Times are seconds of a blocking call, the median of its turns."""

    case: str
    conditions: Mapping[str, Any]
    tuning: Tuning
    times_s: Mapping[str, float]
    """By the label of an entry: `pytorch compiled`."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By label, why there is no time."""
    left_to_xla: str = ""
    """Why no kernel of ours is in the program; nothing where one is."""
    goal_s: float | None = None
    loop_bytes: Mapping[str, int] = field(default_factory=dict)
    """By the label of a plain loop, the bytes that a call of it moves."""
    stored_share: float = 0.0
    """The part of the bytes of arguments and results that results are."""
    published: Mapping[str, float] = field(default_factory=dict)
    """By the name of a property, the figure of a table of which alone it is known."""

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
        peers = {k: s for k, s in self.times_s.items() if k not in (XLA, FIRST, OURS, *PLAIN)}
        return min(peers.items(), key=lambda pair: pair[1]) if peers else None

    def is_done(self, seconds: float) -> bool:
        """Whether a run that tunes for so many seconds has nothing to add: a line of first
        candidates alone is no line of a search."""
        if self.tuning.failure:
            return False
        return not seconds or not self.tuning.kernels or self.tuning.wall_s > 0

    def plain_rate(self, of: tuple[str, ...]) -> float | None:
        """Bytes a second of the fastest copy, or of the read where results are few, of the loops
        with these labels: a read's, then copies'."""
        are_few = self.stored_share * plain.SHARE_OF_STORES < 1
        labels = of[:1] if are_few else of[1:]
        rates = [self.loop_bytes[x] / self.times_s[x] for x in labels if x in self.times_s]
        return max(rates, default=None)

    @property
    def limit_s(self) -> float | None:
        """The least time by bytes and operations.  Where a plain loop had more of memory than the
        peak that was measured beforehand, its rate counts."""
        if self.published:
            return self.published.get("limit_s")
        tuning, plain_rates = self.tuning, [
            size / self.times_s[x] for x, size in self.loop_bytes.items() if x in self.times_s
        ]  # fmt: skip
        if tuning.level != "memory" or tuning.operations_s is None or not plain_rates:
            return tuning.limit_s
        bytes_s = min(tuning.bytes_s or 0.0, tuning.moved_bytes / max(plain_rates))
        return max(bytes_s, tuning.operations_s)

    @property
    def share_of_bandwidth(self) -> float | None:
        """The rate of ours as a share of that of a plain loop which is called as ours is; None
        where operations take longer than a third of what bytes take, or no such loop was timed."""
        return self._share_of(JITTED)

    @property
    def share_of_direct_loop(self) -> float | None:
        """The same beside a loop that is called without XLA, which all lines have."""
        if self.published:
            return self.published.get("share_of_bandwidth")
        return self._share_of(DIRECT)

    def _share_of(self, labels: tuple[str, ...]) -> float | None:
        rate, ours_s, tuning = self.plain_rate(labels), self.ours_s, self.tuning
        if rate is None or ours_s is None or not tuning.waits_for_bytes:
            return None
        return tuning.moved_bytes / ours_s / rate


def add(path: Path, line: Line) -> None:
    tracked.put(path, "case", asdict(line))


def lines(path: Path, order: Iterable[str]) -> list[Line]:
    """The cases in an order of names; those that are no more are left out."""
    found = tracked.read(path, "case")
    return [_line(found[name]) for name in order if name in found]


def _line(fields: Mapping[str, Any]) -> Line:
    return Line(**{**fields, "tuning": read(fields["tuning"])})
