"""What is asked for ahead, and results that are stored past the caches."""

import numpy as np
import pytest

from benchmarks.row_kernels import OF_ROWS, over_all, residual_relu, softmax
from hlotune.codegen.llvm.emit import emit
from hlotune.hlo.graph import numpy_dtype
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
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


REFUSED: dict[str, tuple[Step, str]] = {
    "nothing ahead": (Ahead("top", "a0", 0), "expected 1 to 1048576 bytes, got 0"),
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


def test_only_results_larger_than_half_the_last_cache_may_pass_it() -> None:
    knobs = {name: zen4(compute).columns for name, compute in {
        "large": softmax(8192, 768), "small": softmax(512, 1024), "ragged": softmax(8192, 770),
        "sums": OF_ROWS["over_columns"](8192, 768), "flat": residual_relu(1 << 23),
    }.items()}  # fmt: skip
    assert {n for n, c in knobs.items() if any(kind == "past" for kind, _ in c)} == {
        "large",
        "flat",
    }


def test_first_candidates_stream_what_the_caches_cannot_hold() -> None:
    def steps(rows: int, columns: int) -> set[type[Step]]:
        space = zen4(softmax(rows, columns))
        return {type(s) for s in space.schedule(space.heuristic()).steps}

    assert {Ahead, NonTemporal} <= steps(8192, 768)
    assert Ahead in steps(512, 1024) and NonTemporal not in steps(512, 1024)
    assert not {Ahead, NonTemporal} & steps(64, 256)


def differences(rows: int, columns: int) -> Compute:
    """A point less those of the next two rows."""
    row, column = Affine.axis("i"), Affine.axis("j")
    here, below, last = (Load("a0", (row + k, column), "f32") for k in range(3))
    value = Apply("subtract", (Apply("subtract", (here, below), "f32"), last), "f32")
    stage = Stage("out", (Axis("i", rows), Axis("j", columns)), (), (Store("y0", (row, column)),),
                  (value,))  # fmt: skip
    return Compute(
        (Tensor("a0", (rows + 2, columns), "f32", "argument"),
         Tensor("y0", (rows, columns), "f32", "result")),
        (stage,),
    )  # fmt: skip


def test_stencils_of_what_no_cache_holds_ask_for_what_lies_behind_their_foremost_load() -> None:
    def steps(rows: int) -> set[type[Step]]:
        space = zen4(differences(rows, 1024))
        return {type(s) for s in space.schedule(space.heuristic()).steps}

    assert Ahead in steps(8192) and Ahead not in steps(512)
    asked = text(differences(4, 64), Ahead("out", "a0", 2048))
    assert asked.count("call void @llvm.prefetch.p0") == text(differences(4, 64)).count("store <16")
    assert asked.count("call void @llvm.prefetch.p0") > 0


def test_streamed_schedules_are_located_where_they_came_from() -> None:
    space = zen4(softmax(8192, 768))
    for config in space.sample(40, np.random.default_rng(0)):
        found = space.locate(space.schedule(config))
        assert found is not None
        for kind, axis in space.columns:
            if kind in ("ahead", "past"):
                assert space.values(found[None], kind, axis) == space.values(
                    config[None], kind, axis
                )
