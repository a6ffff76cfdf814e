"""Trees that have learned offline, which takes seconds, for all tests that ask them."""

from functools import cache

from hlotune.costmodel.trees import Objective, Trees
from tests.support.made_rows import kernels


@cache
def taught(objective: Objective = "both") -> Trees:
    """Nobody teaches them more."""
    model = Trees("offline", objective)
    model.fit(*kernels(900, groups=6))
    return model
