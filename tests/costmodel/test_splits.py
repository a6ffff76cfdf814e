"""What is held out is never trained on, and the same for everyone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.costmodel.splits import LEAST_KNOWN, Split, hold_out_families, hold_out_kernels

KEYS = st.text("0123456789abcdef", min_size=4, max_size=4)
FAMILIES = st.dictionaries(KEYS, st.sampled_from("abcdefg"), min_size=1, max_size=60)
SEEDS = st.integers(0, 3)


def check_parts(families: dict[str, str], split: Split) -> None:
    """Every kernel is on exactly one side."""
    assert sorted(split.train + split.held_out) == sorted(families)


@given(FAMILIES, SEEDS)
def test_held_out_kernels_are_of_families_that_are_trained_on(
    families: dict[str, str], seed: int
) -> None:
    split = hold_out_kernels(families, share=0.5, seed=seed)
    check_parts(families, split)
    for family in {families[key] for key in split.held_out}:
        known = sum(families[key] == family for key in split.train)
        assert known >= LEAST_KNOWN


@given(FAMILIES, SEEDS)
def test_a_held_out_family_is_not_trained_on_at_all(families: dict[str, str], seed: int) -> None:
    for split in hold_out_families(families, folds=3, seed=seed):
        check_parts(families, split)
        trained = {families[key] for key in split.train}
        assert not trained & {families[key] for key in split.held_out}


@given(FAMILIES, SEEDS)
def test_each_family_is_held_out_exactly_once(families: dict[str, str], seed: int) -> None:
    folds = hold_out_families(families, folds=4, seed=seed)
    assert len(folds) == min(4, len(set(families.values())))
    assert sorted(key for split in folds for key in split.held_out) == sorted(families)


def test_a_share_of_each_family_is_held_out_and_one_at_least_if_two_stay() -> None:
    sizes = {"a": 12, "b": 8, "c": 3, "d": 2}
    families = {f"{family}{n}": family for family, size in sizes.items() for n in range(size)}
    held = hold_out_kernels(families, share=0.25).held_out
    assert [sum(key.startswith(family) for key in held) for family in "abcd"] == [3, 2, 1, 0]


def test_folds_have_about_as_many_kernels_each() -> None:
    families = {f"{family}{n}": family for family in "abcdef" for n in range(4)}
    assert [len(s.held_out) for s in hold_out_families(families, folds=3)] == [8, 8, 8]


@given(FAMILIES, SEEDS)
def test_the_order_of_the_kernels_does_not_matter(families: dict[str, str], seed: int) -> None:
    turned = dict(reversed(families.items()))
    assert hold_out_kernels(families, seed=seed) == hold_out_kernels(turned, seed=seed)
    assert hold_out_families(families, seed=seed) == hold_out_families(turned, seed=seed)


def test_another_seed_holds_out_others() -> None:
    families = {f"{n:02}": "a" for n in range(40)}
    assert len({hold_out_kernels(families, seed=seed).held_out for seed in range(4)}) == 4


def test_one_fold_is_refused() -> None:
    with pytest.raises(ValueError, match="expected two folds or more, got 1"):
        hold_out_families({"a": "b"}, folds=1)
