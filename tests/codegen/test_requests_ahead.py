"""What first candidates ask for ahead, how far, and into which cache."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.row_kernels import (
    OF_ROWS,
    argmax,
    layer_norm,
    log_softmax,
    residual_relu,
    softmax,
    transpose,
)
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.compute import Axis, Compute, Stage, Store, Tensor
from hlotune.schedules.ir.expr import Affine, Apply, Load
from hlotune.schedules.spaces.cpu_rows.space import RowsSpace, space_of
from hlotune.schedules.spaces.cpu_rows.streams import AHEAD_BYTES, ROWS_AHEAD, SHORT_AHEAD
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.steps.steps import Ahead, Step
from hlotune.schedules.targets.cpu import CpuTarget
from tests.codegen.test_streaming import text, zen4

ZEN4 = TARGETS["znver4"]
FAR = tuple(n for n in AHEAD_BYTES if n > SHORT_AHEAD)


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
