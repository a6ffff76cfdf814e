"""Sets of inputs share the time that the oracle has for a program."""

from typing import Any

import jax
import numpy as np

from hlotune.deploy.bench import prepared
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Reference

X = np.eye(3, dtype=np.float32)


def test_where_the_oracle_does_not_get_through_one_set_it_does_not_begin_with_another() -> None:
    def slow(x: Any) -> Any:
        return jax.lax.fori_loop(0, 10**4, lambda _, y: y @ y, x)

    first, second = prepared(load(slow, X), oracle_limit_s=0.05).judges
    said = [getattr(judge.references[0], "reason", None) for judge in (first, second)]
    assert said == [f"the oracle did not get through the program in {s} s" for s in ("0.05", "0")]


def test_both_sets_are_compared_where_there_is_time_for_them() -> None:
    judges = prepared(load(lambda x: x @ x, X), oracle_limit_s=10.0).judges
    assert len(judges) == 2
    assert all(isinstance(judge.references[0], Reference) for judge in judges)
