"""An analytic model: cycles a flop from arithmetic, loads and the traffic between caches.

It learns nothing, so it ranks from the first candidate on, and shows what learning is worth.
The form is a roofline with one roof a cache level (Williams et al., CACM 2009).
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel import files
from hlotune.costmodel.effort import Effort
from hlotune.costmodel.inputs import Inputs, Reads, as_summaries
from hlotune.schedules.features import NAMES

FMAS_A_CYCLE = 2
LOADS_A_CYCLE = 2
LATENCY = 4
"""Cycles of a multiply-add: so many times `FMAS_A_CYCLE` independent sums keep the units busy."""
BYTES_A_CYCLE = {"traffic_l1": 64.0, "traffic_l2": 32.0, "traffic_l3": 8.0}
"""What a core gets from the level behind each cache."""
SPILL = 4.0
"""Factor on arithmetic for each register file's worth of values that do not fit."""

Floats = NDArray[np.float64]


class Roofline:
    """Predicts the logarithm of the speed."""

    reads: Reads = "summary"
    knows = True

    def __init__(self, effort: Effort = "batch") -> None:
        """Every effort is the same to it."""

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        """Learns nothing."""

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        cycles = cycles_a_flop(as_summaries(inputs))
        return np.negative(np.log2(cycles)).astype(np.float32)

    def save(self, path: Path) -> None:
        files.write(path, files.Header("roofline", files.features_key(self.reads)), {})

    def load(self, path: Path) -> None:
        files.arrays_of(path, "roofline", self.reads)


def cycles_a_flop(summaries: NDArray[np.float32]) -> Floats:
    """`(n,)`: expected cycles a flop of the kernel, all threads together."""
    column = {name: summaries[:, k].astype(np.float64) for k, name in enumerate(NAMES)}
    lanes = np.maximum(1, column["vector_bytes"] / np.maximum(1, column["element_bytes"]))
    busy = _clipped(column["task_balance"]) * np.minimum(
        np.exp2(_bounded(column["tasks"])), np.maximum(1, column["threads"])
    )
    useful = _clipped(column["useful_work"]) * _clipped(column["useful_lanes"])
    multiply_add = 1 / (2 * lanes * useful)
    work = multiply_add * np.maximum(_arithmetic(column), _loads(column))
    moved = [np.exp2(_bounded(column[name])) / rate for name, rate in BYTES_A_CYCLE.items()]
    cycles: Floats = (np.maximum(work, np.max(moved, axis=0)) + np.sum(moved, axis=0)) / busy
    return cycles


def _arithmetic(column: dict[str, Floats]) -> Floats:
    """Cycles of a vector multiply-add: too few sums wait for each other, too many are spilled."""
    sums = np.maximum(1, column["rows"] * column["vectors"])
    waiting = np.maximum(1, LATENCY * FMAS_A_CYCLE / sums)
    spilled = 1 + SPILL * np.maximum(0, column["register_share"] - 1)
    return waiting * spilled / FMAS_A_CYCLE


def _loads(column: dict[str, Floats]) -> Floats:
    return np.maximum(0, column["loads_a_multiply_add"]) / LOADS_A_CYCLE


def _clipped(share: Floats) -> Floats:
    return np.clip(share, 1e-3, 1)


def _bounded(logarithm: Floats) -> Floats:
    return np.clip(logarithm, -40, 40)
