"""The oracle's answers to one input set, box by box and together."""

import numpy as np

from hlotune.hlo.kernel import Kernel
from hlotune.hlo.oracle import compare
from hlotune.measure.references import MOST_ELEMENTS, Case, References

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
