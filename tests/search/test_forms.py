"""Which forms of a program are tried, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from hlotune.measure.timing.comparison import CONFIDENCE
from hlotune.search.finals.forms import (
    CONFIDENCE_OF_FIRST,
    MOST_TRIED,
    Compared,
    apart,
    candidates,
    confidence_of,
    forms_of,
    is_promising,
    likeliest,
    taken,
    unexplained_s,
)
from hlotune.search.result import KernelResult, TuneResult
from tests.support.sessions import PROGRAM

GOOD = frozenset("bd")
"""Kernels with which a program is faster; with each other one it is slower by as much."""


def by_sum(base: Sequence[str], more: Sequence[str]) -> bool:
    """Whether more of the kernels are good than are bad."""
    return sum(1 if key in GOOD else -1 for key in more) > 0


def watched(
    verdict: Callable[..., bool | None], seen: list[tuple[str, str]]
) -> Callable[..., Compared | None]:
    def compare(base: Sequence[str], more: Sequence[str]) -> Compared | None:
        seen.append(("".join(base), "".join(more)))
        found = verdict(base, more)
        if found is None:
            return None
        return Compared(is_faster=found, standing=frozenset({*base, *more}))

    return compare


def test_kernels_that_help_together_are_taken_at_once() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("bd", watched(by_sum, seen)) == ("b", "d")
    assert seen == [("", "bd")]


def test_a_part_that_does_not_help_is_tried_by_halves_beside_what_was_taken() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("bdac", watched(by_sum, seen)) == ("b", "d")
    assert seen == [("", "bdac"), ("", "bd"), ("bd", "ac"), ("bd", "a"), ("bd", "c")]


def test_no_more_forms_are_tried_than_their_confidence_is_shared_by() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("acegikmo", watched(by_sum, seen)) == ()
    assert len(seen) == MOST_TRIED == forms_of(8)
    assert confidence_of(8) == pytest.approx(1 - (1 - CONFIDENCE) / MOST_TRIED)
    assert confidence_of(1) == confidence_of(0, 1) == pytest.approx(CONFIDENCE)


def test_forms_with_more_and_forms_with_less_share_one_error() -> None:
    assert confidence_of(8, 2) == pytest.approx(1 - (1 - CONFIDENCE) / (MOST_TRIED + 3))
    assert confidence_of(8, 2, most=1) == pytest.approx(1 - (1 - CONFIDENCE) / 2)


def test_the_likeliest_form_has_half_of_the_error_and_all_others_the_other_half() -> None:
    error, forms = 1 - CONFIDENCE_OF_FIRST, MOST_TRIED + 3
    others = 1 - confidence_of(8, 2, is_first=False)
    assert error + forms * others == pytest.approx(1 - CONFIDENCE)


def test_kernels_that_did_not_help_together_are_tried_by_halves_behind_the_others() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("abc", watched(by_sum, seen), failed="ac") == ("b",)
    assert seen == [("", "b"), ("b", "a"), ("b", "c")]
    seen.clear()
    assert taken("a", watched(by_sum, seen), failed="a") == ()
    assert not seen


def test_what_does_not_stand_in_the_faster_form_is_not_taken() -> None:
    def compare(base: Sequence[str], more: Sequence[str]) -> Compared:
        return Compared(is_faster=True, standing=frozenset("a"))

    assert taken("ab", compare) == ("a",)


def test_a_form_that_is_the_program_as_it_is_ends_nothing_and_is_not_halved() -> None:
    seen: list[str] = []

    def compare(base: Sequence[str], more: Sequence[str]) -> Compared:
        seen.append("".join(more))
        is_same = "d" not in more
        return Compared(is_faster=more == ("d",), standing=frozenset(more), is_same=is_same)

    assert taken("abcd", compare) == ("d",)
    assert seen == ["abcd", "ab", "cd", "c", "d"]


def test_of_long_calls_one_form_is_tried() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("acd", watched(by_sum, seen), most=1) == ()
    assert seen == [("", "acd")]


def test_nothing_is_tried_once_there_is_no_time() -> None:
    seen: list[tuple[str, str]] = []
    assert taken("ab", watched(lambda base, more: None, seen)) == ()
    assert len(seen) == 1


def kernel(key: str, default_s: float, best_s: float, *, won: bool = False) -> KernelResult:
    return KernelResult(
        label=key, key=key, weight=1.0, trials=1, failures=0, default_s=default_s, best_s=best_s,
        ratio=default_s / best_s, won=won,
    )  # fmt: skip


def result(*kernels: KernelResult) -> TuneResult:
    return TuneResult(
        program_name=PROGRAM.name, database=None, run="", kernels=kernels, trials=0,  # type: ignore[arg-type]
        known_trials=0, wall_s=0.0,
    )  # fmt: skip


def test_a_sum_that_xla_is_said_to_do_in_no_time_is_tried_in_a_program_that_takes_long() -> None:
    """RMS norm's gradient: 48 ms of the program, of which the kernels alone take 6."""
    rows, columns = kernel("rows", 40e-3, 4.4e-3, won=True), kernel("columns", 1.4e-3, 3.3e-3)
    assert candidates(result(rows, columns), 48e-3) == [columns]
    assert candidates(result(rows, columns), 6e-3) == []


def test_a_kernel_cannot_win_more_than_the_program_takes_beside_its_kernels() -> None:
    slow, slower = kernel("slow", 1e-3, 3e-3), kernel("slower", 1e-3, 9e-3)
    assert candidates(result(slow, slower), 5e-3) == [slow]


@dataclass(frozen=True)
class Place:
    """A site, by its kernel and the operations that it has."""

    kernel: SimpleNamespace
    ops: frozenset[int]
    weight: float = 1.0
    path: tuple[int, ...] = ()
    pattern: str = "contraction"


def place(key: str, *ops: int, weight: float = 1.0, pattern: str = "contraction") -> Place:
    return Place(SimpleNamespace(key=key), frozenset(ops), weight, pattern=pattern)


def keys(found: TuneResult) -> list[str]:
    return [k.key for k in found.kernels]


DENSE: list[Any] = [place("dot+bias+tanh", 0, 1, 2), place("dot", 0), place("bias+tanh", 1, 2)]


def test_of_kernels_that_share_operations_the_largest_stands() -> None:
    whole, dot = kernel("dot+bias+tanh", 1e-3, 1.1e-3), kernel("dot", 0.9e-3, 1e-3)
    assert keys(apart(result(dot, whole), DENSE)) == ["dot+bias+tanh"]
    assert keys(apart(result(dot, whole), ())) == ["dot", "dot+bias+tanh"]


def test_of_kernels_that_share_operations_what_won_stands_and_then_what_is_near() -> None:
    whole = kernel("dot+bias+tanh", 1e-3, 1.1e-3)
    won, rest = kernel("dot", 0.9e-3, 0.5e-3, won=True), kernel("bias+tanh", 1e-3, 9e-3)
    assert keys(apart(result(whole, rest, won), DENSE)) == ["bias+tanh", "dot"]
    far = kernel("dot+bias+tanh", 1e-3, 2e-3)
    near = kernel("dot", 0.9e-3, 1e-3)
    assert keys(apart(result(far, near), DENSE)) == ["dot"]


def test_a_kernel_weighs_as_much_as_its_places_that_no_other_takes() -> None:
    whole, dot = kernel("dot+bias+tanh", 1e-3, 1.1e-3), kernel("dot", 0.9e-3, 1e-3)
    places = [*DENSE, place("dot", 7, weight=3.0)]
    found = apart(result(whole, replace(dot, weight=4.0)), places)
    assert {k.key: k.weight for k in found.kernels} == {"dot+bias+tanh": 1.0, "dot": 3.0}


def test_time_of_operations_that_several_kernels_have_counts_once() -> None:
    """RMS norm's gradient, whose smaller groups are kernels of the result too."""
    rows, columns = kernel("rows", 40e-3, 4.4e-3, won=True), kernel("columns", 1.4e-3, 3.3e-3)
    smaller = [kernel(f"part{n}", 20e-3, 30e-3) for n in range(2)]
    places: list[Any] = [
        place("rows", 0, 1), place("columns", 2, 3), place("part0", 0), place("part1", 1),
    ]  # fmt: skip
    found = apart(result(rows, columns, *smaller), places)
    assert unexplained_s(found, 48e-3) == pytest.approx((48 - 4.4 - 1.4) * 1e-3)
    assert [k.key for k in candidates(found, 48e-3)] == ["columns"]


def test_gains_are_held_against_the_time_of_all_kernels_once() -> None:
    small = kernel("small", 1e-3, 0.9e-3)
    big = [kernel(f"group{n}", 1e-3, 5e-3) for n in range(3)]
    places: list[Any] = [place("small", 9), *(place(f"group{n}", *range(n + 1)) for n in range(3))]
    assert not is_promising(result(small, *big))
    assert is_promising(apart(result(small, *big), places))


def test_the_likeliest_form_has_all_kernels_of_the_kind_that_takes_most_of_the_time() -> None:
    """A training step: threads change between XLA's products and ours."""
    won, product = kernel("won", 1e-3, 0.7e-3, won=True), kernel("product", 0.7e-3, 0.7e-3)
    total = kernel("total", 0.1e-3, 0.1e-3)
    places: list[Any] = [place("won", 0), place("product", 1), place("total", 2, pattern="rows")]
    lost, step = [product, total], result(won, product, total)
    assert likeliest(lost, step, places) == [product]
    assert likeliest(lost, step, ()) == []
    often = replace(total, weight=20.0)
    assert likeliest([product, often], result(won, product, often), places) == []  # no sum is ours
    short = replace(product, default_s=0.05e-3)
    assert likeliest([short, total], result(won, short, total), places) == []  # little of the time
