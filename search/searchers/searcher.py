"""The role of a searcher: which schedules of one kernel to measure next."""

from collections.abc import Callable
from typing import Protocol

from hlotune.costmodel.model import CostModel
from hlotune.schedules.spaces.space import Configs, Space
from hlotune.search.searchers.annealing import Annealing
from hlotune.search.searchers.descent import Descent
from hlotune.search.searchers.evolution import Evolution
from hlotune.search.searchers.grid import Grid
from hlotune.search.searchers.history import Times
from hlotune.search.searchers.portfolio import Portfolio
from hlotune.search.searchers.random_search import RandomSearch


class Searcher(Protocol):
    """Proposes configs that were not measured yet, and is told what came of them.

    Given the same seed, the same calls of `observe` and the same model, the proposals are the same.
    """

    def propose(self, n: int) -> Configs:
        """Up to n legal configs, distinct and not observed; fewer where the space is exhausted."""
        ...

    def observe(self, configs: Configs, times_s: Times) -> None:
        """Takes times in seconds, nan for failures.  The model has not been fitted to them yet."""
        ...

    def state(self) -> bytes:
        """All that the next proposal depends on, except for the model."""
        ...

    def restore(self, state: bytes) -> None: ...


Make = Callable[[Space, CostModel, tuple[int, ...], Configs], Searcher]
"""(space, model, entropy of all random numbers, configs to measure before any other)."""

PLAIN: tuple[Make, ...] = (Grid, RandomSearch)
"""Searchers that learn nothing.  Others are compared with them, so that they are lent nothing, and
no coordinate descent ends them.
"""

SEARCHERS: dict[str, Make] = {
    "annealing": Annealing,
    "descent": Descent,
    "evolution": Evolution,
    "grid": Grid,
    "portfolio": Portfolio,
    "random": RandomSearch,
}
