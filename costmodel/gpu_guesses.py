"""Trees that correct guesses at times on GPUs, learned from what devices measured.

They know the ratio of measured to guessed times; `python -m benchmarks.device --learn` trains them.
"""

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.tree_tables import TreeTables, load

SHIPPED = Path(__file__).with_name("gpu_trees.npz")
"""The trees that come with the package."""


def key(version: int, names: tuple[str, ...]) -> str:
    """What a file says of the features that its trees read."""
    return f"gpu-{version}-{','.join(names)}"


@cache
def shipped(wanted: str) -> TreeTables:
    """The trees of the package.  Raises ModelError where they read other features than `wanted`."""
    return load(SHIPPED, wanted)


def factors(trees: TreeTables, seen: NDArray[np.float32]) -> NDArray[np.float64]:
    """`(n,)`: measured over guessed times of schedules, up to a factor that all have in common.

    Args:
        seen: features `(n, k)`.
    """
    return np.exp2(trees.predict(seen).astype(np.float64))
