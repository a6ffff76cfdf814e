"""When the oracle gives up on a program that it would not get through in time."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.hlo.graph import Graph
from hlotune.hlo.oracle import OutOfTime, pace
from hlotune.hlo.oracle.pace import FASTEST, HOPELESS, Pace
from tests.support.oracle_cases import graph_of

ONES = np.ones((64, 64), np.float32)


def products(x: Any) -> Any:
    for _ in range(8):
        x = x @ x
    return x


def rounds(x: Any) -> Any:
    return jax.lax.fori_loop(0, 8, lambda _, y: y @ y, x)


def gives_up(
    graph: Graph, position: int, spent_s: float, limit_s: float, patch: pytest.MonkeyPatch
) -> bool:
    now_s = [0.0]
    patch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    look = Pace(graph, limit_s).look
    now_s[0] = spent_s
    try:
        look(position)
    except OutOfTime:
        return True
    return False


def test_the_oracle_gives_up_where_an_eighth_takes_half_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of(products, [ONES])
    assert gives_up(graph, 1, 5.0, 10.0, monkeypatch)
    assert not gives_up(graph, 4, 5.0, 10.0, monkeypatch), "it may take as long as it has"
    assert not gives_up(graph, 1, 0.5, 10.0, monkeypatch), "it is too early to tell"
    assert not gives_up(graph, 0, 5.0, 10.0, monkeypatch), "nothing is known yet"


def test_it_does_not_begin_what_takes_far_longer_than_there_is_time_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of(products, [ONES])
    least_s = 8 * 64**3 / FASTEST
    assert gives_up(graph, 0, 0.0, 0.9 * least_s / HOPELESS, monkeypatch)
    assert not gives_up(graph, 0, 0.0, 1.1 * least_s / HOPELESS, monkeypatch)


def test_the_earlier_it_is_the_more_hopeless_it_has_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hundred(x: Any) -> Any:
        for _ in range(100):
            x = x @ x
        return x

    graph = graph_of(hundred, [ONES])
    assert gives_up(graph, 1, 0.5, 10.0, monkeypatch), "it would take five times as long"
    assert not gives_up(graph, 1, 0.3, 10.0, monkeypatch), "it would take three times as long"
    assert not gives_up(graph, 1, 0.1, 1000.0, monkeypatch), "what is done once is most of that"


def test_of_loops_nobody_knows_how_long_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of(rounds, [ONES])
    assert not gives_up(graph, 1, 9.0, 10.0, monkeypatch)


def test_windows_take_as_long_as_they_have_taps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums of 64 elements each are most of the work ahead of 32 elementwise operations."""

    def pooled(x: Any) -> Any:
        for _ in range(2):
            x = jax.lax.reduce_window(x, 0.0, jax.lax.add, (8, 8), (1, 1), "SAME")
        for _ in range(32):
            x = jax.numpy.sin(x)
        return x

    graph = graph_of(pooled, [ONES])
    behind = 1 + max(n for n, op in enumerate(graph.ops) if op.name == "stablehlo.reduce_window")
    assert not gives_up(graph, behind, 8.0, 10.0, monkeypatch), "two thirds of the work are done"
    assert gives_up(graph, behind, 14.0, 10.0, monkeypatch)
