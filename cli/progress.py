"""What takes long while it goes, on stderr: of a tuning run a live table in a terminal, of other
commands one line that is written over; elsewhere a line an event.
"""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hlotune.cli.live_view import View, left_text, note_of
from hlotune.cli.printing import counted, finite, say
from hlotune.measure.machine.other_processes import Others
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
    Progress,
    Started,
)
from hlotune.tuning_logs.keeping import Moved
from hlotune.tuning_logs.render import kernel_time_text, ratio_text, time_text, took_text
from hlotune.tuning_logs.text import escaped
from hlotune.tuning_logs.wrong_defaults import is_wrong, wrong_text


@contextmanager
def watching(*, quiet: bool = False, events: bool = False) -> Iterator[Progress]:
    """What to give to `tune` as `progress`; a quiet one tells only where records have moved to.
    With `events` each event is a line of JSON.
    """
    if events:
        yield tell_json
        return
    if quiet:
        yield lambda event: tell(event) if isinstance(event, Moved) else None
        return
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield tell
        return
    view = View(load=Others().share)
    with Live(view, console=console, refresh_per_second=4, transient=True) as live:

        def show(event: Event) -> None:
            view.update(event)
            if not isinstance(event, KernelStarted | Batch):
                live.console.print(escaped(line(event)), markup=False)

        yield show


def tell(event: Event) -> None:
    say(line(event), file=sys.stderr)


def tell_json(event: Event) -> None:
    """One line: the event's name, and its fields with units in their names."""
    data = {"event": type(event).__name__, **asdict(event)}
    print(json.dumps(finite(data), default=str), file=sys.stderr, flush=True)


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
        case KernelAtLimit():
            return f"{event.label}: stopped: at {event.share:.0%} of its limit"
        case Moved():
            return moved_line(event)
        case Batch():
            return batch_line(event)
        case Finalising():
            return note_of(event)
        case FormTried():
            return f"{', '.join(event.labels)}: {form_text(event)}"
        case Finished():
            whole = f", whole program: {text}" if (text := whole_text(event)) else ""
            won = f"{event.won} of {counted(event.kernels, 'kernel')} won{whole}"
            took = took_text(event.wall_s, event.waited_s, event.away_s)
            over = f"\n{event.overrun}" if event.overrun else ""
            return f"{counted(event.trials, 'trial')} in {took}: {won}{over}"


def form_text(event: FormTried) -> str:
    """What trying kernels in the program showed, and what becomes of them."""
    stay = "they stay" if len(event.labels) > 1 else "it stays"
    match event.without, event.is_faster:
        case True, True:
            return "little faster alone, left out of the program, which is faster so"
        case True, False:
            return f"little faster alone, tried without: the program is not faster, so {stay}"
        case False, True:
            return "not proven faster alone, tried in the program, which is faster so"
        case _:
            return "not proven faster alone, tried in the program, which is not faster so"


def moved_line(event: Moved) -> str:
    merge = shlex.join(["tune", "db", "merge", str(event.kept), "--database", str(event.path)])
    return (
        f"tune: database {event.path} was {event.why} while the run went on; what the run has "
        f"recorded is kept in {event.kept}, and it goes on there; to have it in both: {merge}"
    )


def whole_text(event: Finished) -> str:
    if event.speedup is None or event.speedup_low is None or event.speedup_high is None:
        return event.unproven
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
