"""Results that are stored past the caches, and steps that ask for what is read further on."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.row_kernels import (
    OF_ROWS,
    over_all,
    residual_relu,
    softmax,
)
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load, Lookup
from hlotune.schedules.ir.monoids import SUM
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Ahead, NonTemporal, Step
from tests.support.reductions import called

ZEN4 = TARGETS["znver4"]


def first(compute: Compute, *more: Step) -> tuple[Step, ...]:
    """The first candidate with some steps more."""
    space = space_of(compute, host_target())
    return (*space.schedule(space.heuristic()).steps, *more)


def text(compute: Compute, *more: Step) -> str:
    space = space_of(compute, ZEN4)
    steps = (*space.schedule(space.heuristic()).steps, *more)
    return emit(replay(compute, Schedule("direct", steps), ZEN4)).text


@pytest.mark.parametrize("columns", [64, 80, 37])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_streamed_kernels_compute_what_the_stages_say(columns: int, dtype: str) -> None:
    compute = softmax(9, columns, dtype)
    x = np.random.default_rng(0).standard_normal((9, columns)).astype(np.float32)
    x = x.astype(numpy_dtype(dtype))
    more = Ahead("top", "a0", 4096), Ahead("e", "a0", 64), NonTemporal("out")
    plain = called(compute, first(compute), [x])
    assert np.array_equal(called(compute, first(compute, *more), [x]), plain)


def test_whole_aligned_vectors_pass_the_caches_and_others_do_not() -> None:
    aligned, shifted = (
        text(softmax(4, 64), NonTemporal("out")),
        text(softmax(4, 70), NonTemporal("out")),
    )
    assert "!nontemporal" in aligned and "sfence" in aligned
    assert "!nontemporal" not in shifted
    assert "!nontemporal" not in text(softmax(4, 64))


def test_results_that_are_no_multiple_of_a_line_may_begin_anywhere() -> None:
    whole, ragged = (
        text(residual_relu(n), NonTemporal(residual_relu(n).stages[-1].name)) for n in (1024, 1000)
    )
    assert "!nontemporal" in whole
    assert "!nontemporal" not in ragged


def test_each_vector_that_is_loaded_asks_for_one_further_on() -> None:
    asked = text(over_all(4096), Ahead("all", "a0", 2048))
    assert asked.count("call void @llvm.prefetch.p0") == 128 * 4 // 64
    assert "llvm.prefetch" not in text(over_all(4096))


def test_requests_to_memory_stand_behind_their_loads_and_others_in_front() -> None:
    def load_comes_first(elements: int) -> bool:
        lines = text(over_all(elements), Ahead("all", "a0", 2048)).splitlines()
        loads, requests = (
            [k for k, x in enumerate(lines) if part in x]
            for part in (" = load <", "call void @llvm.prefetch")
        )
        return loads[0] < requests[0]

    assert load_comes_first(1 << 23)
    assert not load_comes_first(4096)


REFUSED: dict[str, tuple[Step, str]] = {
    "nothing ahead": (Ahead("top", "a0", 0), "expected 1 to 1048576 bytes, got 0"),
    "no such cache": (Ahead("top", "a0", 64, 3), "expected cache 1 or 2, got 3"),
    "too far ahead": (Ahead("top", "a0", 1 << 21), "expected 1 to 1048576 bytes, got 2097152"),
    "what it does not load": (Ahead("sum", "a0", 64), "sum does not load a0"),
    "what another stage computes": (Ahead("sum", "e", 64), "e is no argument"),
    "what others read": (NonTemporal("e"), "others read what e stores"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_streams_are_refused_with_a_reason(name: str) -> None:
    step, reason = REFUSED[name]
    compute = softmax(4, 64)
    with pytest.raises(ScheduleError, match=reason):
        replay(compute, Schedule("direct", (*first(compute), step)), host_target())


def test_results_of_a_reduction_stay_in_the_caches() -> None:
    compute = over_all(64)
    with pytest.raises(ScheduleError, match="all loads its results again"):
        replay(compute, Schedule("direct", (NonTemporal("all"),)), host_target())


def zen4(compute: Compute) -> RowsSpace:
    return space_of(compute, ZEN4)


def test_only_results_that_the_last_cache_does_not_keep_may_pass_it() -> None:
    knobs = {name: zen4(compute).columns for name, compute in {
        "large": softmax(8192, 768), "small": softmax(512, 1024), "ragged": softmax(8192, 770),
        "sums": OF_ROWS["over_columns"](8192, 768), "flat": residual_relu(1 << 23),
    }.items()}  # fmt: skip
    assert {n for n, c in knobs.items() if any(kind == "past" for kind, _ in c)} == {
        "large",
        "flat",
    }


def cut(rows: int) -> Compute:
    """Some of 16,384 rows, which have 64 MiB."""
    row, column = Affine.axis("i"), Affine.axis("j")
    stage = Stage("out", (Axis("i", rows), Axis("j", 1024)), (), (Store("y0", (row, column)),),
                  (Load("a0", (row, column), "f32"),))  # fmt: skip
    return Compute(
        (Tensor("a0", (1 << 14, 1024), "f32", "argument"),
         Tensor("y0", (rows, 1024), "f32", "result")),
        (stage,),
    )  # fmt: skip


def looked_up(rows: int) -> Compute:
    """A row of 16,384, which have 64 MiB, for each of some numbers."""
    row, column, place = map(Affine.axis, "ijp")
    found = Lookup("p", Load("a1", (row,), "i32"), (1 << 14) - 1)
    element = Load("a0", (place, column), "f32", lookups=(found,))
    axes = Axis("i", rows), Axis("j", 1024)
    stage = Stage("out", axes, (), (Store("y0", (row, column)),), (element,))
    return Compute(
        (Tensor("a0", (1 << 14, 1024), "f32", "argument"),
         Tensor("a1", (rows,), "i32", "argument"),
         Tensor("y0", (rows, 1024), "f32", "result")),
        (stage,),
    )  # fmt: skip


def test_results_pass_the_last_cache_where_it_has_no_room_for_them_beside_what_is_read() -> None:
    """It has 32 MiB: two arguments and a result of 8 MiB each fit, those of 12 MiB do not.  Tensors
    of 64 MiB count by what is read of them."""

    def passes(compute: Compute) -> bool:
        space = zen4(compute)
        return any(isinstance(s, NonTemporal) for s in space.schedule(space.heuristic()).steps)

    assert not passes(residual_relu(2 << 20))
    assert passes(residual_relu(3 << 20))
    for some in (cut, looked_up):
        assert not passes(some(2048))
        assert not passes(some(3072))
        assert passes(some(4096))


def test_first_candidates_stream_what_the_caches_cannot_hold() -> None:
    def steps(rows: int, columns: int) -> set[type[Step]]:
        space = zen4(softmax(rows, columns))
        return {type(s) for s in space.schedule(space.heuristic()).steps}

    assert {Ahead, NonTemporal} <= steps(8192, 768)
    assert Ahead in steps(512, 1024) and NonTemporal not in steps(512, 1024)
    assert not {Ahead, NonTemporal} & steps(64, 256)


def neighbours_summed(rows: int, columns: int, many: int = 5) -> Compute:
    """Sums of neighbours along rows, each with a weight of its own."""
    row, column, place = map(Affine.axis, "ijr")
    factors = Load("a0", (row, column + place), "f32"), Load("a1", (place,), "f32")
    product = Apply("multiply", factors, "f32")
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), (Axis("r", many),),
                  (Store("y0", (row, column)),), (product,), SUM)  # fmt: skip
    return Compute(
        (Tensor("a0", (rows, columns + many - 1), "f32", "argument"),
         Tensor("a1", (many,), "f32", "argument"),
         Tensor("y0", (rows, columns), "f32", "result")),
        (stage,),
    )  # fmt: skip


def test_sums_that_registers_hold_all_along_pass_the_caches_where_these_have_no_room() -> None:
    def passes(rows: int) -> bool:
        space = zen4(neighbours_summed(rows, 1024))
        steps = space.schedule(space.heuristic()).steps
        return any(isinstance(s, NonTemporal) for s in steps)

    assert passes(8192) and not passes(512)
    assert "!nontemporal" in text(neighbours_summed(8, 64), NonTemporal("out"))


def test_sums_that_pass_the_caches_are_what_others_are() -> None:
    compute, rng = neighbours_summed(9, 80), np.random.default_rng(0)
    given = [rng.standard_normal(n).astype(np.float32) for n in ((9, 84), (5,))]
    plain = called(compute, first(compute), given)
    past = called(compute, first(compute, NonTemporal("out")), given)
    assert np.array_equal(past, plain)


def in_pieces(space: RowsSpace, past: int) -> NDArray[np.int32]:
    """The first candidate with each step of its sum on its own, stored and loaded again."""
    config = space.heuristic()
    for (kind, _), column in space.columns.items():
        if kind in ("chunk", "unroll", "past"):
            values = space.knobs.knobs[column - 1].values
            config[column] = values.index(past if kind == "past" else 1)
    return config


def test_sums_that_are_loaded_again_stay_in_the_caches() -> None:
    compute = neighbours_summed(8192, 1024)
    space = zen4(compute)
    through, past = (space.schedule(in_pieces(space, n)) for n in (0, 1))
    assert through == past
    assert len(set(space.digest(np.stack([in_pieces(space, n) for n in (0, 1)])))) == 1
    further = replace(past, steps=(*past.steps, NonTemporal("out")))
    with pytest.raises(ScheduleError, match="out loads its results again"):
        replay(compute, further, ZEN4)


def test_sums_that_pass_the_caches_are_located_where_they_came_from() -> None:
    space = zen4(neighbours_summed(8192, 1024))
    configs = space.sample(60, np.random.default_rng(0))
    found = [space.locate(space.schedule(c)) for c in configs]
    assert all(c is not None for c in found)
    assert np.array_equal(space.digest(np.array(found)), space.digest(configs))
    stored = [any(isinstance(s, NonTemporal) for s in space.schedule(c).steps) for c in configs]
    assert any(stored) and not all(stored)
