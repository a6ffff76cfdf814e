"""The pages of the dashboard, put together of the parts of a report."""

from collections.abc import Sequence

from hlotune.schedules.errors import NoRecord
from hlotune.tuning_logs.dashboard import lists
from hlotune.tuning_logs.dashboard import replay as replays
from hlotune.tuning_logs.dashboard.codes import Codes
from hlotune.tuning_logs.dashboard.shell import places, replay_address, run_address, shell
from hlotune.tuning_logs.dashboard.sources import RunRow, Sources
from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.program import program_figures
from hlotune.tuning_logs.page.kernel_page import kernel_page
from hlotune.tuning_logs.page.markup import tag
from hlotune.tuning_logs.page.overview import overview
from hlotune.tuning_logs.page.page import LINES, with_limits
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated
from hlotune.tuning_logs.page.two_runs import two_runs_section


def runs(sources: Sources) -> str:
    found, _, problems = sources.read()
    return shell(
        title="Runs",
        about=_counted(len(found), "run", sources),
        controls=lists.controls(sources, states=True),
        live=lists.runs_page(sources, found, problems),
    )


def kernels(sources: Sources) -> str:
    _, found, problems = sources.read()
    return shell(
        title="Kernels",
        about=_counted(len(found), "kernel", sources),
        controls=lists.controls(sources, states=False),
        live=lists.kernels_page(sources, found, problems),
    )


def run(source: int, found: Evidence, runs: Sequence[RunRow], version: str) -> str:
    """The overview of a report, without what needs code to be made again.

    Args:
        runs: all that it can be compared with.
    """
    report = found.report
    replay = tag("a", "Replay", href=replay_address(source, report.run))
    return shell(
        title=f"Tuning run of {_name(found)}",
        about=_about(found),
        ways=(replay,),
        controls=lists.comparing(source, report.run, runs),
        live=overview(
            found, tuple(program_figures(found)), {}, version, places(source, report.run)
        ),
        is_live=report.finished is None,
    )


def kernel(source: int, found: Evidence, key: str, codes: Codes) -> str:
    """Raises NoRecord where the run has no such kernel."""
    keys = [k.report.key for k in found.kernels]
    if key not in keys:
        raise NoRecord(
            f"expected a kernel of run {found.report.run[:12]}, got {key[:12]!r}; begin at its page"
        )
    place = keys.index(key)
    made = codes.of(found, found.kernels[place])
    code: dict[str, Regenerated | Missing] = {} if made is None else {key: made}
    limited = with_limits(found, code).kernels
    count = len(limited)
    around = (limited[place - 1], limited[(place + 1) % count]) if count > 1 else ()
    section = kernel_page(
        limited[place], made, trials(limited[place]), found.peaks, LINES[0], around,
        places(source, found.report.run),
    )  # fmt: skip
    return shell(
        title=f"A kernel of {_name(found)}",
        about=_about(found),
        ways=(
            tag("a", "Run", href=run_address(source, found.report.run)),
            tag("a", "Replay", href=replay_address(source, found.report.run, key)),
        ),
        live=section,
    )


def compare(first: Evidence, second: Evidence, version: str) -> str:
    return shell(
        title="Two runs",
        about=f"A: {_about(first)}. B: {_about(second)}",
        live=two_runs_section(first, second, version),
        is_live=first.report.finished is None or second.report.finished is None,
    )


def replay(source: int, found: Evidence, key: str, trial: int | None) -> str:
    """As it was after a trial; where none is named, after the last."""
    last = replays.last_trial(found)
    number = last if trial is None else min(max(trial, 0), last)
    kernel = replays.chosen(found, key)
    chosen = kernel.report.key if kernel else ""
    address = replay_address(source, found.report.run)
    return shell(
        title=f"Replay of {_name(found)}",
        about=_about(found),
        ways=(tag("a", "Run", href=run_address(source, found.report.run)),),
        controls=replays.controls(found, number, chosen, address),
        live=replays.frame(found, number, chosen),
        is_live=False,
    )


def problem(words: str) -> str:
    return shell(title="No page", about="", live=tag("p", words, class_="note"), is_live=False)


def _counted(count: int, noun: str, sources: Sources) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'} in {', '.join(sources.names)}"


def _name(found: Evidence) -> str:
    return found.report.program or "kernels alone"


def _about(found: Evidence) -> str:
    report = found.report
    return (
        f"{report.target}, {report.threads} threads, {report.started[:16].replace('T', ' ')} UTC, "
        f"run {report.run[:12]}"
    )
