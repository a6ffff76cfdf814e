"""What a searcher knows of one kernel: the configs measured so far, and their times."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.spaces.space import Configs, Space

Times = NDArray[np.float64]
"""`(n,)`, seconds; nan where the candidate failed."""
Digests = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIXING = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
)
_LAST_SHIFT = np.uint64(31)


@runtime_checkable
class Digesting(Protocol):
    """A space that knows when two configs make the same loop nest: then their digests are equal."""

    def digest(self, configs: Configs) -> Digests: ...


def digests(space: Space, configs: Configs) -> Digests:
    """What tells candidates apart: a hash of the nest where the space has one, else of the row."""
    return space.digest(configs) if isinstance(space, Digesting) else row_hash(configs)


def row_hash(configs: Configs) -> Digests:
    """A 64-bit hash of each row: columns go in one after the other, mixed as in splitmix64."""
    state = np.full(len(configs), 0x9E3779B97F4A7C15, np.uint64)
    for column in configs.T.astype(np.uint64, order="C"):
        state ^= column
        state += _STEP
        for shift, factor in _MIXING:
            state ^= state >> shift
            state *= factor
        state ^= state >> _LAST_SHIFT
    return state


class History:
    """Distinct configs in the order of their measurement."""

    def __init__(self, space: Space) -> None:
        self._space = space
        width = len(space.heuristic())
        self.configs: Configs = np.empty((0, width), np.int32)
        self.times_s: Times = np.empty(0)
        self._digests: Digests = np.empty(0, np.uint64)

    @staticmethod
    def of(space: Space, arrays: Mapping[str, NDArray[Any]]) -> "History":
        """The history that `arrays` wrote.  Raises ValueError where its configs are not of this
        space.
        """
        history, configs = History(space), arrays["configs"]
        if configs.shape[1:] != history.configs.shape[1:] or not space.legal(configs).all():
            raise ValueError("expected configs of the kernel's space, got those of another one")
        history.add(arrays["configs"], arrays["times_s"])
        return history

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def best_s(self) -> float:
        """The least time; infinite as long as nothing has one."""
        return float(np.nanmin(self.times_s, initial=np.inf))

    def add(self, configs: Configs, times_s: Times) -> None:
        """Adds measured configs; one that is known already keeps its first time."""
        new = np.flatnonzero(self.unseen(configs))
        self.configs = np.concatenate([self.configs, configs[new]])
        self.times_s = np.concatenate([self.times_s, times_s[new]])
        self._digests = np.concatenate([self._digests, digests(self._space, configs[new])])

    def unseen(self, configs: Configs) -> NDArray[np.bool_]:
        """A mask that is true at the first row of each candidate that was not measured yet."""
        keys = digests(self._space, configs)
        first = np.zeros(len(keys), np.bool_)
        first[np.unique(keys, return_index=True)[1]] = True
        return first & ~np.isin(keys, self._digests)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `of` makes a history from."""
        return {"configs": self.configs, "times_s": self.times_s}

    def best(self, n: int) -> Configs:
        """Up to n configs that have a time, fastest first."""
        order = np.argsort(self.times_s, kind="stable")  # nan sorts last
        return self.configs[order[: min(n, int(np.isfinite(self.times_s).sum()))]]


def scores(times_s: Times) -> NDArray[np.float32]:
    """Best time / time: 1 for the best, 0 for failures; all 0 where everything failed."""
    best = np.nanmin(times_s, initial=np.inf)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(times_s), best / times_s, 0.0)
    return ratio.astype(np.float32)
