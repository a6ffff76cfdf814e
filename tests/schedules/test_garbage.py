"""The search for garbage waits while a program is read, and goes on afterwards."""

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from hlotune.hlo.frontends.program import load
from hlotune.schedules.garbage import collected_later

X = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def switched_on() -> Iterator[None]:
    gc.enable()
    yield
    gc.enable()


def test_the_search_is_on_again_behind_an_error() -> None:
    with pytest.raises(ValueError, match="mine"), collected_later():
        assert not gc.isenabled()
        raise ValueError("mine")
    assert gc.isenabled()


def test_what_the_caller_has_switched_off_stays_off() -> None:
    gc.disable()
    with collected_later():
        pass
    assert not gc.isenabled()


def test_a_program_is_read_without_it() -> None:
    seen: list[bool] = []

    def traced(x: np.ndarray) -> np.ndarray:
        seen.append(gc.isenabled())
        return x

    load(traced, X)
    assert seen
    assert not any(seen)
    assert gc.isenabled()
