"""What a program has that is in no kernel is told with a reason."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hlotune.hlo.frontends.program import load
from hlotune.hlo.sites.left_out import NO_CODE, NO_RULE, left_out
from hlotune.hlo.sites.sites import sites


def told(function: Any, *given: Any) -> tuple[str, ...]:
    program = load(function, *given)
    return left_out(program, sites(program))


X = np.ones((64, 128), np.float32)


def test_operations_without_code_or_rule_are_told_with_how_often_they_stand_there() -> None:
    found = told(lambda x: jnp.sort(jnp.arctan(x) + jnp.arctan(x * 2)) * 2, X)
    assert found == (f"stablehlo.atan2 (2 times): {NO_CODE}", f"stablehlo.sort: {NO_RULE}")


def test_nothing_is_told_of_a_program_that_is_kernels_altogether() -> None:
    assert told(lambda x: jax.nn.softmax(x.T + jnp.arange(64.0)), X) == ()
