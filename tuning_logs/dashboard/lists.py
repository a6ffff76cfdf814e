"""The lists of runs and of kernels, with what filters, sorts and searches them."""

from collections.abc import Iterable, Sequence

from hlotune.tuning_logs.dashboard.shell import COMPARE, kernel_address, run_address
from hlotune.tuning_logs.dashboard.sources import KernelRow, RunRow, Sources
from hlotune.tuning_logs.page.markup import Child, Markup, joined, tag
from hlotune.tuning_logs.page.parts import table
from hlotune.tuning_logs.render import time_text

FINISHED, OPEN = "finished", "not finished"


def runs_page(sources: Sources, runs: Sequence[RunRow], problems: Sequence[str]) -> Markup:
    columns = (
        "<program", "<started (UTC)", "<state", "speedup", "<interval", "default", "tuned",
        "kernels faster", "trials", "<target", "<database",
    )  # fmt: skip
    found = [_run_cells(sources, run) for run in runs]
    if not found and not problems:
        return tag("p", "There is no run yet; `tune run` records one.")
    return joined(*_problems(problems), table("All runs, the newest first", columns, found))


def _run_cells(sources: Sources, run: RunRow) -> tuple[Child, ...]:
    whole = run.whole
    return (
        tag("a", run.program or "kernels alone", href=run_address(run.source, run.id)),
        run.started[:16].replace("T", " "),
        FINISHED if run.finished else OPEN,
        _value(whole.speedup if whole else None, f"{whole.speedup:.2f}" if whole else "-"),
        f"{whole.low:.2f} to {whole.high:.2f}" if whole else "-",
        _time(whole.default_time_s if whole else None),
        _time(whole.tuned_time_s if whole else None),
        _value(run.won, f"{run.won} of {run.compared}"),
        _value(run.trials, str(run.trials)),
        run.target,
        sources.names[run.source],
    )


def kernels_page(sources: Sources, kernels: Sequence[KernelRow], problems: Sequence[str]) -> Markup:
    columns = (
        "<kernel", "<key", "trials", "failed", "runs", "best proved speedup", "<database",
    )  # fmt: skip
    found = [_kernel_cells(sources, kernel) for kernel in kernels]
    if not found and not problems:
        return tag("p", "No kernel was tried yet; `tune run` does so.")
    return joined(*_problems(problems), table("All kernels, most tried first", columns, found))


def _kernel_cells(sources: Sources, kernel: KernelRow) -> tuple[Child, ...]:
    address = kernel_address(kernel.source, kernel.newest_run, kernel.key)
    return (
        tag("a", kernel.label or kernel.key[:8], href=address),
        kernel.key[:8],
        _value(kernel.trials, str(kernel.trials)),
        _value(kernel.failures, str(kernel.failures)),
        _value(kernel.runs, str(kernel.runs)),
        _value(kernel.speedup, "-" if kernel.speedup is None else f"{kernel.speedup:.2f}"),
        sources.names[kernel.source],
    )


def _value(number: float | None, text: str) -> Markup:
    """A cell that is sorted by its number; one without a number goes last."""
    return tag("data", text, value="" if number is None else f"{number!r}")


def _time(seconds: float | None) -> Markup:
    return _value(seconds, time_text(seconds))


def _problems(problems: Iterable[str]) -> Iterable[Markup]:
    return (tag("p", words, class_="note") for words in problems)


def controls(sources: Sources, *, states: bool) -> Markup:
    """What the script of the page filters by: a search, the state of a run, a database."""
    search = tag(
        "label",
        "Search ",
        tag("input", type="search", id="list-search", autocomplete="off", spellcheck="false"),
    )
    state = _choice("state", "State", (FINISHED, OPEN)) if states else None
    database = _choice("database", "Database", sources.names) if len(sources.paths) > 1 else None
    return tag("search", search, state, database, class_="controls", data_needs_script="yes")


def comparing(source: int, run: str, runs: Sequence[RunRow]) -> Markup | None:
    """What leads to the page of this run and another; None where there is no other."""
    others = [
        tag("option", f"{r.program or 'kernels alone'}, {r.started[:16].replace('T', ' ')}, "
            f"run {r.id[:6]}", value=f"{r.source}/{r.id}")
        for r in runs
        if (r.source, r.id) != (source, run)
    ]  # fmt: skip
    if not others:
        return None
    return tag(
        "form",
        tag("input", type="hidden", name_="a", value=f"{source}/{run}"),
        tag("label", "Compare with ", tag("select", *others, name_="b")),
        tag("button", "Compare"),
        method="get", action=COMPARE, class_="controls",
    )  # fmt: skip


def _choice(name: str, title: str, values: Sequence[str]) -> Markup:
    options = (tag("option", value, value=value) for value in values)
    select = tag("select", tag("option", "all", value=""), *options, id=name, data_filter=name)
    return tag("label", f"{title} ", select)
