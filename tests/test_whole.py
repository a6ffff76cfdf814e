"""Which error stands for a whole program."""

from hlotune.deploy.accuracy import Accuracy
from hlotune.search.whole import worst_of


def accuracy(tuned: float, default: float | None = 1e-7) -> Accuracy:
    return Accuracy(inputs="random", result=0, default_error=default, tuned_error=tuned)


def test_the_worst_result_stands_for_the_program() -> None:
    assert worst_of([accuracy(1e-6), accuracy(3e-6, 2e-6), accuracy(0.0)]) == accuracy(3e-6, 2e-6)


def test_errors_that_are_not_finite_are_left_out() -> None:
    """JSON has no infinities, and an infinite error says nothing of the others."""
    infinite = float("inf")
    assert worst_of([accuracy(infinite), accuracy(1e-6, infinite), accuracy(1e-8)]) == accuracy(
        1e-8
    )
    assert worst_of([accuracy(infinite)]) is None


def test_results_held_against_the_default_count_as_well() -> None:
    assert worst_of([accuracy(2e-6, None), accuracy(1e-6)]) == accuracy(2e-6, None)
