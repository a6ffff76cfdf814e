"""The oracle's answers to one input set, box by box and together."""

import numpy as np

from hlotune.hlo.kernel import Kernel
from hlotune.hlo.oracle import compare
from hlotune.measure.references import MOST_ELEMENTS, Case, References, Shelf

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
    shelf = Shelf(most_bytes=2 * case().bytes)
    first = [shelf.of(k) for k in kernels[:2]]
    for references in first:
        references.case("normal")
    assert [shelf.of(k) for k in kernels[:2]] == first
    shelf.of(kernels[2]).case("normal")
    assert shelf.of(kernels[2]).bytes == case().bytes
    assert shelf.of(kernels[1]) is first[1]
    assert shelf.of(kernels[0]) is not first[0]


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
    assert found.bytes == sum(x.nbytes for x in held if x is not None)
