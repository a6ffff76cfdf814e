"""Register tiles of transposes go along results, as far as the second cache has what they read."""

from dataclasses import replace

import pytest

from benchmarks.row_kernels import gelu, transpose
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.ir.compute import Compute
from hlotune.schedules.spaces.cpu_rows.bodies import stores_along_rows
from hlotune.schedules.spaces.cpu_rows.forms import Form
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.spaces.cpu_rows.transposes import MOST_ALONG, SQUARES, tiles_together
from hlotune.schedules.steps.steps import Reorder

TARGET = replace(TARGETS["x86-64-v3"], l2_bytes=1 << 19)
ROWS = 8
"""Rows of a register tile."""


def form_of(compute: Compute) -> Form:
    (stage,) = compute.stages
    return space_of(compute, TARGET).forms[stage.name][0]


def along(rows: int, columns: int, threads: int = 2) -> int:
    """Register tiles of a transpose of f32 along its results."""
    compute = transpose(rows, columns)
    form = form_of(compute)
    target = replace(TARGET, threads=threads)
    found = tiles_together(compute, compute.stages[0], form, ROWS, target)
    assert found[form.vector] == SQUARES
    return found[form.row]


def test_tiles_behind_one_another_fill_the_same_results() -> None:
    space = space_of(transpose(1024, 1024), TARGET)
    steps = space.schedule(space.heuristic()).steps
    (order,) = (x.loops for x in steps if isinstance(x, Reorder))
    tiles = [name.partition(".")[0] for name in order[-5:-3]]
    assert tiles == ["i", "j"], "results lie together along j"


@pytest.mark.parametrize(("columns", "tiles"), [(1024, 8), (2048, 4), (4096, SQUARES)])
def test_lines_that_meet_in_the_cache_limit_the_tiles(columns: int, tiles: int) -> None:
    assert along(1024, columns) == tiles


def test_lines_that_spread_over_the_cache_leave_as_many_as_pay() -> None:
    assert along(1024, 1000) == MOST_ALONG


@pytest.mark.parametrize(("rows", "tiles"), [(72, 9), (36 * 8, 18), (100 * 8, 25)])
def test_the_parts_of_an_axis_are_equal(rows: int, tiles: int) -> None:
    assert along(rows, 1000) == tiles


def test_where_threads_would_have_few_blocks_tiles_stay_few() -> None:
    assert along(768, 96) == SQUARES
    assert along(1024, 1000, threads=2) == MOST_ALONG > along(1024, 1000, threads=64) == SQUARES


def test_maps_whose_results_lie_along_the_lanes_keep_their_order() -> None:
    compute = gelu(64, 1024)
    (stage,) = compute.stages
    assert not stores_along_rows(stage, form_of(compute))
