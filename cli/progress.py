"""What takes long while it goes, on stderr: of a tuning run a live table in a terminal, of other
commands one line that is written over; elsewhere a line an event.
"""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hlotune.cli.printing import counted, say
from hlotune.search.progress import (
    Batch,
    Event,
    Finalising,
    Finished,
    KernelSkipped,
    KernelStarted,
    KernelStopped,
    Progress,
    Started,
)
from hlotune.tuning_logs.keeping import Moved
from hlotune.tuning_logs.render import kernel_time_text, ratio_text, time_text, took_text
from hlotune.tuning_logs.text import escaped
from hlotune.tuning_logs.wrong_defaults import is_wrong, wrong_text

VISIBLE_KERNELS = 20
"""Rows of the live table: those tuned last, so that it fits a screen."""


@contextmanager
def watching(*, quiet: bool = False) -> Iterator[Progress]:
    """What to give to `tune` as `progress`; a quiet one tells only where records have moved to."""
    if quiet:
        yield lambda event: tell(event) if isinstance(event, Moved) else None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield tell
        return
    view = View()
    with Live(view, console=console, refresh_per_second=4, transient=True) as live:

        def show(event: Event) -> None:
            view.update(event)
            if not isinstance(event, KernelStarted | Batch):
                live.console.print(escaped(line(event)), markup=False)

        yield show


def tell(event: Event) -> None:
    say(line(event), file=sys.stderr)


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """What to tell what is done next, in words."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda words: say(words, file=sys.stderr)
        return
    with console.status("") as status:
        yield lambda words: status.update(Text(escaped(words)))


def line(event: Event) -> str:
    """An event in words."""
    match event:
        case Started():
            model = f"; model: {event.model}" if event.model else ""
            own = f"{counted(event.own_trials, 'trial')} done, " if event.own_trials else ""
            known = counted(event.known_trials, "trial")
            return f"{counted(event.kernels, 'kernel')}, {own}{known} known{model}"
        case KernelStarted():
            default, slow = time_text(event.default_s), ""
            if event.default_slow_s is not None:
                slow = f", in its slow mode {time_text(event.default_slow_s)}"
            wrong = f"; {wrong_text(event.default_error)}" if is_wrong(event.default_error) else ""
            return f"[{event.index}/{event.count}] {event.label}: default {default}{slow}{wrong}"
        case KernelSkipped():
            return f"{event.label}: left to XLA, {event.reason}"
        case KernelStopped():
            return f"{event.label}: search ended early, {event.reason}"
        case Moved():
            return moved_line(event)
        case Batch():
            return batch_line(event)
        case Finalising():
            settled = "no kernel promises more than 1 %: " if event.settled else ""
            after = "interrupted: " if event.interrupted else settled
            of = counted(event.kernels, "kernel")
            return f"{after}comparing champions of {of} with the defaults"
        case Finished():
            whole = f", whole program: {text}" if (text := whole_text(event)) else ""
            won = f"{event.won} of {counted(event.kernels, 'kernel')} won{whole}"
            took = took_text(event.wall_s, event.waited_s, event.away_s)
            over = f"\n{event.overrun}" if event.overrun else ""
            return f"{counted(event.trials, 'trial')} in {took}: {won}{over}"


def moved_line(event: Moved) -> str:
    merge = shlex.join(["tune", "db", "merge", str(event.kept), "--database", str(event.path)])
    return (
        f"tune: database {event.path} was {event.why} while the run went on; what the run has "
        f"recorded is kept in {event.kept}, and it goes on there; to have it in both: {merge}"
    )


def whole_text(event: Finished) -> str:
    if event.speedup is None or event.speedup_low is None or event.speedup_high is None:
        return ""
    return ratio_text(event.speedup, event.speedup_low, event.speedup_high)


def batch_line(event: Batch) -> str:
    parts = [
        counted(event.trials, "trial"),
        f"{event.label}: best {kernel_time_text(event.best_s)} of {time_text(event.default_s)}",
        *([] if event.gflops is None else [f"{event.gflops:.1f} GFLOP/s"]),
        *([] if event.peak_share is None else [f"{event.peak_share:.0%} of peak"]),
        left_text(event),
    ]
    return ", ".join(parts)


def left_text(event: Batch) -> str:
    return f"{'about ' if event.is_estimate else ''}{event.remaining_s:.0f} s left"


@dataclass
class View:
    """The state of the live table, a renderable of rich: what the latest events said."""

    kernels: dict[str, KernelStarted | Batch] = field(default_factory=dict)
    """The latest event of each kernel by key, the one tuned last at the end."""
    latest: Batch | None = None
    note: str = "finding kernels"

    def update(self, event: Event) -> None:
        match event:
            case Started():
                self.note = f"timing the defaults of {counted(event.kernels, 'kernel')}"
            case KernelStarted():
                self.kernels[event.key] = event
            case Batch():
                self.kernels.pop(event.key, None)
                self.kernels[event.key] = self.latest = event
                self.note = ""
            case Finalising() | Finished():
                self.note = line(event)
            case KernelSkipped() | Moved():
                pass

    def __rich__(self) -> Group:
        return Group(self.table(), Text(escaped(self.status())))

    def status(self) -> str:
        if self.note or self.latest is None:
            return self.note
        latest = self.latest
        return (
            f"{latest.kernels_begun} of {latest.kernels} kernels begun, {latest.trials} trials, "
            f"{latest.failures} failed, {latest.elapsed_s:.0f} s, {left_text(latest)}"
        )

    def table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("kernel", max_width=40, no_wrap=True)
        for name in ("default", "best", "speedup", "GFLOP/s", "of peak"):
            table.add_column(name, justify="right", no_wrap=True)
        for event in list(self.kernels.values())[-VISIBLE_KERNELS:]:
            table.add_row(*(Text(escaped(cell)) for cell in cells(event)))
        return table


def cells(event: KernelStarted | Batch) -> tuple[str, ...]:
    """A row of the live table.  The speedup is that of the search's own times: not proved yet."""
    default = time_text(event.default_s)
    if isinstance(event, KernelStarted) or event.best_s is None:
        return event.label, default, "-", "-", "-", "-"
    return (
        event.label,
        default,
        kernel_time_text(event.best_s),
        f"{event.default_s / event.best_s:.2f}x",
        "-" if event.gflops is None else f"{event.gflops:.1f}",
        "-" if event.peak_share is None else f"{event.peak_share:.0%}",
    )
