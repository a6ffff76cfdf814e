"""What a model reads of a space: one array of summaries, or the loop trees themselves."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hlotune.schedules.features.loop_trees import ABSENT, NODE_NAMES, Nodes
from hlotune.schedules.features.summary import NAMES
from hlotune.schedules.spaces.space import Configs, Space

Features = NDArray[np.float32]
"""`(n, F)`: one row a schedule, as `Space.features` gives them."""
Inputs = Features | Nodes
"""`n` rows of one or the other."""
Reads = Literal["summary", "nodes"]
Rows = NDArray[np.intp] | NDArray[np.bool_] | slice


def columns(reads: Reads) -> tuple[str, ...]:
    """Names of the features that a model reads."""
    return NAMES if reads == "summary" else NODE_NAMES


def inputs_of(reads: Reads, space: Space, configs: Configs) -> Inputs:
    """What a model that reads `reads` is given of some configs, a row each."""
    return space.features(configs) if reads == "summary" else space.nodes(configs)


def count(inputs: Inputs) -> int:
    """Number of rows."""
    return len(inputs.values if isinstance(inputs, Nodes) else inputs)


def taken(inputs: Inputs, rows: Rows) -> Inputs:
    """Some of the rows, by number, mask or slice."""
    if isinstance(inputs, Nodes):
        return Nodes(inputs.values[rows], inputs.parent[rows])
    return inputs[rows]


def joined(parts: Sequence[Inputs]) -> Inputs:
    """The rows of all parts, which are of one kind; there is at least one part.

    Trees of several kernels get as many slots as the largest of them has.
    """
    if not isinstance(parts[0], Nodes):
        return np.concatenate([as_summaries(p) for p in parts])
    trees = [as_trees(p) for p in parts]
    slots = max(t.parent.shape[1] for t in trees)
    return Nodes(
        np.concatenate([_padded(t.values, slots, 0) for t in trees]),
        np.concatenate([_padded(t.parent, slots, ABSENT) for t in trees]),
    )


def require_rows(inputs: Inputs, reads: Reads) -> None:
    """What every model asks of rows that it is to rank.

    Raises TypeError for the other kind of inputs, ValueError for rows of another width.
    """
    values = as_summaries(inputs) if reads == "summary" else as_trees(inputs).values
    names = columns(reads)
    if values.ndim != (2 if reads == "summary" else 3) or values.shape[-1] != len(names):
        raise ValueError(
            f"expected rows of {len(names)} features, got an array of shape {values.shape}; use "
            "what `inputs_of` gives the model"
        )


def require_lesson(
    inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32], reads: Reads
) -> None:
    """What every model asks of rows that it is to learn from.

    Raises what `require_rows` does, and ValueError where there is not one score and one group a
    row, or where a feature or a score is no number.
    """
    require_rows(inputs, reads)
    n = count(inputs)
    if not len(scores) == len(groups) == n:
        raise ValueError(
            f"expected a score and a group for each of {n} rows, got {len(scores)} scores and "
            f"{len(groups)} groups; give one of each a row"
        )
    values = inputs.values if isinstance(inputs, Nodes) else inputs
    for name, of in (("features", values), ("scores", scores)):
        if not np.isfinite(of).all():
            row = int(np.argwhere(~np.isfinite(of))[0, 0])
            raise ValueError(
                f"expected finite {name}, got {of[row][~np.isfinite(of[row])].flat[0]} in row "
                f"{row}; a failure has the score 0"
            )


def _padded(values: NDArray[Any], slots: int, value: int) -> NDArray[Any]:
    widths = [(0, 0), (0, slots - values.shape[1])] + [(0, 0)] * (values.ndim - 2)
    return np.pad(values, widths, constant_values=value)


def as_summaries(inputs: Inputs) -> Features:
    """Raises TypeError for loop trees."""
    if isinstance(inputs, Nodes):
        raise TypeError("expected summaries, got loop trees; use what `inputs_of` gives the model")
    return inputs


def as_trees(inputs: Inputs) -> Nodes:
    """Raises TypeError for summaries."""
    if not isinstance(inputs, Nodes):
        raise TypeError("expected loop trees, got summaries; use what `inputs_of` gives the model")
    return inputs
