"""Inputs that are neighbours, while the lanes of each lie apart: rows, turned in registers."""

from dataclasses import replace
from typing import Any

import pytest

from hlotune.codegen.build import build
from hlotune.codegen.llvm.emit import emit
from hlotune.measure.machine.targets import TARGETS, host_target
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.cpu import CpuTarget
from tests.support.computes import Case
from tests.support.winograd_cases import windowed

AVX512 = TARGETS["znver4"]


def channels_first(*, size: tuple[int, ...] = (9, 11), channels: int = 16, **how: Any) -> Case:
    return windowed(
        size=size, channels=channels, window=(3,) * len(size), pads=((1, 1),) * len(size),
        layout="NCHW OIHW", **how,
    )  # fmt: skip


def first(case: Case, m: int, target: CpuTarget) -> Schedule:
    space = next(s for s in winograd_spaces(case.compute, target, fast=True) if s.outputs == m)
    return space.schedule(space.heuristic())


def written(case: Case, m: int, target: CpuTarget = AVX512) -> str:
    return emit(replay(case.compute, first(case, m, target), target)).text


@pytest.mark.parametrize("m", [2, 4, 6])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("znver4", "float32"),
        ("znver4", "float64"),
        ("x86-64-v3", "float32"),
        ("x86-64-v3", "float64"),
        ("x86-64", "float32"),
        ("aarch64", "float32"),
    ],
)
def test_inputs_and_taps_with_channels_first_are_read_without_gathers(
    name: str, dtype: str, m: int
) -> None:
    """Vectors of 16, of 8 and of 4 are turned; a tile has 4, 6 or 8 inputs in a row."""
    assert "gather" not in written(channels_first(dtype=dtype), m, TARGETS[name])


def test_of_channels_that_do_not_fill_a_vector_those_that_there_are_are_read() -> None:
    text = written(channels_first(channels=5), 4)
    assert "gather" not in text
    assert text.count("masked.load.v8f32") < written(channels_first(), 4).count("masked.load.v8f32")


@pytest.mark.parametrize(
    ("channels", "frozen"),
    [
        *((n, False) for n in (5, 16, 19, 40)),
        (19, True),
        *(pytest.param(n, True, marks=pytest.mark.slow) for n in (5, 16, 40)),
    ],
)
@pytest.mark.parametrize("m", [2, 4, 6])
def test_what_is_turned_is_right_at_all_borders(m: int, channels: int, frozen: bool) -> None:
    case, target = channels_first(channels=channels, frozen=frozen), host_target()
    built = build(case.compute, first(case, m, target), target)
    found = verify(case.kernel, built, numerics="fast", thorough=True)
    assert isinstance(found, Verdict), found


@pytest.mark.parametrize("m", [2, 4, 6])
def test_what_is_turned_in_parts_is_right(m: int) -> None:
    """Vectors have four lanes, whatever this machine has."""
    host = host_target()
    narrow = replace(host, features=tuple(x for x in host.features if not x.startswith("avx")))
    assert narrow.vector_bytes == 16
    case = channels_first(channels=19)
    built = build(case.compute, first(case, m, narrow), narrow)
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
