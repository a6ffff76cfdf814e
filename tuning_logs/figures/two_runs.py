"""Figures of two runs: speedups of the kernels that both compared, and both searches."""

from collections.abc import Sequence

from hlotune.tuning_logs.comparison import Comparison
from hlotune.tuning_logs.evidence import Evidence, KernelEvidence
from hlotune.tuning_logs.figures.canvas import (
    DEFAULT,
    INK,
    MUTED,
    ROW_IN,
    TUNED,
    Figure,
    drawing,
    finished,
    plain,
)
from hlotune.tuning_logs.figures.program import (
    MOST_ROWS,
    bar,
    bar_end,
    named_rows,
    names_of,
    values_named,
)
from hlotune.tuning_logs.figures.ways import Way, program_way
from hlotune.tuning_logs.report import Report, Speedup

Row = tuple[str, Speedup, Speedup]


def speedups(found: Comparison, kernels: Sequence[KernelEvidence]) -> Figure | None:
    """Two bars for each kernel that both runs compared, the whole program first.

    Args:
        kernels: of both runs, for their names.
    """
    rows = _rows(found, names_of(kernels))[:MOST_ROWS]
    if not rows:
        return None
    title = "Speedup over the default of its own run, with its 95 % interval"
    with drawing(1.0 + 1.6 * ROW_IN * len(rows)) as (figure, (axes,)):
        for place, (_, first, second) in enumerate(rows):
            bar(axes, place - 0.2, first, DEFAULT, height=0.36)
            bar(axes, place + 0.2, second, TUNED, height=0.36)
        axes.barh([0], [0], color=DEFAULT, label="A")
        axes.barh([0], [0], color=TUNED, label="B")
        axes.axvline(1, color=INK, linewidth=1)
        named_rows(axes, [label for label, _, _ in rows])
        axes.set_xlim(0, 1.15 * max(bar_end(s) for _, *both in rows for s in both))
        values_named(axes, "times as fast as the default (1 = as fast)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        words = (f"{label} {a.speedup:.2f} in A and {b.speedup:.2f} in B" for label, a, b in rows)
        alt = f"Pairs of bars of speedups: {'; '.join(words)}."
        return finished(figure, name="two-speedups", title=title, alt=alt)


def _rows(found: Comparison, names: dict[str, str]) -> list[Row]:
    second = _champions(found.second)
    both = [
        (names[key], first, second[key])
        for key, first in _champions(found.first).items()
        if key in second
    ]
    if found.first.whole and found.second.whole:
        both.insert(0, ("whole program", found.first.whole, found.second.whole))
    return both


def _champions(report: Report) -> dict[str, Speedup]:
    return {k.key: k.champion for k in report.kernels if k.champion}


def searches(first: Evidence, second: Evidence) -> Figure | None:
    """How the best known time fell in both, as a share of the default of each run."""
    ways = [program_way(found.kernels) for found in (first, second)]
    shown = [
        (name, way, colour)
        for name, way, colour in zip("AB", ways, (DEFAULT, TUNED), strict=True)
        if way is not None and way.times_s[0] > 0
    ]
    if not shown:
        return None
    title = "Both searches: best known time of all kernels together, over the default's"
    with drawing(3.0, 2, sharey=True) as (figure, (by_trials, by_seconds)):
        for name, way, colour in shown:
            shares = [t / way.times_s[0] for t in way.times_s]
            for axes, xs in ((by_trials, way.trials), (by_seconds, way.after_s)):
                axes.step(xs, shares, where="post", color=colour, linewidth=1.8, label=name)
        for axes, label in ((by_trials, "trials of candidates"),
                            (by_seconds, "seconds since the run began")):  # fmt: skip
            axes.set_xlabel(label)
            axes.set_ylim(0, 1.05)
            plain(axes, grid="both")
            axes.tick_params(axis="y", labelcolor=MUTED)
        by_trials.set_ylabel("share of the default's time")
        by_trials.legend(loc="lower left")
        alt = " ".join(_fall(name, way) for name, way, _ in shown)
        return finished(figure, name="two-searches", title=title, alt=alt)


def _fall(name: str, way: Way) -> str:
    return (
        f"In {name} the time of all kernels falls to {way.times_s[-1] / way.times_s[0]:.0%} of the "
        f"default's over {way.trials[-1]} trials and {way.after_s[-1]:.0f} seconds."
    )
