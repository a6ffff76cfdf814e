"""When the oracle gives up on a program that it would not get through in time."""

from time import perf_counter
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from hlotune.hlo.graph import Graph
from hlotune.hlo.oracle import OutOfTime, pace
from hlotune.hlo.oracle.bounded import Bounded, received
from hlotune.hlo.oracle.boxes import Box, extents, whole
from hlotune.hlo.oracle.evaluation import rule
from hlotune.hlo.oracle.pace import FASTEST, HOPELESS, Pace
from hlotune.hlo.oracle.request import Request
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


def test_it_begins_what_a_product_of_matrices_gets_through_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The products of a dot are those of a matrix of f64 by another, of which none is skipped."""
    ones = np.ones((512, 512))
    times_s = list[float]()
    for _ in range(5):
        start_s = perf_counter()
        ones @ ones
        times_s.append(perf_counter() - start_s)
    graph = graph_of(lambda x: x @ x, [ones.astype(np.float32)])
    assert not gives_up(graph, 0, 0.0, min(times_s), monkeypatch)


def convolved(x: Any) -> Any:
    return jax.lax.conv(x[None, None], x[None, None, :3, :3], (1, 1), "SAME")


def gradient(x: Any) -> Any:
    return jax.lax.conv(x[None, None], x[None, None, :60, :60], (1, 1), "VALID")


def test_products_of_a_convolution_that_lie_in_holes_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def with_holes(x: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x[None, None], x[None, None], (1, 1), [(63, 63), (63, 63)], lhs_dilation=(64, 64)
        )

    assert not gives_up(graph_of(with_holes, [ONES]), 0, 0.0, 1e-9, monkeypatch)


@pytest.mark.parametrize("function", [rounds, convolved, gradient])
def test_long_sums_of_products_end_with_the_time_that_there_is(function: Any) -> None:
    graph = graph_of(lambda x: function(x), [ONES])
    graphs = [graph, *(region for op in graph.ops for region in op.regions)]
    sums = ("stablehlo.dot_general", "stablehlo.convolution")
    ((within, op),) = ((g, op) for g in graphs for op in g.ops if op.name in sums)
    box = whole(within.types[op.results[0]].shape)

    def ones(number: int, box: Box) -> Bounded:
        return received(np.ones(extents(box), np.float32), "f32")

    rule(op)(Request(within, op, box, ones))
    with pytest.raises(OutOfTime):
        rule(op)(Request(within, op, box, ones, deadline_s=0.0))


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
