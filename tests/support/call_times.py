"""Calls of a program's default that take as long as a test says."""

from itertools import count
from types import SimpleNamespace

import pytest

from hlotune.deploy import input_sets


def calls_take(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each call by which the inputs of a check are chosen take so long."""
    ticks_s = count(0.0, seconds)
    clock = SimpleNamespace(perf_counter=lambda: next(ticks_s))
    monkeypatch.setattr(input_sets, "time", clock)
