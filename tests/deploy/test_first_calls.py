"""The first calls of a default are timed without what moves its arguments."""

from typing import Any

import jax
import numpy as np
import pytest

from hlotune.deploy.bench import prepared
from hlotune.deploy.flat_calls import called_once
from hlotune.hlo.frontends.program import load


def test_the_default_is_called_with_values_that_are_on_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[Any]()

    def noted(program: Any, function: Any, values: Any) -> list[Any]:
        given.extend(values)
        return called_once(program, function, values)

    monkeypatch.setattr("hlotune.deploy.input_sets.called_once", noted)
    x = np.eye(3, dtype=np.float64)
    with jax.enable_x64(True):
        program = load(lambda x: x @ x, x)
    prepared(program, oracle_limit_s=10.0)
    assert given and all(isinstance(value, jax.Array) for value in given)
    assert {value.dtype for value in given} == {x.dtype}
