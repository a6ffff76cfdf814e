"""Figures of a whole run: speedups, where the time goes, the roofline, the way of the search."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.figures.canvas import (
    DEFAULT,
    INK,
    LIMIT,
    MUTED,
    PAPER,
    ROW_IN,
    TUNED,
    Figure,
    drawing,
    finished,
    plain,
    round_ticks,
    shown,
)
from hlotune.tuning_logs.figures.ways import Way, program_way
from hlotune.tuning_logs.render import time_text
from hlotune.tuning_logs.report import Speedup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 24
"""Kernels of a figure; the table has all of them."""


def program_figures(found: Evidence) -> Iterator[Figure]:
    """The figures for which there are records."""
    for make in (speedups, times, limits, roofline, search):
        figure = make(found)
        if figure is not None:
            yield figure


def speedups(found: Evidence) -> Figure | None:
    """Bars with 95 % intervals: the whole program, then each kernel that was compared."""
    named = names_of(found.kernels)
    compared = [k for k in found.kernels if k.report.champion]
    rows: list[tuple[str, Speedup, bool]] = [
        (named[k.report.key], k.report.champion, k.report.won)
        for k in compared[:MOST_ROWS]
        if k.report.champion
    ]
    whole = found.report.whole
    if whole:
        rows.insert(0, ("whole program", whole, whole.speedup_low > 1))
    if not rows:
        return None
    title = "Speedup over the default, with its 95 % interval"
    with drawing(0.9 + ROW_IN * len(rows)) as (figure, (axes,)):
        for place, (_, speedup, proven) in enumerate(rows):
            bar(axes, place, speedup, TUNED if proven else DEFAULT)
        axes.axvline(1, color=INK, linewidth=1)
        named_rows(axes, [label for label, _, _ in rows])
        axes.set_xlim(0, 1.15 * max(bar_end(speedup) for _, speedup, _ in rows))
        values_named(axes, "times as fast as the default (1 = as fast); grey: the default is kept")
        if whole:
            axes.axhline(0.5, color=MUTED, linewidth=0.7)
        return finished(figure, name="speedups", title=title, alt=_speedups_in_words(rows))


def bar(axes: "Axes", place: float, speedup: Speedup, colour: str, *, height: float = 0.62) -> None:
    """A speedup with its interval and its figure."""
    high = bar_end(speedup)
    axes.barh(place, speedup.speedup, height=height, color=colour)
    below, above = speedup.speedup - speedup.speedup_low, high - speedup.speedup
    around = [[max(0.0, below)], [max(0.0, above)]]
    axes.errorbar(
        speedup.speedup, place, xerr=around, fmt="none", ecolor=INK, capsize=3, elinewidth=1.2
    )
    axes.annotate(
        f"{speedup.speedup:.2f}x", (high, place), xytext=(5, 0),
        textcoords="offset points", va="center", fontsize=9,
    )  # fmt: skip


def bar_end(speedup: Speedup) -> float:
    """Where its interval ends; without an end, where the bar does."""
    high = speedup.speedup_high
    return max(high, speedup.speedup) if isfinite(high) else speedup.speedup


def _speedups_in_words(rows: Sequence[tuple[str, Speedup, bool]]) -> str:
    parts = (
        f"{label} {s.speedup:.2f} times ({s.speedup_low:.2f} to {s.speedup_high:.2f})"
        f"{'' if proven else ', the default is kept'}"
        for label, s, proven in rows
    )
    return f"Bars of speedups over the default: {'; '.join(parts)}."


def times(found: Evidence) -> Figure | None:
    """Where the program's time goes: calls times seconds, before and after."""
    named = names_of(found.kernels)
    rows = [
        (named[k.report.key], k.default_s * k.calls, k.report.used_s * k.calls)
        for k in found.kernels
        if k.default_s and k.report.used_s
    ][:MOST_ROWS]
    if not rows:
        return None
    unit_s, unit = _unit(max(before for _, before, _ in rows))
    title = "Where the program's time goes, before and after"
    with drawing(1.0 + 1.25 * ROW_IN * len(rows)) as (figure, (axes,)):
        places = range(len(rows))
        axes.barh(
            [p - 0.2 for p in places], [b / unit_s for _, b, _ in rows], 0.36,
            color=DEFAULT, label="default",
        )  # fmt: skip
        axes.barh(
            [p + 0.2 for p in places], [a / unit_s for _, _, a in rows], 0.36,
            color=TUNED, label="after tuning",
        )  # fmt: skip
        named_rows(axes, [label for label, _, _ in rows])
        values_named(axes, f"{unit} in one run of the program: time of a call, times calls")
        axes.legend(loc="lower right")
        words = (f"{label} {time_text(b)} before, {time_text(a)} after" for label, b, a in rows)
        alt = f"Pairs of bars of the time that each kernel takes: {'; '.join(words)}."
        return finished(figure, name="times", title=title, alt=alt)


def limits(found: Evidence) -> Figure | None:
    """How far default and tuned are from the least time that the peaks allow."""
    named = names_of(found.kernels)
    rows = [
        (named[k.report.key], k.default_s / k.limit.time_s, k.report.used_s / k.limit.time_s)
        for k in found.kernels
        if k.limit and k.default_s and k.report.used_s
    ][:MOST_ROWS]
    if not rows:
        return None
    title = "How far from the limit: time over the least time that the measured peaks allow"
    with drawing(1.0 + ROW_IN * len(rows)) as (figure, (axes,)):
        for place, (_, before, after) in enumerate(rows):
            axes.plot([before, after], [place, place], color=MUTED, linewidth=1.4, zorder=1)
        axes.scatter(
            [b for _, b, _ in rows], range(len(rows)), s=34, facecolor=PAPER, edgecolor=DEFAULT,
            linewidth=1.6, label="default", zorder=2,
        )  # fmt: skip
        axes.scatter(
            [a for _, _, a in rows], range(len(rows)), s=34, color=TUNED, label="after tuning",
            zorder=3,
        )  # fmt: skip
        axes.axvline(1, color=LIMIT, linewidth=1.6, label="limit")
        axes.set_xscale("log")
        round_ticks(axes, "x", [x for _, b, a in rows for x in (b, a, 1.0)])
        named_rows(axes, [label for label, _, _ in rows])
        values_named(
            axes, "times the limit (logarithmic); left of 1: an algorithm saves arithmetic"
        )
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        words = (f"{label} from {b:.1f} to {a:.1f}" for label, b, a in rows)
        alt = f"Times as multiples of the limit, default and tuned: {'; '.join(words)}."
        return finished(figure, name="limits", title=title, alt=alt)


def roofline(found: Evidence) -> Figure | None:
    """Rates of all kernels before and after, under the roofs of their types and of memory."""
    named = names_of(found.kernels)
    rows = [
        (
            named[k.report.key],
            k.flops / k.moved_bytes,
            k.flops / k.default_s,
            k.flops / k.report.used_s,
        )
        for k in found.kernels
        if k.flops and k.moved_bytes and k.default_s and k.report.used_s
    ]
    kinds = sorted({k.dtype for k in found.kernels if k.dtype})
    if not rows or not found.peaks:
        return None
    peaks = {kind: p for kind in kinds if (p := found.peaks.flops_per_s.get(kind))}
    if not peaks:
        return None
    with drawing(4.3) as (figure, (axes,)):
        rates = [rate / 1e9 for _, _, before, after in rows for rate in (before, after)]
        xs = [x for _, x, _, _ in rows]
        _roofs(axes, xs, rates, peaks, found.peaks.read_bytes_per_s)
        for _, x, before, after in rows:
            axes.plot([x, x], [before / 1e9, after / 1e9], color=MUTED, linewidth=1.2, zorder=2)
        axes.scatter(
            xs, [b / 1e9 for _, _, b, _ in rows], s=34, facecolor=PAPER, edgecolor=DEFAULT,
            linewidth=1.6, zorder=3, label="default",
        )  # fmt: skip
        axes.scatter(
            xs, [a / 1e9 for _, _, _, a in rows], s=34, color=TUNED, zorder=4, label="after tuning"
        )
        axes.set_xlabel("operations a byte of arguments and results")
        axes.set_ylabel("GFLOP/s")
        axes.tick_params(axis="y", labelcolor=MUTED)
        axes.legend(loc="lower right")
        alt = _roofline_in_words(rows, peaks, found.peaks.read_bytes_per_s)
        title = "Roofline of the target, with all kernels before and after"
        return finished(figure, name="roofline", title=title, alt=alt)


def _roofline_in_words(
    rows: Sequence[tuple[str, float, float, float]],
    peaks: Mapping[str, float],
    read_bytes_per_s: float,
) -> str:
    words = (f"{n} {b / 1e9:.0f} to {a / 1e9:.0f} GFLOP/s" for n, _, b, a in rows[:MOST_ROWS])
    roofs = ", ".join(f"{kind} {p / 1e9:.0f} GFLOP/s" for kind, p in peaks.items())
    return (
        f"Roofline of the target, memory {read_bytes_per_s / 1e9:.1f} GB/s, peaks "
        f"{roofs}. Kernels before and after: {'; '.join(words)}."
    )


def _roofs(
    axes: "Axes", intensities: Sequence[float], rates: Sequence[float], peaks: dict[str, float],
    read_bytes_per_s: float,
) -> None:  # fmt: skip
    """`rates` are those in the figure, in GFLOP/s."""
    corners = [peak / read_bytes_per_s for peak in peaks.values()]
    left, right = min(*intensities, *corners) / 3, max(*intensities, *corners) * 3
    for peak_type, peak in peaks.items():
        corner = peak / read_bytes_per_s
        roof = [min(peak, x * read_bytes_per_s) / 1e9 for x in (left, corner, right)]
        axes.plot([left, corner, right], roof, color=LIMIT, linewidth=1.8, zorder=1)
        axes.annotate(
            f"{peak_type}: {peak / 1e9:.0f} GFLOP/s", (right, peak / 1e9), xytext=(-4, 5),
            textcoords="offset points", ha="right", color=LIMIT, fontsize=9,
        )  # fmt: skip
    axes.annotate(
        f"memory: {read_bytes_per_s / 1e9:.1f} GB/s",
        (left, roof[0]),
        xytext=(16, 2),
        textcoords="offset points",
        va="top",
        color=LIMIT,
        fontsize=9,
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    round_ticks(axes, "x", [left, right])
    round_ticks(axes, "y", [*rates, roof[0], *(p / 1e9 for p in peaks.values())])
    plain(axes, grid="both")


def search(found: Evidence, whole: Evidence | None = None) -> Figure | None:
    """The time of all kernels together, by the best that was known, against trials and seconds.

    Args:
        whole: the same run with all its trials, where `found` has the first of them: the axes are
            those of its figure, so that figures of a replay have one scale.
    """
    way = program_way(found.kernels)
    if way is None:
        return None
    scale = program_way(whole.kernels) if whole else None
    unit_s, unit = _unit(way.times_s[0])
    with drawing(3.0, 2, sharey=True) as (figure, (by_trials, by_seconds)):
        _steps(by_trials, way.trials, way, unit_s)
        _steps(by_seconds, way.after_s, way, unit_s)
        by_trials.set_xlabel("trials of candidates")
        by_seconds.set_xlabel("seconds since the run began")
        by_trials.set_ylabel(f"all kernels together, {unit}")
        by_trials.set_ylim(bottom=0)
        if scale:
            by_trials.set_xlim(0, 1.02 * scale.trials[-1])
            by_seconds.set_xlim(0, max(1.02 * scale.after_s[-1], 1e-3))
            by_trials.set_ylim(0, 1.08 * scale.times_s[0] / unit_s)
        alt = (
            f"The estimated time of all kernels in the program falls from "
            f"{time_text(way.times_s[0])} to {time_text(way.times_s[-1])} over "
            f"{way.trials[-1]:.0f} trials and {way.after_s[-1]:.0f} seconds."
        )
        title = "The search: best known time of all kernels together, by its own measurements"
        return finished(figure, name="search", title=title, alt=alt)


def _steps(axes: "Axes", xs: Sequence[float], way: Way, unit_s: float) -> None:
    axes.step(xs, [t / unit_s for t in way.times_s], where="post", color=TUNED, linewidth=1.8)
    if way.limit_s:
        axes.axhline(way.limit_s / unit_s, color=LIMIT, linewidth=1.4)
        axes.annotate(
            "limit", (xs[0], way.limit_s / unit_s), xytext=(0, -3), textcoords="offset points",
            va="top", color=LIMIT, fontsize=9,
        )  # fmt: skip
    axes.axhline(way.times_s[0] / unit_s, color=DEFAULT, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.annotate(
        "default", (xs[-1], way.times_s[0] / unit_s), xytext=(-2, 3), ha="right",
        textcoords="offset points", color=MUTED, fontsize=9,
    )  # fmt: skip
    plain(axes, grid="both")
    axes.tick_params(axis="y", labelcolor=MUTED)


def named_rows(axes: "Axes", names: Sequence[str]) -> None:
    """The first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    plain(axes)


def values_named(axes: "Axes", words: str) -> None:
    """Below the values of named rows: it ends where they end, as it may be wider than they are."""
    axes.set_xlabel(words, loc="right")


def names_of(kernels: Sequence[KernelEvidence]) -> dict[str, str]:
    """By key; where several are shown alike, with the first digits of their keys."""
    names = {k.report.key: name_of(k) for k in kernels}
    counts = Counter(names.values())
    return {key: f"{name} ({key[:4]})" if counts[name] > 1 else name for key, name in names.items()}


def name_of(kernel: KernelEvidence) -> str:
    return shown(kernel.report.label) or kernel.report.key[:8]


def _unit(seconds: float) -> tuple[float, str]:
    for unit_s, unit in ((1.0, "seconds"), (1e-3, "milliseconds"), (1e-6, "microseconds")):
        if seconds >= unit_s:
            return unit_s, unit
    return 1e-9, "nanoseconds"
