"""Inputs that are neighbours, while the lanes of each lie apart: rows, turned in registers."""

import pytest

from hlotune.codegen.build import build
from hlotune.codegen.emit import emit
from hlotune.measure.targets import TARGETS, host_target
from hlotune.measure.verify import Verdict, verify
from hlotune.schedules.replay import replay
from hlotune.schedules.schedule import Schedule
from hlotune.schedules.spaces import winograd_spaces
from hlotune.schedules.target import Target
from tests.computes import Case
from tests.winograd_cases import windowed

AVX512 = TARGETS["znver4"]


def channels_first(*, size: tuple[int, ...] = (9, 11), channels: int = 16, **how: bool) -> Case:
    return windowed(
        size=size, channels=channels, window=(3,) * len(size), pads=((1, 1),) * len(size),
        layout="NCHW OIHW", **how,
    )  # fmt: skip


def first(case: Case, m: int, target: Target) -> Schedule:
    space = next(s for s in winograd_spaces(case.compute, target, fast=True) if s.outputs == m)
    return space.schedule(space.heuristic())


def written(case: Case, m: int) -> str:
    return emit(replay(case.compute, first(case, m, AVX512), AVX512)).text


@pytest.mark.parametrize("m", [2, 4, 6])
def test_inputs_and_taps_with_channels_first_are_read_without_gathers(m: int) -> None:
    assert "gather" not in written(channels_first(), m)


def test_of_channels_that_do_not_fill_a_vector_those_that_there_are_are_read() -> None:
    text = written(channels_first(channels=5), 4)
    assert "gather" not in text
    assert text.count("masked.load.v8f32") < written(channels_first(), 4).count("masked.load.v8f32")


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("channels", [5, 16, 19, 40])
@pytest.mark.parametrize("m", [2, 4, 6])
def test_what_is_turned_is_right_at_all_borders(m: int, channels: int, frozen: bool) -> None:
    case, target = channels_first(channels=channels, frozen=frozen), host_target()
    built = build(case.compute, first(case, m, target), target)
    found = verify(case.kernel, built, numerics="fast", thorough=True)
    assert isinstance(found, Verdict), found


@pytest.mark.parametrize("size", [(13,), (7, 8), (5, 6, 7)])
def test_lines_planes_and_volumes_are_right(size: tuple[int, ...]) -> None:
    case, target = channels_first(size=size, channels=17), host_target()
    built = build(case.compute, first(case, 4, target), target)
    found = verify(case.kernel, built, thorough=True)
    assert isinstance(found, Verdict), found


def test_channels_last_have_nothing_to_turn() -> None:
    """Lanes that are neighbours are read as they lie."""
    assert "masked.load.v8f32" not in written(windowed(channels=16, features=16), 4)
