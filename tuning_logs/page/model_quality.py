"""How well a cost model ranked the trials of a run, as far as records say it."""

from collections.abc import Mapping

from hlotune.tuning_logs.evidence import Evidence
from hlotune.tuning_logs.page.markup import Markup, joined, tag
from hlotune.tuning_logs.page.regenerated import Missing, Regenerated


def model_quality(found: Evidence, code: Mapping[str, Regenerated | Missing]) -> Markup:
    model = str(found.options.get("model", "not recorded"))
    return joined(
        tag("h2", "The cost model", id="model"),
        tag("p", f"Candidates were ranked by the model {model}. ", NOT_RECORDED),
    )


NOT_RECORDED = (
    "The records of this run hold what was measured and not what was predicted, so that predicted "
    "and measured ranks cannot be held against each other; `tune model eval` does so on all trials "
    "of a database."
)
