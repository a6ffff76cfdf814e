"""`tune`: the table of sub-commands, and what becomes of errors.

Modules of commands import only what parses and prints; the rooms that load jax, xgboost or torch
are imported inside the functions, so that `tune --help` answers at once.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ExtensionFileLoader
from threading import Timer, current_thread, main_thread
from types import FrameType
from typing import Any

import typer
from typer.exceptions import TyperException

from hlotune.cli import (
    apply,
    bench,
    carry,
    dashboard,
    db,
    explain,
    export,
    kernels,
    model,
    report,
    resume,
    run,
    show,
    targets,
    xla,
)
from hlotune.cli.loading import begin_loading
from hlotune.cli.printing import say
from hlotune.cli.streams import finish_output, prepare_streams
from hlotune.cli.version import Version
from hlotune.schedules.errors import DatabaseError, HlotuneError, NoRecord, WrongResult

NOTHING_FOUND = 1
MISUSE = 2
INTERRUPTED = 130
AGAIN_S = 0.05

TOLD_ANYWAY = (DatabaseError, NoRecord, WrongResult)
"""Errors that are no consequence of Ctrl-C."""

app = typer.Typer(
    name="tune",
    help="Finds faster schedules for the kernels of a program, and proves it.",
    epilog="Example: tune run examples/mlp.py:model --budget 60s",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help and one-line errors, the same in a terminal and a log
)


@app.callback()
def options(version: Version = False) -> None:
    """Options that come before a command; each prints something and ends."""


SHORT: Mapping[str, str] = {
    "resume": "Goes on with an interrupted run.",
    "xla": "Searches XLA's own options for the whole program.",
    "bench": "Times the tuned program against the default.",
    "apply": "Writes the tuned program to a file, once it is checked.",
    "export": "Writes the program as an ONNX model.",
    "kernels": "Lists the kernels of a program, their work and data.",
    "show": "Shows a recorded kernel: its text, decision and code.",
    "explain": "Says where a tuned kernel is used, and why.",
    "report": "Prints the report of a run, or writes it to a file.",
    "dashboard": "Serves the reports of all runs to a browser.",
    "export-candidates": "Writes what to measure next on another device.",
    "measure": "Builds, verifies and times candidates on this device.",
}
"""What `tune --help` says of commands whose first sentence is longer than its lines."""


def add(name: str, function: Callable[..., Any], example: str) -> None:
    app.command(name, epilog=example, short_help=SHORT.get(name))(function)


add("run", run.run, run.EXAMPLE)
add("resume", resume.resume, resume.EXAMPLE)
add("xla", xla.xla, xla.EXAMPLE)
add("bench", bench.bench, bench.EXAMPLE)
add("apply", apply.apply, apply.EXAMPLE)
add("export", export.export, export.EXAMPLE)
add("kernels", kernels.kernels, kernels.EXAMPLE)
add("show", show.show, show.EXAMPLE)
add("explain", explain.explain, explain.EXAMPLE)
add("report", report.report, report.EXAMPLE)
add("dashboard", dashboard.dashboard, dashboard.EXAMPLE)
add("targets", targets.targets, targets.EXAMPLE)
add("export-candidates", carry.export_candidates, carry.EXPORT_EXAMPLE)
add("measure", carry.measure, carry.MEASURE_EXAMPLE)
app.add_typer(db.app, name="db", epilog=db.EXAMPLE)
app.add_typer(model.app, name="model", epilog=model.EXAMPLE)


def main() -> None:
    prepare_streams()
    interrupts: list[int] = []
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:

        def noted(number: int, frame: FrameType | None) -> None:
            interrupts.append(number)
            if is_loading_an_extension(frame):
                again()
            else:
                signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, noted)
        sys.unraisablehook = told_again(sys.unraisablehook)
    code = run_command(sys.argv[1:], interrupts)
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # answered: a second one changes nothing
    code = finish_output(code)
    leave_what_is_left(code)
    sys.exit(code)


def leave_what_is_left(code: int) -> None:
    """Ends the process at once where XLA is still at what Ctrl-C ended the wait for, whatever the
    command came to.  What knows of that is loaded where there may be any.
    """
    known = sys.modules.get("hlotune.search.finals.interruptible")
    if known is not None and known.is_anything_left():
        sys.stderr.flush()
        os._exit(code)


def again() -> None:
    """Ctrl-C once more, a moment later."""
    Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGINT)).start()


def is_loading_an_extension(frame: FrameType | None) -> bool:
    """Whether a library's machine code is being set up, which ends the process at an exception."""
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), ExtensionFileLoader):
            return True
        frame = frame.f_back
    return False


def told_again(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """Lets no Ctrl-C get lost where Python can raise nothing, as in libraries' collection of
    garbage: it comes again a moment later.  In another thread than the main one it is no Ctrl-C,
    but ends work that was given up (`interruptible.py`).
    """

    def hooked(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            hook(unraisable)
        elif current_thread() is main_thread():
            again()

    return hooked


def run_command(arguments: Sequence[str], interrupts: Sequence[int] = ()) -> int:
    """Runs one command and returns its exit code.

    0 done, 1 nothing found, 2 misuse or failure, 130 interrupted.

    With `HLOTUNE_DEBUG` set, an error of ours shows its traceback as well.

    Args:
        interrupts: gets a number with each Ctrl-C: libraries that are being imported make errors
            of their own of it.
    """
    try:
        begin_loading(arguments)
        code = app(list(arguments), prog_name="tune", standalone_mode=False)
    except TyperException as error:
        say(usage_line(error), file=sys.stderr)
        return MISUSE
    except Exception as error:
        if interrupts and not isinstance(error, TOLD_ANYWAY):
            code = INTERRUPTED
        elif isinstance(error, HlotuneError) and not os.environ.get("HLOTUNE_DEBUG"):
            say(f"tune: {' '.join(str(error).split())}", file=sys.stderr)
            return NOTHING_FOUND if isinstance(error, NoRecord) else MISUSE
        else:
            raise
    if code == INTERRUPTED:
        print(f"tune: interrupted; {what_stays(arguments)}", file=sys.stderr)
    return code if isinstance(code, int) else 0


def what_stays(arguments: Sequence[str]) -> str:
    """What an interrupted command leaves behind, in words."""
    if arguments[:1] == ["model"]:
        return "nothing was written"
    return "what was recorded until then stays"


def usage_line(error: Any) -> str:
    """What is wrong with a command line, and where its help is; help itself where nothing was asked
    for.
    """
    said = str(error.format_message()).strip().replace(": Value error, ", ": ")
    if "\n" in said or error.ctx is None:
        return said
    return f"tune: {said[0].lower()}{said[1:].rstrip('.')}; see `{error.ctx.command_path} --help`"
