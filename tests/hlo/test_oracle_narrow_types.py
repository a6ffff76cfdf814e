"""What the oracle allows where values of narrow types are rounded on the way."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from hlotune.hlo.oracle import compare, evaluate
from tests.support.oracle_cases import Array, graph_of, lax, normal


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_chain_stays_in_the_bound_with_and_without_rounding_between(dtype: str) -> None:
    x = normal(5, 500).astype(dtype)

    def chain(x: Any) -> Any:
        return (x * x + x) * jnp.exp(x) - x

    (reference,) = evaluate(graph_of(chain, [x]), [x])
    wide = x.astype(np.float32)
    kept = ((wide * wide + wide) * np.exp(wide) - wide).astype(dtype)
    by_op = (x * x + x) * np.exp(x) - x
    assert compare(reference, kept, factor=1, exact=False) is None
    assert compare(reference, by_op, factor=1, exact=False) is None


def test_what_a_narrow_type_cannot_hold_on_the_way_may_go_on_in_f32() -> None:
    """exp(12) is beyond f16: kernels that round it give a sigmoid of 0, others one of 6e-6."""
    x = np.array([-12.0, -9.0, 3.0], np.float16)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + jnp.exp(-x))

    (reference,) = evaluate(graph_of(sigmoid, [x]), [x])
    kept = (1 / (1 + np.exp(-x.astype(np.float32)))).astype(x.dtype)
    by_op = np.where(x < -11, np.float16(0), kept)
    assert kept[0] > 0
    assert compare(reference, kept, factor=1, exact=False) is None
    assert compare(reference, by_op, factor=1, exact=False) is None
    assert reference.uncompared == pytest.approx(1 / 3)


def test_what_a_program_converts_to_a_narrow_type_is_infinite_beyond_it() -> None:
    x = np.array([7e4, 1.0], np.float32)
    (reference,) = evaluate(graph_of(lambda x: x.astype(jnp.float16), [x]), [x])
    assert reference.value.tolist() == [np.inf, 1.0]
    assert reference.uncompared == 0


def test_narrow_reduction_may_round_every_partial_sum_or_only_the_last() -> None:
    x = normal(5, 40, 64).astype(ml_dtypes.bfloat16)

    def total(x: Any) -> Any:
        return lax.reduce(x, jnp.bfloat16(0), lax.add, (0,))

    (reference,) = evaluate(graph_of(total, [x]), [x])
    each: Array = np.zeros(64, x.dtype)
    for row in x:
        each = each + row
    once = x.astype(np.float32).sum(0).astype(x.dtype)
    assert compare(reference, each, factor=1, exact=False) is None
    assert compare(reference, once, factor=1, exact=False) is None


def test_convert_rounds_to_the_narrow_type() -> None:
    x = normal(6, 100)

    def through(x: Any) -> Any:
        return x.astype(jnp.bfloat16)

    (reference,) = evaluate(graph_of(through, [x]), [x])
    np.testing.assert_array_equal(reference.value, x.astype(ml_dtypes.bfloat16).astype(np.float64))
