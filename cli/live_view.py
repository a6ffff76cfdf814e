"""The live table of a tuning run: a row a kernel, calm in a terminal of 80 columns."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from hlotune.cli.printing import counted
from hlotune.search.progress import (
    Batch,
    Event,
    Finalising,
    Finished,
    FormTried,
    KernelAtLimit,
    KernelSkipped,
    KernelStarted,
    KernelStopped,
    Started,
)
from hlotune.tuning_logs.columns import fitting
from hlotune.tuning_logs.keeping import Moved
from hlotune.tuning_logs.render import kernel_time_text, time_text
from hlotune.tuning_logs.text import escaped

VISIBLE_KERNELS = 16
"""Rows: those that take most of the program's time."""
BARS = "▁▂▃▄▅▆▇█"
SPARKS = 8
"""Batches that a sparkline shows: the newest."""
SPARE = ("way", "share", "of limit", "trials")
"""Columns that are left out where there is no room, in this order."""


@dataclass
class Row:
    """What the latest events said of a kernel."""

    label: str
    default_s: float
    calls: float
    limit_s: float | None
    trials: int = 0
    best_s: float | None = None
    history: list[float] = field(default_factory=list)
    """The best time after each batch."""
    state: str = "waits"

    @property
    def used_s(self) -> float:
        """The best known time of a call, the default's where nothing beat it."""
        return min(self.best_s or self.default_s, self.default_s)


@dataclass
class View:
    """The state of the live table, a renderable of rich.

    `load` tells the share of the processors that other processes take; None where nobody knows.
    """

    load: Callable[[], float | None] = lambda: None
    rows: dict[str, Row] = field(default_factory=dict)
    """By key."""
    latest: Batch | None = None
    failed: Counter[str] = field(default_factory=Counter)
    note: str = "reading the program and finding its kernels"
    busy: float | None = None

    def update(self, event: Event) -> None:
        match event:
            case Started():
                self.note = (
                    f"timing the defaults of {counted(event.kernels, 'kernel')}, which each trial "
                    "is held against; then trials begin"
                )
            case KernelStarted():
                self.rows[event.key] = Row(
                    event.label, event.default_s, event.calls, event.limit_s, state="builds"
                )
                self.note = ""
            case Batch():
                self._take(event)
            case Finalising() | Finished():
                self.note = note_of(event)
                for row in self.rows.values():
                    row.state = "compared"
            case KernelStopped():
                for row in self.rows.values():
                    row.state = "stopped" if row.label == event.label else row.state
            case KernelAtLimit():
                self.rows[event.key].state = "at its limit"
            case KernelSkipped() | FormTried() | Moved():
                pass

    def _take(self, event: Batch) -> None:
        for row in self.rows.values():
            row.state = "waits" if row.state == "searches" else row.state
        row = self.rows.setdefault(
            event.key, Row(event.label, event.default_s, event.calls, event.limit_s)
        )
        row.trials, row.best_s, row.state = event.kernel_trials, event.best_s, "searches"
        row.limit_s = event.limit_s or row.limit_s
        row.history.append(row.used_s)
        self.failed.update(event.failed)
        self.latest, self.note, self.busy = event, "", self.load()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = [Text(escaped(line), overflow="fold") for line in self.status()]
        yield Group(self.table(options.max_width), *lines) if self.rows else Group(*lines)

    def status(self) -> Iterator[str]:
        """Lines below the table: the whole program, the search, failures, the machine."""
        if self.rows and (before := sum(r.default_s * r.calls for r in self.rows.values())):
            after = sum(r.used_s * r.calls for r in self.rows.values())
            yield (
                f"kernels begun, together: {time_text(before)} -> {time_text(after)} a run, "
                f"{before / after:.2f}x by the search's own times, not proven yet"
            )
        if self.latest is not None:
            latest = self.latest
            yield (
                f"{latest.kernels_begun} of {counted(latest.kernels, 'kernel')} begun, "
                f"{counted(latest.trials, 'trial')}, {latest.elapsed_s:.0f} s, "
                f"{left_text(latest)}"
            )
        if self.failed:
            kinds = ", ".join(f"{count} {kind}" for kind, count in self.failed.most_common())
            yield f"failed: {kinds}"
        if self.busy is not None:
            yield f"other processes take {self.busy:.0%} of the processors"
        if self.note:
            yield self.note

    def table(self, width: int = 120) -> Table:
        """The table, with as many columns as there is room for."""
        columns = {
            "trials": 6, "best": 8, "of limit": 8, "speedup": 7, "share": 5, "way": SPARKS,
            "state": 8,
        }  # fmt: skip
        shown = fitting({"kernel": 24, **columns}, SPARE, width)[1:]
        label = min(44, max(12, width - 3 - sum(columns[name] + 2 for name in shown)))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("kernel", no_wrap=True, overflow="ellipsis", max_width=label)
        for name in shown:
            right = name not in ("way", "state")
            table.add_column(name, justify="right" if right else "left", no_wrap=True)
        total = sum(r.default_s * r.calls for r in self.rows.values())
        rows = sorted(self.rows.values(), key=lambda r: -r.default_s * r.calls)
        for row in rows[:VISIBLE_KERNELS]:
            found = cells(row, total)
            table.add_row(Text(escaped(row.label)), *(Text(found[name]) for name in shown))
        if len(rows) > VISIBLE_KERNELS:
            table.add_row(f"and {len(rows) - VISIBLE_KERNELS} more", *("" for _ in shown))
        return table


def cells(row: Row, total_s: float) -> dict[str, str]:
    """The cells of a kernel, by column.  The speedup is by the search's times, not proved yet."""
    best, limit = row.best_s, row.limit_s
    return {
        "trials": str(row.trials),
        "best": kernel_time_text(best),
        "of limit": f"{limit / best:.0%}" if limit and best else "-",
        "speedup": f"{row.default_s / best:.2f}x" if best else "-",
        "share": f"{row.default_s * row.calls / total_s:.0%}" if total_s else "-",
        "way": sparkline(row.history),
        "state": row.state,
    }


def sparkline(times_s: list[float]) -> str:
    """The newest times as bars: the longest is the highest."""
    shown = times_s[-SPARKS:]
    high = max(shown, default=0.0)
    return "".join(BARS[round((len(BARS) - 1) * t / high)] for t in shown)


def left_text(event: Batch) -> str:
    return f"{'about ' if event.is_estimate else ''}{event.remaining_s:.0f} s left"


def note_of(event: Finalising | Finished) -> str:
    if isinstance(event, Finished):
        return "done"
    settled = "no kernel promises more than 1 %: " if event.settled else ""
    after = "interrupted: " if event.interrupted else settled
    if not event.kernels:
        return f"{after}no kernel to compare with its default"
    of = counted(event.kernels, "kernel")
    return f"{after}comparing champions of {of} with the defaults"
