"""What comparing two forms of a program takes: put by, asked and given by one rule."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.deploy.timer import Fewest, Timer
from hlotune.measure.machine.machine_lock import Turns
from hlotune.measure.machine.targets import host_target
from hlotune.measure.timing.timing import ONCE_S, always_apart
from hlotune.search.finals.form_costs import PAIRS, FormCosts, form_costs
from hlotune.search.finals.forms import CONFIDENCE_OF_FIRST


class Clocked(Timer):
    """Each call takes so many seconds of a clock that goes by nothing else."""

    def __init__(self, call_s: float, limit_s: float) -> None:
        self.passed_s, self.call_s = 0.0, call_s
        self.threads, self.apart = host_target().host_threads, always_apart
        self.turns, self.end_s = Turns(now=lambda: self.passed_s), limit_s

    def sample(self, function: Any, calls: int) -> float:
        self.passed_s += calls * self.call_s
        return self.call_s

    def _in_a_loop(self, function: Any, calls: int) -> float:
        self.passed_s += 2e-3
        return self.sample(function, calls)


@pytest.mark.parametrize("call_s", [1e-4, 3e-3, 0.05, 0.15, 0.3, 0.9, 1.5, 6.0])
@pytest.mark.parametrize("confidence", [CONFIDENCE_OF_FIRST, 0.99])
def test_the_least_that_is_given_proves_something(call_s: float, confidence: float) -> None:
    costs = form_costs(0.0, call_s, confidence)
    timer = Clocked(call_s, costs.least_s)
    both = partial(SimpleNamespace), partial(SimpleNamespace)
    samples = timer.proving(*both, PAIRS, confidence)
    assert samples is not None
    fewest = Fewest.of(confidence)
    assert len(samples[0]) >= (fewest.long_pairs if call_s >= ONCE_S else fewest.pairs)
    assert timer.passed_s <= 1.01 * costs.most_s + call_s


def test_half_of_what_is_left_is_given_but_as_much_as_proves_something() -> None:
    costs = FormCosts(checking_s=2.0, least_s=3.0, most_s=10.0)
    assert costs.given_s(4.6) is None
    assert costs.given_s(5.0) == 3.0
    assert costs.given_s(12.0) == 5.0
    assert costs.given_s(100.0) == 10.0


def test_what_is_put_by_is_enough_to_be_given() -> None:
    for call_s in (1e-4, 0.1, 0.15, 0.3, 0.5, 0.9):
        costs = form_costs(1.0, call_s, CONFIDENCE_OF_FIRST)
        assert costs.given_s(costs.due_s(2.0)) is not None
