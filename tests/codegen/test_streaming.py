"""What is asked for ahead, and results that are stored past the caches."""

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.row_kernels import (
    OF_ROWS,
    argmax,
    layer_norm,
    log_softmax,
    over_all,
    residual_relu,
    softmax,
    transpose,
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
from hlotune.schedules.spaces.cpu_rows.streams import AHEAD_BYTES, ROWS_AHEAD, SHORT_AHEAD
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Ahead, NonTemporal, Step
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.reductions import called

ZEN4 = TARGETS["znver4"]
FAR = tuple(n for n in AHEAD_BYTES if n > SHORT_AHEAD)


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


def asking(compute: Compute, target: CpuTarget = ZEN4) -> dict[str, int]:
    """Bytes that the first candidate asks for ahead, by stage."""
    space = space_of(compute, target)
    found = space.schedule(space.heuristic()).steps
    return {s.stage: s.bytes for s in found if isinstance(s, Ahead)}


def test_rows_that_pass_the_caches_ask_ahead_though_they_compute_little() -> None:
    """With vectors of 64 bytes alone, for which this was measured."""
    large, small = layer_norm(8192, 768), layer_norm(512, 1024)
    assert set(asking(large).values()) == {ROWS_AHEAD} and "out" in asking(large)
    assert not asking(small)
    assert not asking(large, TARGETS["x86-64-v3"])


def test_long_rows_that_the_last_cache_has_ask_for_the_whole_next_row_as_they_compute() -> None:
    """With vectors of 64 bytes; where the second cache has no room, or little is computed, none."""
    assert asking(softmax(64, 32000)) == {"e": 1 << 17}
    assert set(asking(log_softmax(64, 32000)).values()) == {1 << 17}
    assert "out" not in asking(log_softmax(64, 32000))
    assert not asking(softmax(16, 128000))
    assert not asking(layer_norm(64, 32000))
    assert (1 << 17) not in asking(softmax(64, 32000), TARGETS["x86-64-v3"]).values()


def test_sums_of_columns_ask_for_the_rows_behind_the_next_ones() -> None:
    """Eight rows are taken together, piece by piece: of what no cache holds, in several pieces."""
    sums = OF_ROWS["over_rows"]
    assert asking(sums(4096, 4096)) == {"all": 2 * 8 * 4096 * 4}
    assert asking(sums(8192, 768)) == {"all": 1 << 16}
    assert asking(sums(4096, 8192)) == {"all": 8 * 8192 * 4}, "not twice as far"
    assert not asking(sums(4096, 1 << 16)), "farther than any stage asks"
    assert not asking(sums(512, 4096)), "a cache has it"
    assert not asking(sums(1 << 18, 64)), "whole rows are read"
    assert not asking(sums(4096, 4096), TARGETS["x86-64-v3"])


def localities(compute: Compute, target: CpuTarget, cache: int = 0) -> set[str]:
    """Where the first candidate's requests go: 3 is the first cache, 2 the second."""
    nest = replay(compute, asking_for(compute, target, cache), target)
    ordinals = {x.rpartition("into the ")[2] for x in str(nest).splitlines() if "bytes ahead" in x}
    written = emit(nest).text.splitlines()
    found = {x.split("i32 ")[2][0] for x in written if "call void @llvm.prefetch" in x}
    assert {{"first cache": "3", "second cache": "2"}[x] for x in ordinals} == found
    return found


def asking_for(compute: Compute, target: CpuTarget, cache: int) -> Schedule:
    """The first candidate, whose requests name a cache unless it is 0."""
    space = space_of(compute, target)
    made = space.schedule(space.heuristic())
    named = [replace(s, cache=cache) if isinstance(s, Ahead) else s for s in made.steps]
    return replace(made, steps=tuple(named))


def test_the_largest_of_a_row_with_its_number_asks_ahead_and_a_sum_does_not() -> None:
    """What computes much: a sum of a row is read as fast without."""
    assert asking(argmax(512, 32000))["all"] == ROWS_AHEAD
    assert "2" in localities(argmax(512, 32000), ZEN4)
    assert not asking(argmax(64, 1024)) and not asking(OF_ROWS["over_columns"](4096, 4096))


def test_requests_go_to_the_second_cache_where_memory_is_waited_for_and_stored_past_it() -> None:
    assert localities(softmax(8192, 768), ZEN4) == {"2"}
    assert localities(differences(8192, 1024), ZEN4) == {"2"}
    assert localities(softmax(512, 1024), ZEN4) == {"3"}
    assert localities(OF_ROWS["over_rows"](4096, 4096), ZEN4) == {"2"}
    assert localities(softmax(8192, 768), TARGETS["x86-64-v3"]) == {"3"}


def knob(space: RowsSpace, stage: str) -> tuple[int, ...]:
    """What a stage may ask for ahead."""
    return space.knobs.knobs[space.columns["ahead", stage] - 1].values


def test_stages_may_ask_for_what_makes_sense_for_them() -> None:
    """A line where vectors are turned; far where rows are long, or what is reduced over."""
    short, far = tuple(n for n in AHEAD_BYTES if n not in (64, *FAR)), set(FAR)
    assert knob(zen4(softmax(8192, 768)), "e") == short
    flat = residual_relu(1 << 23)
    assert knob(zen4(flat), flat.stages[-1].name) == short
    assert knob(zen4(softmax(64, 32000)), "e") == (*short, *FAR)
    assert far < set(knob(zen4(OF_ROWS["over_rows"](8192, 768)), "all"))
    assert not far & set(knob(zen4(OF_ROWS["over_columns"](8192, 768)), "all"))
    assert set(knob(zen4(transpose(1024, 1024)), "out")) == {64, *short}


def test_rows_longer_than_any_distance_ask_for_the_largest() -> None:
    """With a second cache of 2 MiB, which has room for four such rows."""
    target = replace(ZEN4, threads=2, l2_bytes=2 << 20)
    assert asking(softmax(48, 62000), target) == {"e": 1 << 18}
    assert asking(softmax(48, 75008), target) == {"e": 1 << 18}


def test_requests_further_ahead_than_the_first_cache_is_large_go_to_the_second() -> None:
    assert localities(softmax(64, 32000), ZEN4) == {"2"}
    space = zen4(softmax(64, 32000))
    config = space.heuristic()
    values = knob(space, "e")
    for size, cache in ((1 << 15, "3"), (1 << 16, "2")):
        config[space.columns["ahead", "e"]] = values.index(size)
        made = emit(replay(space.compute, space.schedule(config), ZEN4)).text
        asked = {x.split("i32 ")[2][0] for x in made.splitlines() if "call void @llvm.pref" in x}
        assert asked == {cache}


@pytest.mark.parametrize(("cache", "locality"), [(1, "3"), (2, "2")])
def test_requests_go_to_the_cache_that_the_schedule_names(cache: int, locality: str) -> None:
    for compute in (softmax(8192, 768), softmax(512, 1024)):
        assert localities(compute, ZEN4, cache) == {locality}
        named = asking_for(compute, ZEN4, cache)
        assert Schedule.from_json(named.to_json()) == named
        found = zen4(compute).locate(named)
        assert found is not None
        assert zen4(compute).schedule(found) == asking_for(compute, ZEN4, 0)


def test_records_without_the_cache_of_a_request_are_those_that_leave_it_to_the_rule() -> None:
    made = asking_for(softmax(8192, 768), ZEN4, 0)
    asked = [step for step in json.loads(made.to_json())["steps"] if step[0] == "Ahead"]
    assert asked and all(len(step) == 4 for step in asked)
    assert Schedule.from_json(made.to_json()) == made
    told = made.to_json().replace(json.dumps(asked[0]).replace(" ", ""), '["Ahead","x","y",64,"2"]')
    with pytest.raises(ScheduleError, match="takes as cache a value of type"):
        Schedule.from_json(told)


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
