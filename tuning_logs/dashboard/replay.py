"""The replay of a run: its figures, its best times and schedules as they were after each trial."""

from collections.abc import Iterator
from dataclasses import replace

from hlotune.tuning_logs.evidence import Evidence, KernelEvidence, Point
from hlotune.tuning_logs.figures.kernel import trials
from hlotune.tuning_logs.figures.program import search
from hlotune.tuning_logs.page.kernel_page import schedule_steps
from hlotune.tuning_logs.page.markup import Child, Markup, joined, tag
from hlotune.tuning_logs.page.parts import figure, table
from hlotune.tuning_logs.render import kernel_time_text


def last_trial(found: Evidence) -> int:
    """The number of a run's last trial; 0 where it has none."""
    return max((p.number for k in found.kernels for p in k.points), default=0)


def until(found: Evidence, trial: int) -> Evidence:
    """What was known once the trial of this number was recorded."""
    return replace(found, kernels=tuple(_until(k, trial) for k in found.kernels))


def _until(kernel: KernelEvidence, trial: int) -> KernelEvidence:
    points = tuple(p for p in kernel.points if p.number <= trial)
    best = best_of(points)
    return replace(kernel, points=points, schedule=best.schedule if best else None)


def best_of(points: tuple[Point, ...]) -> Point | None:
    """The fastest candidate of ours."""
    ours = [p for p in points if p.time_s and not p.is_default]
    return min(ours, key=lambda p: p.time_s or 0.0, default=None)


def chosen(found: Evidence, key: str) -> KernelEvidence | None:
    """The kernel of this key, else the first of those that were tried; None where none was."""
    tried = [k for k in found.kernels if k.points]
    named = [k for k in tried if k.report.key == key]
    return next(iter([*named, *tried]), None)


def frame(whole: Evidence, trial: int, key: str) -> Markup:
    """Everything that changes from one trial to the next."""
    now = until(whole, trial)
    kernel = chosen(whole, key)
    current = next((k for k in now.kernels if kernel and k.report.key == kernel.report.key), None)
    way = search(now, whole)
    return joined(
        tag("p", f"After trial {trial} of {last_trial(whole)}: {_latest(whole, trial)}",
            class_="replayed"),
        *(_kernel(current, kernel) if kernel and current else ()),
        tag("h2", "All kernels", id="all"),
        figure(way) if way else tag("p", "No candidate was measured yet."),
        table("The best known of each kernel by now, by the search's own times",
              ("<kernel", "trials", "default", "best so far", "speedup so far"),
              [_row(k) for k in now.kernels]),
    )  # fmt: skip


def _latest(whole: Evidence, trial: int) -> str:
    found = [(p, k) for k in whole.kernels for p in k.points if p.number == trial]
    if not found:
        return "nothing was recorded under this number."
    point, kernel = found[0]
    name = kernel.report.label or kernel.report.key[:8]
    what = "the default" if point.is_default else "a candidate"
    came = kernel_time_text(point.time_s) if point.time_s else f"failed ({point.failure})"
    return f"{what} of {name}, {came}, {point.after_s:.0f} s after the start."


def _kernel(current: KernelEvidence, whole: KernelEvidence) -> Iterator[Markup]:
    name = whole.report.label or whole.report.key[:8]
    drawn = trials(current, whole)
    best = best_of(current.points)
    yield tag("h2", name, id="kernel")
    yield figure(drawn) if drawn else tag("p", "No candidate of this kernel was measured yet.")
    yield tag("h3", "The best schedule by now")
    if best is None:
        yield tag("p", "None of ours was measured yet.")
        return
    yield tag("p", f"It took {kernel_time_text(best.time_s)} and is trial {best.number}.")
    yield from schedule_steps(best.schedule)


def _row(kernel: KernelEvidence) -> tuple[Child, ...]:
    ours = [p for p in kernel.points if not p.is_default]
    defaults = [p.time_s for p in kernel.points if p.is_default and p.time_s]
    default_s, best = min(defaults, default=None), best_of(kernel.points)
    ratio = default_s / best.time_s if default_s and best and best.time_s else None
    return (
        kernel.report.label or kernel.report.key[:8],
        str(len(ours)),
        kernel_time_text(default_s),
        kernel_time_text(best.time_s if best else None),
        "-" if ratio is None else f"{ratio:.2f}",
    )


def controls(found: Evidence, trial: int, key: str, address: str) -> Markup:
    """A form that works without the script, too."""
    last = last_trial(found)
    options = (
        tag("option", k.report.label or k.report.key[:8], value=k.report.key,
            selected=k.report.key == key)
        for k in found.kernels
        if k.points
    )  # fmt: skip
    slider = tag("input", type="range", name_="trial", id="trial", min=0, max=last, value=trial)
    return tag(
        "form",
        tag("label", "Kernel ", tag("select", *options, name_="kernel", id="kernel-choice")),
        tag("label", "Trial ", slider, class_="slider"),
        tag("output", f"{trial} of {last}", for_="trial", id="trial-number"),
        tag("button", "Play", type="button", id="play", hidden=True),
        tag("button", "Show", id="show"),
        method="get", action=address, class_="controls", id="replay",
    )  # fmt: skip
