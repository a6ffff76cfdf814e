"""Squares of elements that are turned in registers, by shuffles as a model of them carries out."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.row_kernels import transpose
from hlotune.codegen.llvm.emit import emit
from hlotune.codegen.llvm.idioms import transposed_copies
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.ir.compute import Compute, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.spaces.cpu_rows.space import space_of
from hlotune.schedules.steps.steps import Ahead
from tests.support.reductions import called

Vector = tuple[Any, ...]
KINDS = [
    (f"<{lanes} x {element}>", lanes)
    for element in ("i8", "i16", "i32", "float", "double")
    for lanes in (2, 4, 8, 16, 32, 64)
]


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The masks of all shuffles that are asked for, which choose among tuples in the place of
    registers."""
    found: list[list[int]] = []

    def shuffled(_: object, a: Vector, b: Vector, kind: str, mask: list[int]) -> Vector:
        found.append(mask)
        return tuple((*a, *b)[k] for k in mask)

    monkeypatch.setattr(transposed_copies, "_shuffled", shuffled)
    return found


def turned(count: int, kind: str, lanes: int) -> list[Any]:
    """So many vectors, whose elements say where they stood, turned."""
    rows: list[Any] = [tuple((row, lane) for lane in range(lanes)) for row in range(count)]
    return transposed_copies.turned(None, rows, kind, lanes)  # type: ignore[arg-type]


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize(("kind", "lanes"), KINDS)
def test_squares_side_by_side_are_transposed(kind: str, lanes: int) -> None:
    for rows in (1 << k for k in range(lanes.bit_length())):
        found = turned(rows, kind, lanes)
        assert found == [
            tuple((lane % rows, lane - lane % rows + k) for lane in range(lanes))
            for k in range(rows)
        ]


@pytest.mark.parametrize(("kind", "lanes"), [("<64 x i8>", 64), ("<32 x i16>", 32)])
def test_short_elements_move_within_pieces_and_in_whole_ones(
    kind: str, lanes: int, masks: list[list[int]]
) -> None:
    """So that no shuffle needs a mask in a register: 16 bytes are what one instruction takes."""
    turned(lanes, kind, lanes)
    piece = lanes // 4
    for mask in masks:
        parts = [mask[k : k + piece] for k in range(0, lanes, piece)]
        whole = all(b - a == 1 for part in parts for a, b in pairwise(part))
        within = all({k % lanes // piece for k in part} == {n} for n, part in enumerate(parts))
        assert whole or within
    assert len(masks) == lanes * (lanes.bit_length() - 1)


@pytest.mark.parametrize("dtype", ["ui8", "bf16", "ui16", "f32"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (67, 130), (16, 48), (200, 33)])
def test_transposes_of_short_elements_are_right(dtype: str, rows: int, columns: int) -> None:
    compute = transpose(rows, columns, dtype)
    space = space_of(compute, host_target())
    x = np.random.default_rng(0).integers(0, 99, (rows, columns)).astype(numpy_dtype(dtype))
    (found,) = called(compute, space.schedule(space.heuristic()).steps, [x])
    assert np.array_equal(found, x.T)


@pytest.mark.parametrize(("dtype", "lanes"), [("ui8", 64), ("bf16", 32)])
@pytest.mark.parametrize("columns", [67, 130])
def test_whole_squares_are_right_where_results_meet_in_the_first_cache(
    dtype: str, lanes: int, columns: int
) -> None:
    compute, target = transpose(1024, columns, dtype), host_target()
    space = space_of(compute, target)
    config = space.heuristic()
    if target.has_wide_vectors:
        assert space.values(config[None], "rows", "out")[0] == lanes
    x = np.random.default_rng(0).integers(0, 99, (1024, columns)).astype(numpy_dtype(dtype))
    (found,) = called(compute, space.schedule(config).steps, [x])
    assert np.array_equal(found, x.T)


@pytest.mark.parametrize(
    ("dtype", "extent", "rows", "name"),
    [
        ("ui8", 2048, 64, "znver4"),
        ("ui8", 2112, 16, "znver4"),
        ("bf16", 1024, 32, "znver4"),
        ("bf16", 1056, 16, "znver4"),
        ("f32", 1024, 16, "znver4"),
        ("ui8", 2048, 16, "x86-64-v3"),
    ],
)
def test_short_elements_store_whole_lines_where_results_meet_in_the_first_cache(
    dtype: str, extent: int, rows: int, name: str
) -> None:
    """It has 32 KiB: lines 2 KiB apart have 16 places there, and those 2,112 bytes apart all."""
    space = space_of(transpose(extent, extent, dtype), TARGETS[name])
    column = space.columns["rows", "out"]
    assert space.knobs.knobs[column - 1].values[space.heuristic()[column]] == rows


def requests(rows: int, columns: int, name: str) -> list[str]:
    compute, target = transpose(rows, columns), TARGETS[name]
    space = space_of(compute, target)
    text = emit(replay(compute, space.schedule(space.heuristic()), target)).text
    return [line for line in text.splitlines() if "call void @llvm.prefetch" in line]


def test_tiles_ask_for_the_next_lines_into_the_second_cache() -> None:
    """Where the second caches do not hold what is read, with vectors of 64 bytes."""
    found = requests(1024, 1024, "znver4")
    assert len(found) == 16
    assert all("i32 0, i32 2, i32 1)" in line for line in found)
    assert not requests(256, 256, "znver4")
    assert not requests(65536, 32, "znver4"), "rows 128 bytes apart are read in order"
    assert not requests(1024, 1024, "x86-64-v3")


def with_another(extent: int, shape: tuple[int, ...], axes: str) -> Compute:
    """The sum of a transpose and another tensor, whose dimensions lie along these of its axes."""
    plain = transpose(extent, extent)
    (stage,) = plain.stages
    index = tuple(map(Affine.axis, axes))
    sum_of_both = Apply("add", (*stage.values, Load("b", index, "f32")), "f32")
    other = Tensor("b", shape, "f32", "argument")
    return Compute((other, *plain.tensors), (replace(stage, values=(sum_of_both,)),))


def test_what_is_read_beside_a_transpose_does_not_keep_it_from_asking() -> None:
    """Neither a scalar nor a bias has rows that lie apart."""
    stage = transpose(1024, 1024).stages[0]
    (store,) = stage.stores
    high, low = (next(iter(e.coefficients)) for e in store.index)
    for shape, axes in (((), ""), ((1024,), high), ((1024,), low)):
        space = space_of(with_another(1024, shape, axes), TARGETS["znver4"])
        steps = space.schedule(space.heuristic()).steps
        assert any(isinstance(s, Ahead) and s.bytes == 64 for s in steps), axes
