"""Dots and convolutions of every form, and kernels of them that are wrong on purpose."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlotune.hlo.graph import Graph, Op
from hlotune.hlo.oracle import (
    compare,
    convolution,
    evaluate,
)
from hlotune.hlo.oracle.boxes import run
from hlotune.hlo.oracle.convolution import Convolution
from tests.support.oracle_cases import (
    Array,
    conv,
    graph_of,
    lax,
    mismatches,
    normal,
    regions_equal_the_whole,
    small,
)


@st.composite
def dots(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Shapes and dimension numbers of a dot_general, dimensions in any order."""
    sides: dict[str, list[tuple[str, int]]] = {"left": [], "right": []}
    for kind, most in (("batch", 2), ("terms", 2), ("left", 2), ("right", 2)):
        for i in range(draw(st.integers(0, most))):
            extent = draw(st.integers(1, 5))
            for side in ("left", "right"):
                if kind in ("batch", "terms", side):
                    sides[side].append((f"{kind}{i}", extent))
    left, right = (draw(st.permutations(sides[s])) for s in ("left", "right"))
    names = [[n for n, _ in left], [n for n, _ in right]]
    shared = {k: [n for n in names[0] if n.startswith(k)] for k in ("batch", "terms")}
    numbers = tuple(
        tuple(tuple(side.index(n) for n in shared[kind]) for side in names)
        for kind in ("terms", "batch")
    )
    return tuple(e for _, e in left), tuple(e for _, e in right), numbers


@given(dots(), st.booleans())
def test_dot_of_any_form_is_exact_on_small_integers(
    form: tuple[tuple[int, ...], tuple[int, ...], Any], narrow: bool
) -> None:
    left, right, numbers = form

    def function(a: Any, b: Any) -> Any:
        return lax.dot_general(a, b, numbers, preferred_element_type=jnp.float32)

    kind = ml_dtypes.bfloat16 if narrow else np.float32
    arguments = small(1, *left).astype(kind), small(2, *right).astype(kind)
    assert all(r.exact for r in evaluate(graph_of(function, arguments), arguments))
    assert not mismatches(function, *arguments, exact=True)
    regions_equal_the_whole(function, *arguments, limit=8)


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes and attributes of a convolution; its layouts are permutations."""
    rank = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["plain", "feature", "batch"]))
    groups = draw(st.integers(2, 3)) if kind != "plain" else 1

    def several(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    batch = draw(st.integers(0, 2)) * (groups if kind == "batch" else 1)
    channels, features = draw(st.integers(0, 3)), draw(st.integers(1, 3)) * groups
    inputs = (batch, channels * (groups if kind == "feature" else 1), *several(3, 6))
    kernel = (features, channels, *several(1, 3))
    orders = [tuple(draw(st.permutations(range(rank + 2)))) for _ in range(3)]
    attributes = {
        "window_strides": several(1, 3),
        "padding": list(zip(several(0, 3), several(0, 3), strict=True)),
        "lhs_dilation": several(1, 3),
        "rhs_dilation": several(1, 2),
        "dimension_numbers": lax.ConvDimensionNumbers(*orders),
        "feature_group_count": groups if kind == "feature" else 1,
        "batch_group_count": groups if kind == "batch" else 1,
    }
    shapes = [
        tuple(shape[order.index(d)] for d in range(rank + 2))
        for shape, order in zip((inputs, kernel), orders, strict=False)
    ]
    return shapes[0], shapes[1], attributes


@given(convolutions())
@settings(max_examples=40)
def test_convolution_of_any_form_is_exact_on_small_integers(
    form: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]],
) -> None:
    inputs, kernel, attributes = form

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, **attributes)

    x, w = small(1, *inputs), small(2, *kernel)
    (reference,) = evaluate(graph_of(function, [x, w]), [x, w])
    expected = by_taps(x, w, attributes)
    assert reference.exact
    assert compare(reference, expected, factor=1, exact=True) is None
    regions_equal_the_whole(function, x, w, limit=8)


@given(convolutions())
@settings(max_examples=25)
def test_convolutions_of_few_outputs_are_the_same_sums_in_pieces(
    form: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]],
) -> None:
    inputs, kernel, attributes = form

    def function(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, **attributes)

    x, w = normal(1, *inputs), normal(2, *kernel)
    graph = graph_of(function, [x, w])
    (by_tap,) = evaluate(graph, [x, w])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Convolution, "has_few_outputs", lambda self, features: True)
        patch.setattr(convolution, "ROW_ELEMENTS", 5)
        (by_output,) = evaluate(graph, [x, w])
    assert by_tap.bound is not None and by_output.bound is not None
    np.testing.assert_allclose(by_output.value, by_tap.value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_output.bound, by_tap.bound, rtol=1e-3)


def by_taps(x: Array, w: Array, attributes: dict[str, Any]) -> Array:
    """A convolution element by element, from its definition."""
    numbers = attributes["dimension_numbers"]
    x, w = x.transpose(numbers.lhs_spec), w.transpose(numbers.rhs_spec)
    rank = x.ndim - 2
    holes = attributes["lhs_dilation"]
    spread = np.zeros(
        (*x.shape[:2], *((n - 1) * d + 1 for n, d in zip(x.shape[2:], holes, strict=True)))
    )
    every: tuple[Any, ...] = (..., *(slice(None, None, d) for d in holes))
    spread[every] = x
    spread = np.pad(spread, [(0, 0), (0, 0), *attributes["padding"]])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], attributes["rhs_dilation"], strict=True)]
    sizes = [
        max(0, (n - r) // s + 1)
        for n, r, s in zip(spread.shape[2:], reach, attributes["window_strides"], strict=True)
    ]
    feature_groups, batch_groups = (
        attributes["feature_group_count"],
        attributes["batch_group_count"],
    )
    batch, features = x.shape[0] // batch_groups, w.shape[0]
    result = np.zeros((batch, features, *sizes))
    for o in range(features):
        group = o // (features // (feature_groups * batch_groups))
        channel = group * w.shape[1] if feature_groups > 1 else 0
        first = group * batch if batch_groups > 1 else 0
        for place in np.ndindex(*sizes):
            starts = [p * s for p, s in zip(place, attributes["window_strides"], strict=True)]
            window = tuple(
                slice(a, a + r, d)
                for a, r, d in zip(starts, reach, attributes["rhs_dilation"], strict=True)
            )
            patch = spread[
                (slice(first, first + batch), slice(channel, channel + w.shape[1]), *window)
            ]
            result[(slice(None), o, *place)] = (patch * w[o]).sum(axis=tuple(range(1, rank + 2)))
    return result.transpose(np.argsort(numbers.out_spec)).astype(np.float32)


def test_window_reversal_turns_the_kernel_round() -> None:
    x, w = small(1, 1, 2, 6, 5), small(2, 3, 2, 3, 2)
    straight = graph_of(lambda x, w: lax.conv(x, w, (1, 1), "VALID"), [x, w])
    (op,) = straight.ops
    attributes = tuple(sorted((dict(op.attributes) | {"window_reversal": (True, True)}).items()))
    turned = Graph(
        straight.types,
        straight.arguments,
        (Op(op.name, op.operands, op.results, attributes),),
        straight.results,
    )
    (expected,) = evaluate(straight, [x, w[:, :, ::-1, ::-1]])
    (got,) = evaluate(turned, [x, w])
    np.testing.assert_array_equal(got.value, expected.value)


@given(
    st.integers(0, 3), st.integers(1, 8), st.integers(1, 4), st.integers(-6, 6), st.integers(1, 4),
    st.integers(0, 6),
)  # fmt: skip
def test_run_lists_exactly_the_outputs_that_read_a_real_input(
    low: int, length: int, stride: int, offset: int, dilation: int, extent: int
) -> None:
    expected = [
        (o - low, (o * stride + offset) // dilation)
        for o in range(low, low + length)
        if (o * stride + offset) % dilation == 0 and 0 <= (o * stride + offset) // dilation < extent
    ]
    found = run(low, low + length, stride, offset, dilation, extent)
    outputs = np.arange(length)[found.outputs].tolist() if found else []
    inputs = np.arange(extent)[found.inputs(0)].tolist() if found else []
    assert list(zip(outputs, inputs, strict=True)) == expected


def test_bound_covers_f32_sums_in_any_order() -> None:
    a, b = normal(7, 16, 2000), normal(8, 2000, 16)
    (reference,) = evaluate(graph_of(lambda a, b: a @ b, [a, b]), [a, b])
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(2000)
        products = a[:, order, None] * b[None, order]
        in_sequence = np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1]
        assert compare(reference, in_sequence, factor=1, exact=False) is None


def faulty_convolutions(x: Array, w: Array) -> dict[str, Array]:
    lost, term = w.copy(), w.copy()
    lost[2, 2] = 0
    term[0, 0, 3] = 0
    swapped = w[:, :, [1, 0, *range(2, w.shape[2])]]
    return {
        "lost last tap": np.asarray(conv(x, lost)),
        "lost term": np.asarray(conv(x, term)),
        "swapped channels": np.asarray(conv(x, swapped)),
        "padding off by one": np.asarray(conv(x, w, ((0, 2), (1, 1)))),
    }


@pytest.mark.parametrize("inputs", [normal, small])
@pytest.mark.parametrize(
    "fault", ["lost last tap", "lost term", "swapped channels", "padding off by one"]
)
def test_faulty_convolution_is_caught(inputs: Callable[..., Array], fault: str) -> None:
    x, w = inputs(9, 2, 8, 8, 32), inputs(10, 3, 3, 32, 16)
    (reference,) = evaluate(graph_of(conv, [x, w]), [x, w])
    assert compare(reference, np.asarray(conv(x, w)), factor=1, exact=reference.exact) is None
    wrong = compare(reference, faulty_convolutions(x, w)[fault], factor=8, exact=reference.exact)
    assert wrong is not None and wrong.wrong > 1


def test_bf16_accumulator_is_caught() -> None:
    a, b = (normal(s, 64, 64).astype(ml_dtypes.bfloat16) for s in (11, 12))
    arguments = [a, b]
    graph = graph_of(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32), arguments)
    (reference,) = evaluate(graph, arguments)
    total = np.zeros((64, 64), ml_dtypes.bfloat16)
    for k in range(64):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    assert compare(reference, total.astype(np.float32), factor=8, exact=False) is not None
