"""The oracle's answers to one input set, box by box and together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hlotune.hlo.frontends.program import load
from hlotune.hlo.kernel import Kernel
from hlotune.hlo.oracle import Oracle, compare
from hlotune.hlo.sites.sites import sites
from hlotune.measure.verification import references as measured_references
from hlotune.measure.verification.cases import Case
from hlotune.measure.verification.inputs import MOST_SUBNORMAL, InputKind
from hlotune.measure.verification.references import (
    FEW_BOXES,
    FEWEST_BOXES,
    FURTHER_ELEMENTS,
    FURTHER_PRODUCTS,
    LEAST_ELEMENTS,
    MOST_ELEMENTS,
    MOST_PRODUCTS,
    WHOLE_RATHER,
    References,
    Tried,
    elements_of_each,
)
from hlotune.measure.verification.shelf import Shelf
from hlotune.schedules.errors import UnsupportedKernel

SIZE = 300
TEXT = f"""func.func @kernel(%arg0: tensor<{SIZE}x{SIZE}xf32>) -> (tensor<{SIZE}x{SIZE}xf32>) {{
  %0 = "stablehlo.exponential"(%arg0) : (tensor<{SIZE}x{SIZE}xf32>) -> tensor<{SIZE}x{SIZE}xf32>
  return %0 : tensor<{SIZE}x{SIZE}xf32>
}}
"""


def case() -> Case:
    return References(Kernel(TEXT)).case("normal")


def test_boxes_together_are_the_elements_of_all_of_them() -> None:
    found, results = case(), [np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE)]
    assert len(found.expected) > 2, "it takes several boxes to compare part of a result"
    (together,) = found.together
    assert together.places.size >= MOST_ELEMENTS // 2
    boxes = [results[0][e.box].reshape(-1) for e in found.expected]
    np.testing.assert_array_equal(together.of(results), np.concatenate(boxes))


def test_many_results_share_the_elements_that_are_compared() -> None:
    assert elements_of_each(8, further=False) == MOST_ELEMENTS
    assert elements_of_each(16, further=False) == MOST_ELEMENTS // 2
    assert elements_of_each(500, further=True) == LEAST_ELEMENTS


def test_of_long_sums_fewer_elements_are_compared() -> None:
    terms = 1 << 17
    assert elements_of_each(1, terms=100, further=False) == MOST_ELEMENTS
    assert elements_of_each(1, terms=terms, further=False) == MOST_PRODUCTS // terms
    assert elements_of_each(1, terms=terms, further=True) == FURTHER_PRODUCTS // terms
    assert elements_of_each(1, terms=1 << 40, further=False) == 1


A, B, C = "tensor<20000x90xf32>", "tensor<20000x80xf32>", "tensor<90x80xf32>"
DIMENSIONS = "lhs_contracting_dimensions = [0], rhs_contracting_dimensions = [0]"
LONG = f"""func.func @kernel(%arg0: {A}, %arg1: {B}) -> ({C}, {C}) {{
  %0 = "stablehlo.dot_general"(%arg0, %arg1) <{{
    dot_dimension_numbers = #stablehlo.dot<{DIMENSIONS}>}}> : ({A}, {B}) -> {C}
  %1 = "stablehlo.exponential"(%0) : ({C}) -> {C}
  return %0, %1 : {C}, {C}
}}
"""


def test_results_of_one_long_sum_are_compared_in_the_same_few_boxes() -> None:
    found = References(Kernel(LONG)).case("normal")
    boxes = [[e.box for e in found.expected if e.result == k] for k in (0, 1)]
    assert boxes[0] == boxes[1]
    assert len(boxes[0]) <= FEW_BOXES
    size = sum(e.reference.value.size for e in found.expected if e.result == 0)
    assert MOST_PRODUCTS // 20000 // 2 < size <= MOST_PRODUCTS // 20000


def test_of_results_whose_elements_are_all_compared_otherwise_there_are_the_fewest_boxes() -> None:
    alone = LONG.replace(f"({C}, {C}) {{", f"{C} {{")
    alone = "\n".join(x for x in alone.splitlines() if "exponential" not in x)
    alone = alone.replace(f"return %0, %1 : {C}, {C}", f"return %0 : {C}")
    found = References(Kernel(alone))
    assert found.case("integers").sums
    for kind in ("integers", "normal"):
        assert len(found.case(kind).expected) == FEWEST_BOXES


def test_a_further_set_is_compared_in_few_boxes_and_a_small_result_whole() -> None:
    further = References(Kernel(TEXT)).case("normal", 1)
    assert 3 <= len(further.expected) <= FEW_BOXES
    side = 250
    assert FURTHER_ELEMENTS < side * side <= WHOLE_RATHER * FURTHER_ELEMENTS
    (whole,) = References(Kernel(TEXT.replace(str(SIZE), str(side)))).case("normal", 1).expected
    assert whole.reference.value.shape == (side, side)


def test_extreme_values_are_compared_at_all_corners() -> None:
    seen = np.zeros((SIZE, SIZE), bool)
    for e in References(Kernel(TEXT)).case("special", 2).expected:
        seen[e.box] = True
    assert (
        seen[:2, :2].all() and seen[:2, -2:].all() and seen[-2:, :2].all() and seen[-2:, -2:].all()
    )


def test_the_worst_element_of_all_boxes_is_the_worst_together() -> None:
    found, rng = case(), np.random.default_rng(0)
    exact = np.exp(found.values[0].astype(np.float64))
    results = [(exact * (1 + 1e-6 * rng.standard_normal(exact.shape))).astype(np.float32)]
    apart = [compare(e.reference, results[0][e.box], factor=0, exact=False) for e in found.expected]
    (together,) = found.together
    worst = compare(together.reference, together.of(results), factor=0, exact=False)
    assert worst is not None
    assert worst.error == max(off.error for off in apart if off is not None)


def test_references_are_kept_as_long_as_there_is_room_for_them() -> None:
    kernels = [Kernel(TEXT), Kernel(TEXT.replace("exponential", "tanh")), Kernel(TEXT + "\n")]
    size = bytes_of(case())
    shelf = Shelf(most_bytes=2 * size)
    first = [shelf.of(k) for k in kernels[:2]]
    for references in first:
        references.case("normal")
    assert [shelf.of(k) for k in kernels[:2]] == first
    shelf.of(kernels[2]).case("normal")
    assert shelf.of(kernels[2]).bytes == size
    assert shelf.of(kernels[1]) is first[1]
    assert shelf.of(kernels[0]) is not first[0]


def bytes_of(found: Case) -> int:
    return sum(v.nbytes for v in found.values) + found.answers_bytes


def test_the_references_in_use_are_kept_however_large() -> None:
    shelf = Shelf(most_bytes=0)
    kept = shelf.of(Kernel(TEXT))
    kept.case("normal")
    assert shelf.of(Kernel(TEXT)) is kept


def test_a_case_is_as_large_as_what_it_holds() -> None:
    found = case()
    (together,) = found.together
    held = [*found.values, together.reference.value, together.reference.bound, together.places]
    held += [together.step, *(e.reference.value for e in found.expected)]
    held += [e.reference.bound for e in found.expected]
    assert bytes_of(found) == sum(x.nbytes for x in held if x is not None)


def test_inputs_that_cases_share_are_counted_once() -> None:
    of = References(Kernel(CONVOLUTION))
    plain, tiles = (of.case("normal", outputs=m) for m in (0, 2))
    assert of.bytes == bytes_of(plain) + tiles.answers_bytes


@pytest.mark.parametrize("room", [-1, 1 << 28])
def test_tiles_have_the_same_bounds_whether_sums_were_kept_or_not(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_references, "MOST_KEPT_BYTES", room)
    kernel = Kernel(CONVOLUTION)
    of, fresh = References(kernel), References(kernel)
    for seed in range(3):
        of.case("normal", seed)
    assert len(of._oracles) == (3 if room > 0 else 1)
    found = of.case("normal", 0, 4)
    of.forget()
    for e, same in zip(found.expected, fresh.case("normal", 0, 4).expected, strict=True):
        np.testing.assert_array_equal(e.reference.value, same.reference.value)
        assert e.reference.bound is not None and same.reference.bound is not None
        np.testing.assert_array_equal(e.reference.bound, same.reference.bound)


def test_kernels_that_have_no_tiles_keep_no_sums() -> None:
    of = References(Kernel(TEXT))
    of.case("normal")
    assert not of._oracles


def test_sums_of_one_kernel_are_kept_at_a_time() -> None:
    shelf, first, second = Shelf(), Kernel(CONVOLUTION), Kernel(CONVOLUTION + "\n")
    shelf.of(first).case("normal")
    assert shelf.of(first)._oracles
    shelf.of(second)
    assert not shelf.of(first)._oracles


CONVOLUTION = """func.func @kernel(%arg0: tensor<1x8x8x3xf32>, %arg1: tensor<3x3x3x4xf32>)
    -> (tensor<1x8x8x4xf32>) {
  %0 = "stablehlo.convolution"(%arg0, %arg1) <{
    batch_group_count = 1 : i64,
    dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>,
    feature_group_count = 1 : i64, padding = dense<1> : tensor<2x2xi64>,
    window_strides = array<i64: 1, 1>
  }> : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x8x8x4xf32>
  %1 = "stablehlo.tanh"(%0) : (tensor<1x8x8x4xf32>) -> tensor<1x8x8x4xf32>
  return %1 : tensor<1x8x8x4xf32>
}
"""


def test_what_did_not_suit_without_tiles_is_not_tried_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = list[tuple[float, int]]()
    try_ = References._tried

    def seen(of: References, kind: InputKind, seed: int, scale: float, outputs: int) -> Tried:
        tried.append((scale, outputs))
        return try_(of, kind, seed, scale, outputs)

    monkeypatch.setattr(References, "_tried", seen)
    case = References(Kernel(CONVOLUTION)).case("integers", outputs=2)
    assert not case.is_exact, "tanh rounds, so no size of integers suits"
    assert tried == [(1.0, 0), (1.0, 2)], "of the larger ones one element says so"


def soft_spheres(places: jax.Array) -> jax.Array:
    """The energy of particles in a periodic box, as jax-md has it: FIRE brings them to rest."""
    side = np.float32(np.sqrt(len(places)))
    apart = jnp.mod(places[:, None] - places[None] + side / 2, side) - side / 2
    square = jnp.sum(apart**2, -1)
    distance = jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 0.0)), 0.0)
    energy = jnp.where(distance < 1, 0.5 * (1 - jnp.where(distance < 1, distance, 0.0)) ** 2, 0.0)
    return jnp.sum((1 - jnp.eye(len(places))) * jnp.nan_to_num(energy))


def test_the_energy_of_soft_spheres_can_be_compared_with_every_set() -> None:
    """Its results go through a search for NaN, which compares each value with itself."""
    sites_of = sites(load(soft_spheres, jnp.zeros((64, 2))))
    references = References(max((s.kernel for s in sites_of), key=lambda k: len(k.text)))
    for kind in ("integers", "normal"):
        for expected in references.case(kind).expected:
            value, bound = expected.reference.value, expected.reference.bound
            assert bound is not None and (bound < 1e-3 * np.abs(value) + 1e-3).all()


@pytest.mark.parametrize("ending", [UnsupportedKernel, MemoryError])
def test_inputs_that_the_oracle_refuses_are_not_kept(
    ending: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ending

    of = References(Kernel(TEXT))
    monkeypatch.setattr(Oracle, "region", refuse)
    with pytest.raises(ending):
        of.case("integers")
    assert not of._begun_ones


def test_few_elements_are_subnormal_however_large_the_argument() -> None:
    case = References(Kernel(TEXT)).case("special")
    (values,) = case.values
    subnormal = np.count_nonzero((values != 0) & (np.abs(values) < np.finfo(np.float32).tiny))
    assert 0 < subnormal < 4 * MOST_SUBNORMAL
