"""The gradients of a loss on pairs: partners, sums, and the level of time."""

import numpy as np

from hlotune.costmodel.pairwise_gradients import (
    LEVEL,
    PARTNERS,
    both_gradients,
    drawn_partners,
    sums,
)
from tests.support.made_rows import Groups, Scores, kernels


def in_order(n: int, groups: int) -> tuple[Scores, Groups]:
    """Scores of some kernels, kernel by kernel."""
    _, scores, group = kernels(n, groups)
    order = np.argsort(group, kind="stable")
    return scores[order], group[order]


def test_partners_are_drawn_from_all_of_the_same_kernel() -> None:
    _, groups = in_order(300, 5)
    partners = drawn_partners(groups, 40)(np.random.default_rng(0))
    assert partners.shape == (300, 40)
    assert (groups[partners] == groups[:, None]).all()
    assert len(np.unique(partners)) == 300


def test_gradients_are_those_of_a_logistic_loss_on_pairs_and_of_the_level() -> None:
    labels, groups = in_order(60, 3)
    margins = np.random.default_rng(1).standard_normal(60).astype(np.float32)
    partners = drawn_partners(groups)(np.random.default_rng(0))  # the first that are drawn
    grad, curve = LEVEL * (margins - labels), np.full(60, LEVEL)
    for one, others in enumerate(partners):
        for other in others:
            if labels[one] == labels[other]:
                continue
            better, worse = (one, other) if labels[one] > labels[other] else (other, one)
            doubt = 1 / (1 + np.exp(float(margins[better] - margins[worse])))
            grad[[better, worse]] += np.array([-doubt, doubt]) / PARTNERS
            curve[[better, worse]] += doubt * (1 - doubt) / PARTNERS
    found = both_gradients(labels, groups)(margins, None)
    np.testing.assert_allclose(found[0], grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1], curve, rtol=1e-5)


def test_sums_of_pairs_are_those_of_numpy_to_the_bit() -> None:
    """So that trees do not hang on how they are computed."""
    pairs = np.random.default_rng(0).standard_normal((500, PARTNERS)) ** 9
    np.testing.assert_array_equal(sums(pairs), pairs.sum(axis=1))
