"""The figure of a cost model: predicted ranks against measured ones."""

from collections.abc import Iterable, Sequence

from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures.canvas import (
    LIMIT,
    MUTED,
    TUNED,
    Figure,
    drawing,
    finished,
    plain,
)
from hlotune.tuning_logs.predictions import Pairs, batches_of

MOST_DOTS = 600
RECORDED = "What the model said when it chose: predicted against measured rank of each trial"
ASKED_AGAIN = "The model of the run's start: predicted against measured rank of each trial"


def model_figure(found: Evidence, asked_again: Sequence[Pairs]) -> Figure | None:
    """The figure of recorded predictions, or, without any, of those of the model asked again.

    It is None where there are neither.
    """
    recorded = [batch for k in found.kernels for batch in batches_of(k)]
    if recorded:
        return ranks((batch.ranks for batch in recorded), among="a batch", title=RECORDED)
    return ranks(asked_again, among="a kernel", title=ASKED_AGAIN) if asked_again else None


def ranks(groups: Iterable[Pairs], *, among: str, title: str) -> Figure:
    """The figure of all trials, each ranked within its group; `among` says what a group is."""
    pairs = [pair for found in groups for pair in found]
    every = -(-len(pairs) // MOST_DOTS)
    shown = pairs[::every]
    with drawing(3.4) as (figure, (axes,)):
        axes.plot([0, 1], [0, 1], color=LIMIT, linewidth=1.3)
        axes.plot(
            [a for a, _ in shown], [b for _, b in shown], "o", color=TUNED, markersize=3, alpha=0.6
        )
        axes.set_xlabel(f"predicted rank among the trials of {among}: 0 is the fastest")
        axes.set_ylabel("measured rank")
        axes.tick_params(axis="y", labelcolor=MUTED)
        plain(axes, grid="both")
        best = [a for a, b in pairs if b <= 0.1]
        alt = (
            f"Predicted against measured rank of {len(pairs)} trials; on the line, prediction and "
            f"measurement agree. Of the tenth that was fastest, the model put "
            f"{sum(a <= 0.5 for a in best) / max(1, len(best)):.0%} into its better half."
        )
        return finished(figure, name="model", title=title, alt=alt)
