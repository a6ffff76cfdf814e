"""What the oracle says of bounds, exactness and regions, and how it compares."""

import resource
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.graph import Graph, Op, TensorType
from hlotune.hlo.oracle import (
    Mismatch,
    Oracle,
    OracleInTiles,
    Reference,
    compare,
    evaluate,
    rms_error,
)
from hlotune.hlo.oracle.boxes import Box, elements, whole
from hlotune.hlo.oracle.regions import regions_to_check
from hlotune.schedules.errors import UnsupportedKernel
from tests.support.oracle_cases import (
    Array,
    Function,
    conv,
    graph_of,
    normal,
)


def test_rms_error_is_relative_to_the_size_of_the_values() -> None:
    reference = Reference(np.array([3.0, 4.0, np.inf]), np.ones(3), False)
    assert rms_error(reference, np.array([3.0, 4.5, 0.0], np.float32)) == pytest.approx(0.1)


def test_a_value_is_itself_however_inexact_unless_it_may_be_no_number() -> None:
    def cleaned(x: Any) -> Any:
        root = jnp.sqrt(jnp.sum(x, -1))
        return jnp.where(root != root, 0.0, root)

    x = normal(1, 8, 3)
    graph = graph_of(cleaned, [x])
    (sure,) = evaluate(graph, [np.abs(x) + 0.1])
    assert sure.bound is not None and np.isfinite(sure.bound).all() and sure.bound.all()
    (negative,) = evaluate(graph, [-np.abs(x) - 0.1])
    np.testing.assert_array_equal(negative.value, 0.0)


def test_sums_that_the_type_cannot_hold_are_not_called_exact() -> None:
    x = np.full((4, 3), 2.0**23, np.float32)
    (reference,) = evaluate(graph_of(lambda x: x.sum(1), [x]), [x])
    assert not reference.exact


def test_element_on_a_comparison_inside_its_error_is_not_compared() -> None:
    def hung(a: Any, b: Any) -> Any:
        return jnp.where(a @ b > 0, 1.0, 0.0)

    a, b = np.array([[0.1, 0.2, -0.3]], np.float32), np.array([[1, 3], [1, 3], [1, 0]], np.float32)
    (reference,) = evaluate(graph_of(hung, [a, b]), [a, b])
    assert reference.bound is not None
    assert np.isinf(reference.bound).tolist() == [[True, False]]
    assert reference.uncompared == 0.5


def test_bound_is_never_below_one_rounding() -> None:
    x = normal(13, 50)
    (reference,) = evaluate(graph_of(lambda x: -x, [x]), [x])
    assert reference.bound is not None
    np.testing.assert_array_equal(reference.bound, 2.0**-23 * np.abs(x.astype(np.float64)))


def test_nan_agrees_with_nan_and_infinity_with_its_own_sign() -> None:
    value = np.array([np.nan, np.inf, -np.inf, 0.0])
    reference = Reference(value, np.zeros(4), False)
    assert (
        compare(reference, np.array([np.nan, np.inf, -np.inf, -0.0], "f4"), factor=1, exact=True)
        is None
    )
    wrong = compare(reference, np.array([1, -np.inf, -np.inf, np.nan], "f4"), factor=1, exact=False)
    assert wrong is not None and wrong.wrong == 3


def test_mismatch_says_where_and_how_far() -> None:
    reference = Reference(np.array([[1.0, 2.0]]), np.array([[0.5, 0.5]]), False)
    wrong = compare(reference, np.array([[1.0, 4.0]], np.float32), factor=1, exact=False)
    assert wrong == Mismatch((0, 1), 2.0, 4.0, 4.0, 1, 2, 0.0)
    assert str(wrong) == (
        "1 of 2 elements wrong, worst at (0, 1): expected 2, got 4, off by 4 times the bound "
        "(0.0% not compared)"
    )


def test_compare_refuses_another_shape() -> None:
    reference = Reference(np.zeros(3), np.zeros(3), True)
    with pytest.raises(ValueError, match="expected an output of shape"):
        compare(reference, np.zeros(4, np.float32), factor=1, exact=True)


def test_unknown_operation_is_named() -> None:
    kind = TensorType((2,), "f32")
    graph = Graph((kind, kind), (0,), (Op("stablehlo.mystery", (0,), (1,)),), (1,))
    with pytest.raises(UnsupportedKernel, match=r"got stablehlo\.mystery"):
        evaluate(graph, [np.zeros(2, np.float32)])


def test_regions_reach_all_corners_and_borders() -> None:
    shape = (7, 40, 50)
    graph = Graph((TensorType(shape, "f32"),), (0,), (), (0,))
    oracle = Oracle(graph, [np.zeros(shape, np.float32)])
    boxes = oracle.regions_to_check(0, np.random.default_rng(0), 2000)
    corners: list[Box] = [
        tuple((n - 1, n) if end else (0, 1) for n, end in zip(shape, ends, strict=True))
        for ends in np.ndindex(2, 2, 2)
    ]
    assert all(any(contains(box, corner) for box in boxes) for corner in corners)
    assert sum(elements(box) for box in boxes) <= 2000
    assert all(contains(whole(shape), box) for box in boxes)
    assert oracle.regions_to_check(0, np.random.default_rng(0), 14000) == [whole(shape)]


def test_few_regions_are_the_outermost_corners_and_blocks_in_between() -> None:
    shape, rng = (3, 3, 64, 40), np.random.default_rng(0)
    boxes = regions_to_check(shape, rng, 600, most_boxes=6)
    first, last = (tuple((0, 1) for _ in shape), tuple((n - 1, n) for n in shape))
    assert contains(boxes[0], first)
    assert contains(boxes[1], last)
    assert 3 <= len(boxes) <= 6
    assert sum(elements(box) for box in boxes) <= 600
    assert all(contains(whole(shape), box) for box in boxes)
    assert regions_to_check(shape, rng, 3 * 3 * 64 * 40, most_boxes=6) == [whole(shape)]


@pytest.mark.parametrize("dimension", [2, 3])
def test_few_regions_reach_every_place_of_the_two_longest_dimensions(dimension: int) -> None:
    shape = (3, 3, 64, 80)
    for seed in range(20):
        boxes = regions_to_check(shape, np.random.default_rng(seed), 600, most_boxes=6)
        assert (0, shape[dimension]) in [box[dimension] for box in boxes]


def contains(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["convolution", "dot", "softmax"])
def test_boxes_of_large_kernels_take_little_time_and_memory(kind: str) -> None:
    functions: dict[str, tuple[Function, list[Array]]] = {
        "convolution": (conv, [normal(0, 1, 224, 224, 64), normal(1, 3, 3, 64, 64)]),
        "dot": (lambda a, b: a @ b, [normal(0, 4096, 4096), normal(1, 4096, 4096)]),
        "softmax": (jax.nn.softmax, [normal(0, 4096, 4096)]),
    }
    function, arguments = functions[kind]
    oracle = Oracle(graph_of(function, arguments), arguments)
    boxes = oracle.regions_to_check(0, np.random.default_rng(0), 65536)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    for box in boxes:
        oracle.region(0, box)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (time.perf_counter() - start) / len(boxes) < 2
    assert grown_kib < 1 << 20


def test_bounds_of_tiles_go_from_one_convolution_into_the_next() -> None:
    def layer(x: Any, w: Any) -> Any:
        return jnp.tanh(conv(x, w))

    x, w = normal(0, 1, 8, 8, 4), normal(1, 3, 3, 4, 4)
    box = ((0, 1), (1, 7), (0, 8), (0, 4))
    two = Oracle(graph_of(lambda x, w: layer(layer(x, w), w), [x, w]), [x, w])
    plain, tiles = two.region(0, box), OracleInTiles(two, 4).region(0, box)
    between = np.asarray(evaluate(graph_of(layer, [x, w]), [x, w])[0].value, np.float32)
    one = Oracle(graph_of(layer, [between, w]), [between, w])
    alone = OracleInTiles(one, 4).region(0, box)
    np.testing.assert_array_equal(tiles.value, plain.value)
    assert plain.bound is not None and tiles.bound is not None and alone.bound is not None
    assert (tiles.bound >= plain.bound).all()
    assert (tiles.bound > alone.bound).mean() > 0.99


def test_a_bound_of_tiles_that_is_no_number_is_unknown() -> None:
    x, w = normal(0, 1, 8, 8, 4), normal(1, 3, 3, 4, 4)
    x[0, 3, 3] = np.inf
    graph, box = graph_of(conv, [x, w]), ((0, 1), (0, 8), (0, 8), (0, 4))
    bound = OracleInTiles(Oracle(graph, [x, w]), 2).region(0, box).bound
    assert bound is not None
    assert not np.isnan(bound).any()
    assert np.isinf(bound[0, 2:5, 2:5]).all()


def test_integers_whose_products_float_do_not_wrap() -> None:
    def product(a: Any, b: Any) -> Any:
        return jnp.matmul(a, b, preferred_element_type=jnp.float32)

    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, (16, 16)).astype(np.int8) for _ in range(2))
    found = Oracle(graph_of(product, [a, b]), [a, b]).region(0, ((0, 16), (0, 16)))
    np.testing.assert_array_equal(found.value, a.astype(np.float64) @ b.astype(np.float64))
    assert found.exact
