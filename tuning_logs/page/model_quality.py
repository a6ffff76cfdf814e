"""How well the cost model that a run began with ranks the run's trials."""

from collections.abc import Mapping

from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.figures.model import rank_correlation, ranks
from hlotune.tuning_logs.page.markup import Markup, joined, tag
from hlotune.tuning_logs.page.parts import figure, table
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated

ASKED_AGAIN = (
    "Records hold what was measured and not what was predicted. The model that the run began with "
    "was asked again about the newest trials of each kernel; in the run it went on to learn from "
    "them, so that its later predictions were better than these."
)
NOT_HERE = (
    "Records hold what was measured and not what was predicted, and the model that the run began "
    "with cannot be asked again: it is none that comes with this version, or there are too few "
    "trials."
)


def model_quality(found: Evidence, code: Mapping[str, Regenerated | Missing]) -> Markup:
    model = str(found.options.get("model", "not recorded"))
    pairs = {
        k.report.key: made.predicted
        for k in found.kernels
        if isinstance(made := code.get(k.report.key), Regenerated) and made.predicted
    }
    head = tag("h2", "The cost model", id="model")
    named = tag("p", f"Candidates were ranked by the model {model}. ", NOT_HERE)
    if not pairs:
        return joined(head, named)
    rows = [
        (k.report.label or k.report.key[:8], str(len(p)), f"{rank_correlation(p):+.2f}")
        for k in found.kernels
        if (p := pairs.get(k.report.key))
    ]
    columns = ("<kernel", "trials", "rank correlation")
    return joined(
        head,
        tag("p", f"Candidates were ranked by the model {model}. ", ASKED_AGAIN),
        figure(ranks(pairs.values())),
        table("Predicted against measured rank, by kernel: 1 is the same order", columns, rows),
    )
