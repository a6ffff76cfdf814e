"""The figure of one kernel: every trial, the best so far, and how the times are distributed."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlotune.tuning_logs.evidence import KernelEvidence, Point
from hlotune.tuning_logs.figures.canvas import (
    DEFAULT,
    LIMIT,
    LOST,
    MUTED,
    TUNED,
    Figure,
    drawing,
    finished,
    plain,
    round_ticks,
)
from hlotune.tuning_logs.figures.program import name_of
from hlotune.tuning_logs.figures.ways import kernel_way
from hlotune.tuning_logs.render import time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_DOTS = 300
"""Trials that are drawn; of more, every so many-th.  The distribution counts all."""
BINS = 24


def trials(kernel: KernelEvidence, whole: KernelEvidence | None = None) -> Figure | None:
    """None where nothing of ours was measured.

    Args:
        whole: the same kernel with all its trials, where `kernel` has the first of them: the axes
            are those of its figure, so that figures of a replay have one scale.
    """
    ours = [p for p in kernel.points if not p.is_default]
    measured = _measured(kernel)
    if not measured:
        return None
    everything = _measured(whole or kernel)
    unit_s, unit = _unit(min(everything))
    with drawing(2.9, 2, sharey=True, width_ratios=(3, 1)) as (figure, (left, right)):
        _dots(left, ours, unit_s)
        _best(left, kernel, unit_s)
        bins = _bins([t / unit_s for t in everything])
        right.hist(
            [t / unit_s for t in measured], bins=bins, orientation="horizontal", color=TUNED,
        )  # fmt: skip
        for axes in (left, right):
            _lines(axes, kernel, unit_s, named=axes is left)
            plain(axes, grid="both")
        left.set_yscale("log")
        marks = [kernel.default_s, kernel.limit.time_s if kernel.limit else None]
        round_ticks(left, "y", [t / unit_s for t in (*everything, *marks) if t])
        if whole:
            _scale(left, right, whole, [t / unit_s for t in everything], bins)
        left.set_ylabel(f"{unit} a call")
        left.set_xlabel("trials of this kernel in their order; line: best so far")
        right.set_xlabel("how many")
        for axes in (left, right):
            axes.xaxis.get_major_locator().set_params(integer=True)
        left.tick_params(axis="y", labelcolor=MUTED)
        name = f"trials-{file_name(kernel.report.key)}"
        title = f"All trials of {name_of(kernel)}"
        return finished(figure, name=name, title=title, alt=_in_words(kernel, measured, ours))


def _measured(kernel: KernelEvidence) -> list[float]:
    return [p.time_s for p in kernel.points if p.time_s and not p.is_default]


def _scale(
    left: "Axes", right: "Axes", whole: KernelEvidence, values: Sequence[float],
    bins: Sequence[float],
) -> None:  # fmt: skip
    """The limits across of the figure of all trials."""
    left.set_xlim(0, 1.02 * sum(not p.is_default for p in whole.points))
    places = (max(1, bisect_right(bins, value)) for value in values)
    counts = Counter(min(place, len(bins) - 1) for place in places)
    right.set_xlim(0, 1.05 * max(counts.values()))


def file_name(key: str) -> str:
    """The first digits of a key, which in a made-up file may be anything."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in key[:12])


def _dots(axes: "Axes", ours: Sequence[Point], unit_s: float) -> None:
    every = -(-len(ours) // MOST_DOTS)
    numbered = [x for x in enumerate(ours, 1) if x[0] % every == 0]
    good = [(n, p.time_s / unit_s) for n, p in numbered if p.time_s]
    axes.plot(
        [n for n, _ in good], [t for _, t in good], "o", color=DEFAULT, markersize=3, alpha=0.75
    )
    for n, _ in (x for x in numbered if x[1].failure):
        axes.axvline(n, ymax=0.04, color=LOST, linewidth=1)


def _best(axes: "Axes", kernel: KernelEvidence, unit_s: float) -> None:
    way = kernel_way(kernel)
    if way is None:
        return
    best, xs, ys = float("inf"), [], []
    ours = [p for p in kernel.points if not p.is_default]
    for n, point in enumerate(ours, 1):
        if point.time_s and point.time_s < best:
            best = point.time_s
            xs.append(n)
            ys.append(best / unit_s)
    axes.step([*xs, len(ours)], [*ys, best / unit_s], where="post", color=TUNED, linewidth=1.8)


def _lines(axes: "Axes", kernel: KernelEvidence, unit_s: float, *, named: bool) -> None:
    default_s, limit = kernel.default_s, kernel.limit
    marks = [("default", default_s, MUTED)] if default_s else []
    if limit:
        marks.append(("limit", limit.time_s, LIMIT))
    for name, time_s, colour in marks:
        axes.axhline(time_s / unit_s, color=colour, linewidth=1.3, linestyle=(0, (4, 3)))
        if named:
            axes.annotate(
                name, (0.0, time_s / unit_s), xycoords=("axes fraction", "data"), xytext=(3, 3),
                textcoords="offset points", color=colour, fontsize=9,
            )  # fmt: skip


def _bins(values: Sequence[float]) -> list[float]:
    """Edges at equal ratios."""
    low = min(values)
    ratio = max(max(values) / low, 1.3)
    return [low * ratio ** (k / BINS) for k in range(BINS + 1)]


def _in_words(kernel: KernelEvidence, measured: Sequence[float], ours: Sequence[Point]) -> str:
    middle = sorted(measured)[len(measured) // 2]
    failed = sum(p.failure is not None for p in ours)
    default = f", the default took {time_text(kernel.default_s)}" if kernel.default_s else ""
    limit = f", the limit is {time_text(kernel.limit.time_s)}" if kernel.limit else ""
    return (
        f"{len(measured)} measured trials of {name_of(kernel)}, from {time_text(min(measured))} to "
        f"{time_text(max(measured))} with the median {time_text(middle)}; {failed} failed{default}"
        f"{limit}."
    )


def _unit(seconds: float) -> tuple[float, str]:
    return (1e-3, "milliseconds") if seconds >= 1e-3 else (1e-6, "microseconds")
