"""Tiles take all rows of a panel first where a thread then reads less from the second cache."""

from dataclasses import replace

import pytest

from hlotune.measure.machine.targets import TARGETS
from tests.support.computes import gemm

TARGET = replace(TARGETS["x86-64-v3"], threads=2, l1_bytes=32 << 10, l2_bytes=512 << 10)


def outermost(rows: int, depth: int, columns: int) -> str:
    """What the groups of the first candidate of a product walk outermost."""
    space = gemm(rows, columns, depth, frozen=True).space(TARGET)
    axis = space.tiling(space.heuristic()).group_order[0]
    return {"i0": "rows", "i1": "panels"}[axis]


@pytest.mark.parametrize("rows, depth, columns", [(196, 64, 384), (196, 96, 576), (784, 32, 192)])
def test_panels_are_outermost_that_are_more_than_the_first_cache_together(
    rows: int, depth: int, columns: int
) -> None:
    assert outermost(rows, depth, columns) == "panels"


def test_rows_are_outermost_where_all_panels_stay_in_the_first_cache() -> None:
    assert outermost(12544, 16, 96) == "rows"


def test_rows_are_outermost_where_one_panel_is_more_than_the_first_cache() -> None:
    assert outermost(196, 576, 96) == "rows"


def test_rows_are_outermost_that_the_second_cache_does_not_hold_beside_the_panels() -> None:
    assert outermost(3136, 128, 128) == "rows"


def test_panels_that_the_second_cache_does_not_hold_are_outermost() -> None:
    assert outermost(49, 320, 1280) == "panels"
