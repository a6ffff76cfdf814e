"""The oracle computes elementwise operations of large arrays one piece after the other."""

from math import prod

import numpy as np
import pytest

from hlotune.hlo.oracle import floats
from hlotune.hlo.oracle.bounded import UNKNOWN, WHOLE_ELEMENTS, Bounded, exact, in_pieces, no_bound
from hlotune.hlo.oracle.boxes import pieces

SHAPES = [(), (5,), (100,), (7, 33), (1, 2, 50), (3, 4, 5, 6), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_cover_every_element_once(shape: tuple[int, ...]) -> None:
    count = np.zeros(shape, np.int64)
    for place in pieces(shape, 16):
        count[place] += 1
        assert count[place].size <= max(16, shape[-1] if shape else 1)
    assert (count == 1).all()


def test_a_large_sum_is_that_of_its_pieces() -> None:
    rng = np.random.default_rng(0)
    shape = (3, 5, WHOLE_ELEMENTS // 8)
    assert prod(shape) > WHOLE_ELEMENTS
    values = [rng.standard_normal(shape) for _ in range(2)]
    bound = np.zeros(shape)
    bound[1, 2, ::3], bound[2, 4, 7] = 1e-6, UNKNOWN
    a, b = Bounded(values[0], bound, "f32"), Bounded(values[1], no_bound(shape), "f32")
    found, whole = in_pieces(floats.add, a, b), floats.add(a, b)
    assert np.array_equal(found.value, whole.value)
    assert np.array_equal(found.bound, whole.bound)


def test_what_is_exact_in_all_pieces_takes_no_memory_for_its_bound() -> None:
    whole = exact(np.ones((3, WHOLE_ELEMENTS), np.float32), "f32")
    one = exact(np.array(1, np.float32), "f32")
    found = in_pieces(floats.add, whole, one)
    assert found.is_exact
    assert not any(found.bound.strides)
    assert (found.value == 2).all()
