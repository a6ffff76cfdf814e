"""Sets of inputs share the time that the oracle has for a program."""

from typing import Any

import jax
import numpy as np

from hlotune.deploy.bench import prepared
from hlotune.hlo.frontends.program import load
from hlotune.hlo.oracle import Reference

X = np.eye(3, dtype=np.float32)


def test_a_set_that_takes_all_of_the_time_leaves_another_its_share() -> None:
    def counted(x: Any) -> Any:
        """Runs as often as the first number says."""
        return jax.lax.while_loop(
            lambda s: s[0] < x[0, 0], lambda s: (s[0] + 1, s[1] * 0.5), (0.0, x)
        )[1]

    often = X * np.float32(10**5)
    first, second = prepared(load(counted, often), oracle_limit_s=0.5).judges
    reason = getattr(first.references[0], "reason", "")
    assert reason == "the oracle did not get through the program in 0.5 s"
    assert isinstance(second.references[0], Reference)


def test_both_sets_are_compared_where_there_is_time_for_them() -> None:
    judges = prepared(load(lambda x: x @ x, X), oracle_limit_s=10.0).judges
    assert len(judges) == 2
    assert all(isinstance(judge.references[0], Reference) for judge in judges)
