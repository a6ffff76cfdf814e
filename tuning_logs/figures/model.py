"""The figure of a cost model: what it predicted against what was measured."""

from collections.abc import Iterable, Sequence

from hlotune.tuning_logs.figures.canvas import (
    LIMIT,
    MUTED,
    TUNED,
    Figure,
    drawing,
    finished,
    plain,
)

MOST_DOTS = 600
Pairs = Sequence[tuple[float, float]]
"""The rank of each trial as predicted and as measured, as shares: 0 is the fastest."""


def ranks(kernels: Iterable[Pairs]) -> Figure:
    """All trials of all kernels; each is ranked among those of its own kernel."""
    pairs = [pair for found in kernels for pair in found]
    every = -(-len(pairs) // MOST_DOTS)
    shown = pairs[::every]
    with drawing(3.4) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=LIMIT, linewidth=1.3)
        axes.plot(
            [a for a, _ in shown], [b for _, b in shown], "o", color=TUNED, markersize=3, alpha=0.6
        )
        axes.set_xlabel("predicted rank among the trials of a kernel: 0 is the fastest")
        axes.set_ylabel("measured rank")
        axes.tick_params(axis="y", labelcolor=MUTED)
        plain(axes, grid="both")
        best = [a for a, b in pairs if b <= 0.1]
        alt = (
            f"Predicted against measured rank of {len(pairs)} trials; on the line, prediction and "
            f"measurement agree. Of the tenth that was fastest, the model put "
            f"{sum(a <= 0.5 for a in best) / max(1, len(best)):.0%} into its better half."
        )
        title = "The model of the run's start: predicted against measured rank of each trial"
        return finished(figure, name="model", title=title, alt=alt)


def rank_correlation(pairs: Pairs) -> float:
    """-1 .. 1; 0 where all are alike."""
    mean_a, mean_b = (sum(x) / len(pairs) for x in zip(*pairs, strict=True))
    together = sum((a - mean_a) * (b - mean_b) for a, b in pairs)
    apart = sum((a - mean_a) ** 2 for a, _ in pairs) * sum((b - mean_b) ** 2 for _, b in pairs)
    return together / apart**0.5 if apart > 0 else 0.0
