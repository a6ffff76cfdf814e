"""Rivals are other forms of kernels; a run that goes on knows what it had spent on them."""

from types import SimpleNamespace
from typing import Any, cast

from hlotune.search.budget.account import Entry
from hlotune.search.budget.contest import Contest
from hlotune.search.budget.limits import Limits
from hlotune.search.budget.spending import Spending
from hlotune.search.tasks import Task

TRIALS = 8
CHAMPION_S = 2e-3


class FakeTuner:
    """Measures as many trials as it is asked for, and says how many that were."""

    def __init__(self, *account: Entry) -> None:
        self.account, self.best_s, self.asked = account, CHAMPION_S, 0

    def step(self, n: int, **limits: Any) -> Any:
        self.asked += n
        return SimpleNamespace(
            trials=[SimpleNamespace(outcome=None)] * n, failures=0, best_s=CHAMPION_S, wall_s=1.0,
            rank_correlation=None,
        )  # fmt: skip


def contest(tuner: FakeTuner) -> Contest:
    kernel = SimpleNamespace(key="0")
    task = SimpleNamespace(kernel=kernel, bytes=0, label="tanh", weight=1.0, flops=1, dtype="f32")
    return Contest(cast(Task, task), cast(Any, tuner), default_s=1e-3, known_trials=0)


def spent(first: FakeTuner, rival: FakeTuner) -> Spending:
    spending = Spending(
        [contest(first)], Limits(trials=TRIALS), lambda event: None,
        rivals=lambda: [contest(rival)],
    )  # fmt: skip
    spending.run()
    return spending


def test_rivals_of_a_kernel_that_does_not_gain_get_trials_of_their_own() -> None:
    first, rival = FakeTuner(), FakeTuner()
    spending = spent(first, rival)
    assert (first.asked, rival.asked) == (TRIALS, TRIALS)
    assert [spending.ledger.trials(k) for k in (0, 1)] == [TRIALS, TRIALS]


def test_a_run_that_goes_on_has_spent_what_its_rivals_had() -> None:
    first, rival = (FakeTuner(Entry(end_s, 1.0, TRIALS, 1, CHAMPION_S)) for end_s in (1.0, 2.0))
    spending = spent(first, rival)
    assert (first.asked, rival.asked) == (0, 0)
    assert [spending.ledger.trials(k) for k in (0, 1)] == [TRIALS, TRIALS]
    assert spending.ledger.failed(1) == 1
