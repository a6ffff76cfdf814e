"""Schedules as data: JSON there and back, and JSON that is none."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.steps.schedule import DEFAULT, Schedule
from hlotune.schedules.steps.steps import Pack, Split
from tests.support.computes import SMALL, named

TARGET = TARGETS["znver4"]


@given(st.sampled_from(SMALL), st.integers(0, 2**32))
def test_a_schedule_survives_json(name: str, seed: int) -> None:
    space = named(name).space(TARGET)
    for config in space.sample(4, np.random.default_rng(seed)):
        schedule = space.schedule(config)
        assert Schedule.from_json(schedule.to_json()) == schedule


def test_json_is_one_line_of_names_and_numbers() -> None:
    schedule = Schedule(
        "direct", (Split("out", "i0", (14, 7)), Pack("c", "a1", "", "load", ((1, 8),), 8))
    )
    assert schedule.to_json() == (
        '{"algorithm":"direct","steps":[["Split","out","i0",[14,7]],["Pack","c","a1","","load",[[1,8]],8]]}'
    )


def test_the_default_has_no_steps() -> None:
    assert DEFAULT.to_json() == '{"algorithm":"xla","steps":[]}'
    assert Schedule.from_json(DEFAULT.to_json()) == DEFAULT


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", '"direct"', "{}", '{"algorithm":"direct"}', '{"steps":[]}',
        '{"algorithm":"direct","steps":7}',
        '{"algorithm":"direct","steps":[[]]}',
        '{"algorithm":"direct","steps":[7]}',
        '{"algorithm":"direct","steps":[["Explode","out","i0"]]}',
        '{"algorithm":"direct","steps":[["Split","out"]]}',
        '{"algorithm":"direct","steps":[["Split","out","i0",[2],3]]}',
        '{"algorithm":"direct","steps":[["Split","out","i0",[2]]',
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_with_its_beginning(text: str) -> None:
    wanted = f"expected the JSON of a schedule of this version, got {re.escape(repr(text))}"
    with pytest.raises(ScheduleError, match=wanted):
        Schedule.from_json(text)


def test_a_long_text_is_cut_in_the_message() -> None:
    with pytest.raises(ScheduleError) as found:
        Schedule.from_json("x" * 10_000)
    assert len(str(found.value)) < 300


@pytest.mark.parametrize("algorithm", ["xla", "winograd", ""])
def test_an_algorithm_without_a_nest_is_refused(algorithm: str) -> None:
    known = r".*direct, .*winograd\(2\).*"
    wanted = rf"expected an algorithm of {known}, got '{algorithm}': no nest to make"
    with pytest.raises(ScheduleError, match=wanted):
        replay(named("small gemm").compute, Schedule(algorithm), TARGET)


@pytest.mark.parametrize(
    "values",
    [
        '1,"i0",[2]',
        '"out",1,[2]',
        '"out","i0",2',
        '"out","i0",["2"]',
        '"out","i0",[1.5]',
        '"out","i0",[true]',
    ],
)
def test_a_step_with_values_of_other_types_is_refused(values: str) -> None:
    text = f'{{"algorithm":"direct","steps":[["Split",{values}]]}}'
    with pytest.raises(ScheduleError, match="expected the JSON of a schedule of this version"):
        Schedule.from_json(text)
