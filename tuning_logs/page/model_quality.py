"""How well the cost model of a run ranks the run's trials."""

from collections.abc import Iterator, Mapping

from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures.model import model_figure
from hlotune.tuning_logs.page.markup import Child, Markup, joined, tag
from hlotune.tuning_logs.page.parts import figure, table
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated
from hlotune.tuning_logs.predictions import Pairs, Quality, quality, rank_correlation

RECORDED = (
    "Each prediction is what the model said when the candidate was chosen, recorded with its "
    "trial. It is held against the measured times of its own batch, since the model learns between "
    "two batches. The regret says how much slower the candidate that the model took for the "
    "fastest of a batch was than the one that was the fastest; candidates that failed are left out."
)
ASKED_AGAIN = (
    "This run recorded no predictions. The model that it began with was asked again about the "
    "newest trials of each kernel; in the run it went on to learn from them, so that its later "
    "predictions were better than these."
)
NOT_HERE = (
    "This run recorded no predictions of enough trials, and the model that it began with cannot be "
    "asked again: it is none that comes with this version, or there are too few trials."
)


def model_quality(found: Evidence, code: Mapping[str, Regenerated | Missing]) -> Markup:
    recorded = [(_name(found, n), q) for n, k in enumerate(found.kernels) if (q := quality(k))]
    asked = list(_asked_again(found, code))
    words = RECORDED if recorded else ASKED_AGAIN if asked else NOT_HERE
    drawn = model_figure(found, [pairs for _, pairs in asked])
    model = str(found.options.get("model", "not recorded"))
    return joined(
        tag("h2", "The cost model", id="model"),
        tag("p", f"Candidates were ranked by the model {model}. ", words),
        figure(drawn) if drawn else None,
        _recorded_table(recorded) if recorded else _asked_table(asked) if asked else None,
    )


def _asked_again(
    found: Evidence, code: Mapping[str, Regenerated | Missing]
) -> Iterator[tuple[str, Pairs]]:
    for n, kernel in enumerate(found.kernels):
        made = code.get(kernel.report.key)
        if isinstance(made, Regenerated) and made.predicted:
            yield _name(found, n), made.predicted


def _name(found: Evidence, place: int) -> str:
    report = found.kernels[place].report
    return report.label or report.key[:8]


def _recorded_table(found: list[tuple[str, Quality]]) -> Markup:
    columns = ("<kernel", "trials", "batches", "first batch", "all batches", "regret")
    rows: list[tuple[Child, ...]] = [
        (name, str(q.trials), str(q.batches), f"{q.first:+.2f}", f"{q.rank_correlation:+.2f}",
         f"{q.regret:.0%}")
        for name, q in found
    ]  # fmt: skip
    caption = "Rank correlation of predicted and measured speed (1 is the same order), and regret"
    return table(caption, columns, rows)


def _asked_table(found: list[tuple[str, Pairs]]) -> Markup:
    rows = [(name, str(len(pairs)), f"{rank_correlation(pairs):+.2f}") for name, pairs in found]
    columns = ("<kernel", "trials", "rank correlation")
    return table("Predicted against measured rank, by kernel: 1 is the same order", columns, rows)
