"""By how much a run missed its budget, in words."""

LATE = 0.05
"""A budget is missed by a run that takes more than its seconds and this share of them."""
NOTHING_S = 0.05
"""Less time than this is not mentioned."""


def missed_by(
    budget_s: float | None, passed_s: float, closed_from_s: float, *, searched: bool
) -> str:
    """By how much a budget was missed, and in which part of the run; empty where it was kept, or
    there is none.

    `closed_from_s` is how much of the time had passed when the last batch had ended; `searched`
    says whether there were any batches.
    """
    if budget_s is None or passed_s <= (1 + LATE) * budget_s:
        return ""
    over = f"{passed_s - budget_s:.1f} s over the budget of {budget_s:g} s: "
    closing_s = passed_s - closed_from_s
    closing = f"comparing champions and the program with the default took {closing_s:.1f} s"
    if searched:
        return f"{over}{closing}, after batches that ended at {closed_from_s:.1f} s"
    preparing = f"preparing took {closed_from_s:.1f} s, and there was no batch"
    return over + (preparing if closing_s < NOTHING_S else f"{preparing}; {closing}")
