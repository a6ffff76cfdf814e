"""Every element of a large result is compared, by sums that random integers weigh."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from numpy.typing import NDArray

from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Oracle
from hlotune.hlo.oracle.projection import longest_dimension, projected, way_of, weighed
from hlotune.hlo.sites.sites import sites
from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.deviation import largest_error
from hlotune.measure.verification.references import References
from hlotune.measure.verification.whole_sums import whole_sums
from hlotune.schedules.errors import WrongResult
from hlotune.schedules.targets.target import F32Operands
from tests.support.oracle_cases import graph_of, normal

Results = list[NDArray[Any]]
NHWC = ("NHWC", "HWIO", "NHWC")
NCHW = ("NCHW", "OIHW", "NCHW")
PLACES = 150
"""Where each fault is planted.  Missing one of a hundred would show with 78 %; one is too many."""


def zeros(*shape: int, kind: Any = np.float32) -> Any:
    return np.zeros(shape, kind)


def convolved(x: Any, w: Any, layout: Any = NHWC, **options: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout, **options)


def gradient(x: Any, w: Any, g: Any) -> Any:
    return jax.vjp(lambda w: convolved(x, w), w)[1](g)[0]


def normalized(x: Any, w: Any, mean: Any, variance: Any, scale: Any, shift: Any) -> Any:
    y = (convolved(x, w) - mean) * (lax.rsqrt(variance + 1e-5) * scale) + shift
    return jnp.maximum(y, 0.0)


IMAGE, WEIGHTS = zeros(2, 40, 40, 16), zeros(3, 3, 16, 32)
LONG = (zeros(16, 28, 28, 64), zeros(3, 3, 64, 64), zeros(16, 28, 28, 64))
B16 = jnp.bfloat16
KERNELS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a product": (jnp.dot, (zeros(300, 200), zeros(200, 400))),
    "a product in bf16": (jnp.dot, (zeros(300, 200, kind=B16), zeros(200, 400, kind=B16))),
    "a product with a bias and a maximum": (
        lambda a, b, c: jnp.maximum(a @ b + c, 0.0),
        (zeros(300, 200), zeros(200, 400), zeros(400)),
    ),
    "a convolution": (convolved, (IMAGE, WEIGHTS)),
    "a convolution with channels first": (
        lambda x, w: -convolved(x, w, NCHW),
        (zeros(2, 16, 40, 40), zeros(32, 16, 3, 3)),
    ),
    "a convolution of groups": (
        lambda x, w: convolved(x, w, feature_group_count=4),
        (IMAGE, zeros(3, 3, 4, 32)),
    ),
    "a convolution with a norm and a maximum": (
        normalized,
        (IMAGE, WEIGHTS, *(zeros(32) for _ in range(4))),
    ),
    "the gradient of weights": (gradient, LONG),
}


def set_of(name: str) -> tuple[Case, Results]:
    """The inputs that compare all of a kernel's result, and what is right for them."""
    function, arguments = KERNELS[name]
    (site, *_) = sites(load(function, *arguments))
    references = References(site.kernel)
    case = references.case("whole" if references.compares_more_as_whole else "integers")
    assert [s.result for s in case.sums] == [0], "not all elements are compared"
    taken = iter(case.values)
    # The gradient's kernel does not read the weights.
    values = [next(taken) if name[:12] != "the gradient" or a is not arguments[1] else a
              for a in arguments]  # fmt: skip
    return case, [np.array(jax.jit(function)(*values))]


def tiles(right: NDArray[Any]) -> dict[str, Callable[[NDArray[Any]], NDArray[Any]]]:
    return {
        "zeros": np.zeros_like,
        "one more": lambda x: x + x.dtype.type(1),
        "no numbers": lambda x: np.full_like(x, np.nan),
        "its neighbours": lambda x: np.roll(x, 1, -1),
    }


@pytest.mark.parametrize("name", KERNELS)
def test_a_wrong_register_tile_at_any_place_is_found(name: str) -> None:
    case, results = set_of(name)
    (sums,) = case.sums
    sums.check(results, case.kind, reorders=True)
    sums.check(results, case.kind, reorders=False)
    rng, right = np.random.default_rng(1), results[0]
    for fault in tiles(right).values():
        missed = 0
        for _ in range(PLACES):
            start = [int(rng.integers(n)) for n in right.shape]
            ends = (slice(n, n + size) for n, size in zip(start[-2:], (4, 8), strict=True))
            place: Any = (*start[:-2], *ends)
            wrong = right.copy()
            wrong[place] = fault(right[place])
            same = np.array_equal(wrong, right)
            missed += not same and not is_found(case, wrong)
        assert missed <= PLACES // 100


def is_found(case: Case, wrong: NDArray[Any]) -> bool:
    try:
        case.sums[0].check([wrong], case.kind, reorders=True)
    except WrongResult:
        return True
    return False


def test_boxes_alone_miss_a_wrong_tile_and_the_message_names_the_sums() -> None:
    case, (right,) = set_of("the gradient of weights")
    seen = np.zeros(right.size, bool)
    for together in case.together:
        seen[together.places] = True
    place = tuple(int(n) for n in np.argwhere(~seen.reshape(right.shape))[0])
    wrong = right.copy()
    wrong[place] += 1
    assert largest_error(case, [wrong], 8.0, reorders=True) == 0.0
    with pytest.raises(WrongResult, match="weighed by random integers, to be those of its operand"):
        case.sums[0].check([wrong], case.kind, reorders=True)


def test_sums_are_projected_over_the_features_of_each_group() -> None:
    x, w = (np.rint(3 * normal(n, *shape)) for n, shape in enumerate([(2, 5, 6, 8), (3, 3, 4, 6)]))
    graph = graph_of(lambda x, w: convolved(x, w, feature_group_count=2), [x, w])
    way = way_of(graph, 0)
    assert way is not None
    dimension = longest_dimension(graph, way.contraction)
    assert dimension is not None and (dimension.operand, dimension.groups) == (1, 2)
    weights = np.arange(1.0, 7.0)
    made = np.asarray(convolved(x, w, feature_group_count=2), np.float64)
    expected = np.stack([made[..., :3] @ weights[:3], made[..., 3:] @ weights[3:]], -1)
    np.testing.assert_array_equal(weighed(made, 3, weights, 2), expected)
    found = projected(graph, way.contraction, [x, w], dimension, weights)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: jnp.tanh(a @ b),
        lambda a, b: (a @ b) * (a @ b),
        lambda a, b: jnp.minimum(a @ b, 6.0),
        lambda a, b: (a @ b) @ b.T,
        lambda a, b: 1.0 / (a @ b),
    ],
)
def test_epilogues_that_cannot_be_undone_are_left_to_boxes(function: Any) -> None:
    a, b = normal(1, 40, 30), normal(2, 30, 20)
    assert way_of(graph_of(function, [a, b]), 0) is None
    assert way_of(graph_of(lambda a, b: -(a @ b) * 2.0 + 1.0, [a, b]), 0) is not None


def test_sums_that_may_not_be_exact_are_left_to_boxes() -> None:
    references = References(
        sites(load(lambda a, b: jnp.tanh(a) @ b, *KERNELS["a product"][1]))[0].kernel
    )
    assert not references.case("integers").sums and not references.compares_more_as_whole


PAIR = zeros(300, 40), zeros(40, 300)
HALF = zeros(300, 8, kind=jnp.float16), zeros(8, 300, kind=jnp.float16)


def of_integers(function: Callable[..., Any], *arguments: Any, to: F32Operands = "f32") -> int:
    """How many results a set of integers compares as whole."""
    (site, *_) = sites(load(function, *arguments))
    return len(References(site.kernel, to).case("integers").sums)


def test_sums_that_a_type_on_the_way_does_not_hold_are_left_to_boxes() -> None:
    """A right kernel drops halves, wraps or overflows there."""
    assert of_integers(lambda a, b: (a @ b).astype(jnp.int32), *PAIR) == 1
    assert of_integers(lambda a, b: (0.5 * (a @ b)).astype(jnp.int32), *PAIR) == 0
    assert of_integers(lambda a, b: (a @ b).astype(jnp.uint32), *PAIR) == 0
    assert of_integers(lambda a, b: jnp.float16(64) * (a @ b), *HALF) == 1
    assert of_integers(lambda a, b: jnp.float16(8192) * (a @ b), *HALF) == 0


@pytest.mark.parametrize(("steepness", "kept"), [(1.0, True), (3.0, False)])
def test_sums_behind_an_operand_that_may_be_far_off_are_left_to_boxes(
    steepness: float, kept: bool
) -> None:
    """An exponential of 12 is 160,000 times the grid of sums: it is off by a part of that."""
    values = [np.rint(normal(n, 20, 20)).astype(np.float32) for n in (1, 2)]
    values.append(np.full((20, 20), 4.0, np.float32))
    graph = graph_of(lambda a, b, c: a @ b + jnp.exp(steepness * c), values)
    way = way_of(graph, 0)
    assert way is not None
    found = whole_sums(Oracle(graph, values), 0, way, np.random.default_rng(0))
    assert (found is not None) == kept


def test_sums_of_operands_that_a_device_rounds_are_left_to_boxes() -> None:
    def wide(a: Any, b: Any) -> Any:
        return (3001.0 * a) @ b

    assert of_integers(wide, *PAIR) == 1
    assert of_integers(wide, *PAIR, to="tf32") == 0
    assert of_integers(jnp.dot, *PAIR, to="tf32") == 1
