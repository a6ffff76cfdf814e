"""What a program has that is in no kernel is told with a reason."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.left_out import NO_CODE, NO_RULE, OF_ITS_BITS, PLACED, left_out
from hlotune.hlo.sites.sites import sites


def told(function: Any, *given: Any) -> tuple[str, ...]:
    program = load(function, *given)
    return left_out(program, sites(program))


X = np.ones((64, 128), np.float32)


def test_operations_without_code_or_rule_are_told_with_how_often_they_stand_there() -> None:
    def function(x: Any) -> Any:
        return jnp.sort(lax.reduce_precision(x, 5, 10) + lax.reduce_precision(x * 2, 5, 10)) * 2

    found = told(function, X)
    assert found == (
        f"stablehlo.reduce_precision (2 times): {NO_CODE}",
        f"stablehlo.sort: {NO_RULE}",
    )


def test_bits_of_rounded_numbers_are_left_to_xla_since_no_kernel_could_be_checked() -> None:
    def bits(x: Any) -> Any:
        return lax.bitcast_convert_type(x, jnp.int32) >> 3

    assert told(lambda x: bits(jnp.floor(x.T)), X) == ()
    assert told(lambda x: bits(jnp.exp(x)), X)[0] == f"stablehlo.bitcast_convert: {OF_ITS_BITS}"
    assert told(lambda x, y: bits(-(x @ y)), X, X.T)[0].endswith(OF_ITS_BITS)
    found = sites(load(lambda x: bits(jnp.exp(x).sum(0)), X))
    assert "exponential" in found[0].kernel.text, "what is in front of them is tuned all the same"


def test_an_update_at_a_place_that_data_decides_is_left_to_xla_with_the_reason() -> None:
    found = told(lambda x, y, at: lax.dynamic_update_slice(x, y, (at, 0)), X, X[:3], np.int32(2))
    assert found == (f"stablehlo.dynamic_update_slice: {PLACED}",)


def test_nothing_is_told_of_a_program_that_is_kernels_altogether() -> None:
    assert told(lambda x: jax.nn.softmax(x.T + jnp.arange(64.0)), X) == ()
