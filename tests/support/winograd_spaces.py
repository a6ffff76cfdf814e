"""Spaces of Winograd's algorithms, and nests of their configs."""

import numpy as np
from numpy.typing import NDArray

from hlotune.measure.machine.targets import TARGETS
from hlotune.schedules.algorithms.replay import replay
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.space import WinogradSpace
from hlotune.schedules.errors import ScheduleError
from hlotune.schedules.ir.nest import LoopNest
from hlotune.schedules.spaces.space import Configs
from tests.support.computes import named
from tests.support.winograd_cases import windowed

TARGET = TARGETS["znver4"]
CASES = {
    "C2": lambda: named("C2"),
    "C6": lambda: named("C6"),
    "small": lambda: windowed(channels=5, features=40),
    "frozen": lambda: windowed(channels=21, features=19, frozen=True),
    "one axis": lambda: windowed(size=(40,), window=(3,), pads=((1, 1),), features=70),
    "three axes": lambda: windowed(size=(4, 6, 7), window=(3,) * 3, pads=((1, 1),) * 3),
    "deep": lambda: windowed(size=(6, 7), channels=300, features=40),
    "deep and frozen": lambda: windowed(
        size=(4, 5, 6), window=(3,) * 3, pads=((1, 1),) * 3, channels=70, frozen=True
    ),
    "taps": lambda: windowed(
        size=(60, 9), window=(50, 3), pads=((25, 24), (1, 1)), channels=3, features=32
    ),
    "taps and channels": lambda: windowed(
        size=(7, 60, 9), window=(2, 50, 3), pads=((0, 1), (25, 24), (1, 1)), channels=16
    ),
    "dilated": lambda: windowed(size=(12, 13), pads=((2, 2),) * 2, dilation=2),
}


def spaces(name: str) -> tuple[WinogradSpace, ...]:
    found = winograd_spaces(CASES[name]().compute, TARGET)
    assert [s.outputs for s in found] == [2, 4]
    return found


def nest_of(space: WinogradSpace, config: NDArray[np.int32]) -> LoopNest | None:
    try:
        return replay(space.original, space.schedule(config), space.target)
    except ScheduleError:
        return None


def drawn(space: WinogradSpace, n: int, seed: int) -> Configs:
    """Uniform in every knob, register tiles that do not fit among them."""
    rng = np.random.default_rng(seed)
    return rng.integers(space.counts, size=(n, len(space.counts)), dtype=np.int32)
