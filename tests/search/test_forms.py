"""Which forms of a program are tried, one after the other."""

from collections.abc import Callable, Sequence

import pytest

from hlotune.measure.timing.comparison import CONFIDENCE
from hlotune.search.finals.forms import MOST_TRIED, candidates, confidence_of, forms_of, taken
from hlotune.search.result import KernelResult, TuneResult
from tests.support.sessions import PROGRAM

GOOD = frozenset("bd")
"""Kernels with which a program is faster; with each other one it is slower by as much."""


def by_sum(base: Sequence[str], more: Sequence[str]) -> bool:
    """Whether more of the kernels are good than are bad."""
    return sum(1 if key in GOOD else -1 for key in more) > 0


def watched(
    verdict: Callable[..., bool | None], seen: list[tuple[str, str]]
) -> Callable[..., bool | None]:
    def is_faster(base: Sequence[str], more: Sequence[str]) -> bool | None:
        seen.append(("".join(base), "".join(more)))
        return verdict(base, more)

    return is_faster


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
    assert confidence_of(1) == pytest.approx(CONFIDENCE)


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
