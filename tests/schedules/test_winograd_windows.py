"""Which windows Winograd's algorithm takes: the compute and the oracle must say the same."""

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from hlotune.codegen.build import build
from hlotune.hlo.canonical import graph_of
from hlotune.hlo.oracle import Oracle, OracleInTiles, boxes, evaluation
from hlotune.hlo.oracle.convolution import Convolution
from hlotune.hlo.oracle.request import Request
from hlotune.hlo.oracle.tiles import steps_of
from hlotune.hlo.to_compute.contractions import CONTRACTIONS
from hlotune.measure.machine.targets import host_target
from hlotune.measure.verification.references import References
from hlotune.measure.verification.verify import Verdict, verify
from hlotune.schedules.algorithms.winograd.algorithms import winograd_spaces
from hlotune.schedules.algorithms.winograd.rewriting import window
from tests.support.computes import Case, whole

LAYOUTS = ("N{}C {}IO", "NC{} OI{}", "C{}N I{}O", "{}NC {}OI")


def strided(
    *axes: tuple[int, int, int, int, int, int], channels: int = 3, features: int = 8,
    layout: str = LAYOUTS[0],
) -> Case:  # fmt: skip
    """A convolution; of each axis extent, taps, stride, spread, padding before and behind."""
    letters = "DHW"[-len(axes) :]
    data, taps = (s.format(letters) for s in layout.split())
    extents = dict(zip(letters, (a[0] for a in axes), strict=True))
    window = dict(zip(letters, (a[1] for a in axes), strict=True))
    x = whole(*({"N": 1, "C": channels, **extents}[c] for c in data))
    w = whole(*({"I": channels, "O": features, **window}[c] for c in taps), seed=1)

    def function(x: Any, w: Any) -> Any:
        strides, spread, pads = ([*z] for z in zip(*((a[2], a[3], a[4:]) for a in axes)))  # noqa: B905
        return lax.conv_general_dilated(
            x, w, strides, pads, rhs_dilation=spread, dimension_numbers=(data, taps, data)
        )

    return Case(f"{layout} {axes} {channels}->{features}", function, (x, w))


@st.composite
def any_windows(draw: st.DrawFn) -> Case:
    """Most have three taps, or three steps of their positions."""
    axes = []
    for _ in range(draw(st.integers(1, 3))):
        stride, spread = draw(st.integers(1, 3)), draw(st.sampled_from((1, 1, 2)))
        taps = draw(st.sampled_from((1, 3, 3 * stride, 3 * stride, 4, 6)))
        before, behind = draw(st.integers(0, 2)), draw(st.integers(0, 2))
        covered = (taps - 1) * spread + 1
        axes.append((covered + draw(st.integers(0, 7)), taps, stride, spread, before, behind))
    return strided(
        *axes,
        channels=draw(st.sampled_from((1, 2, 4))),
        features=draw(st.sampled_from((1, 4, 5))),
        layout=draw(st.sampled_from(LAYOUTS)),
    )


def is_known(case: Case, m: int) -> bool:
    """Whether the oracle has a wider bound for F(m, 3), unless all results are of padding alone."""
    references = References(case.kernel)
    plain, wide = (references.case("normal", 0, k).expected[0].reference.bound for k in (0, m))
    assert plain is not None and wide is not None
    return bool((wide > plain).any() or not plain.any())


def tiled_axes(case: Case) -> int:
    """Axes along which the oracle expects tiles."""
    graph = graph_of(case.kernel)
    op = next(op for op in graph.ops if op.name in CONTRACTIONS)
    box = boxes.whole(graph.types[op.results[0]].shape)
    oracle = Oracle(graph, References(case.kernel).case("normal").values)
    return sum(n > 0 for n in steps_of(Convolution(Request(graph, op, box, oracle.value))))


@given(any_windows())
def test_the_bound_of_every_window_that_is_taken_is_known(case: Case) -> None:
    found = window(case.compute)
    if found is not None:
        assert is_known(case, 4)
        assert len(found.pairs) == tiled_axes(case)


@pytest.mark.parametrize(
    "axes",
    (
        ((40, 3, 1, 2, 2, 2), (41, 3, 1, 3, 3, 3)),
        ((9, 3, 1, 1, 1, 1), (20, 3, 1, 1, 1, 1), (21, 3, 1, 1, 1, 1)),
        ((40, 3, 2, 1, 1, 1), (60, 3, 1, 1, 1, 1)),
        ((70, 6, 2, 1, 1, 2), (30, 3, 1, 1, 1, 1)),
    ),
    ids=str,
)
def test_the_bound_of_a_part_is_that_part_of_the_whole_bound(
    axes: tuple[tuple[int, int, int, int, int, int], ...],
) -> None:
    """Parts begin and end inside tiles, and inside the phases of dilated windows."""
    case = strided(*axes, channels=4)
    graph, values = graph_of(case.kernel), References(case.kernel).case("normal").values
    shape = graph.result_types[0].shape
    assert prod(shape) > 4096  # smaller ones are evaluated whole
    box = ((0, 1), *((5, n - 2) for n in shape[1:-1]), (1, 7))
    oracles = (OracleInTiles(Oracle(graph, values), 4) for _ in range(2))
    asked = zip(oracles, (box, boxes.whole(shape)), strict=True)
    part, full = (oracle.region(0, at).bound for oracle, at in asked)
    assert part is not None and full is not None
    np.testing.assert_allclose(part, full[boxes.slices(box)], rtol=1e-5)


def test_bounds_of_large_weights_are_those_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """What bounds need of small weights is made once for all boxes, of large ones for each."""
    case = strided((40, 3, 1, 1, 1, 1), (40, 3, 1, 1, 1, 1), channels=4)
    graph, values = graph_of(case.kernel), References(case.kernel).case("normal").values
    box = ((0, 1), (2, 30), (5, 40), (3, 7))
    shared = OracleInTiles(Oracle(graph, values), 4).region(0, box).bound
    monkeypatch.setattr(evaluation, "MOST_WEIGHTS", 0)
    alone = OracleInTiles(Oracle(graph, values), 4).region(0, box).bound
    assert shared is not None and alone is not None
    np.testing.assert_allclose(shared, alone, rtol=1e-6)


Windows = tuple[tuple[int, int, int, int, int, int], ...]


def in_turn(*windows: Windows) -> list[Any]:
    """Windows with a layout each, one after the other; with the others where tests may be slow."""
    return [
        pytest.param(
            axes, layout, id=f"{axes}-{layout}",
            marks=() if (n - k) % 3 == 0 else pytest.mark.slow,
        )
        for n, axes in enumerate(windows)
        for k, layout in enumerate(LAYOUTS[:3])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("axes", "layout"),
    in_turn(
        ((26, 6, 2, 1, 0, 0),),
        ((26, 6, 2, 1, 1, 2),),
        ((31, 9, 3, 1, 1, 0),),
        ((14, 6, 2, 1, 0, 0), (9, 3, 1, 1, 1, 1)),
        ((14, 6, 2, 1, 2, 2), (15, 6, 2, 1, 0, 1)),
        ((29, 6, 4, 2, 0, 0),),
    ),
)
def test_windows_of_three_steps_are_taken_and_their_results_right(
    axes: Windows, layout: str
) -> None:
    """Six taps of stride two are three taps over pairs of inputs."""
    taken_and_right(axes, layout)


@pytest.mark.parametrize(
    ("axes", "layout"),
    in_turn(
        ((6, 3, 1, 1, 1, 1), (7, 3, 1, 1, 1, 1), (9, 3, 1, 1, 1, 1)),
        ((9, 3, 1, 1, 0, 0), (7, 3, 1, 1, 0, 0), (6, 3, 1, 1, 0, 0)),
        ((7, 3, 2, 1, 1, 1), (7, 3, 1, 1, 1, 0), (9, 3, 1, 1, 1, 1)),
        ((9, 3, 2, 1, 1, 1), (12, 3, 1, 1, 1, 1)),
        ((9, 5, 1, 1, 2, 2), (12, 3, 1, 1, 0, 0)),
        ((12, 3, 1, 2, 1, 1), (13, 3, 1, 2, 2, 2)),
        ((14, 3, 1, 3, 2, 2), (9, 3, 1, 1, 1, 1)),
        ((23, 3, 2, 4, 0, 1),),
    ),
)
def test_windows_with_axes_besides_are_taken_and_their_results_right(
    axes: Windows, layout: str
) -> None:
    """Three axes, a stride along one, or other taps: what is not transformed is summed over.

    Dilated ones have tiles of every second or third position.
    """
    taken_and_right(axes, layout)


def taken_and_right(axes: Windows, layout: str) -> None:
    case, target = strided(*axes, channels=16, layout=layout), host_target()
    spaces = winograd_spaces(case.compute, target)
    assert spaces and is_known(case, 4)
    for space in spaces:
        built = build(case.compute, space.schedule(space.heuristic()), target)
        found = verify(case.kernel, built, thorough=True)
        assert isinstance(found, Verdict), found
        assert found.error < 1
