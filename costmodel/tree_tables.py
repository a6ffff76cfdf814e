"""Boosted trees as arrays that numpy alone asks, where there is no xgboost and no compiler."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel.files import Damaged, in_words, read_arrays, write_arrays
from hlotune.schedules.errors import ModelError


@dataclass(frozen=True, slots=True)
class TreeTables:
    """Trees filled up to one depth: each array has a row for a tree.

    The children of test `n` are `2 n + 1`, taken where the feature is below the threshold, and
    `2 n + 2`.
    """

    feature: NDArray[np.int32]
    """`(trees, 2**depth - 1)`."""
    threshold: NDArray[np.float32]
    """The same shape."""
    value: NDArray[np.float32]
    """The values of the leaves, `(trees, 2**depth)`."""

    def predict(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(n,)`: the sum of the trees for features `(n, k)`."""
        total = np.zeros(len(rows), dtype=np.float32)
        every, tests = np.arange(len(rows)), self.feature.shape[1]
        for feature, threshold, value in zip(self.feature, self.threshold, self.value, strict=True):
            at = np.zeros(len(rows), dtype=np.intp)
            for _ in range(tests.bit_length()):
                at = 2 * at + 1 + (rows[every, feature[at]] >= threshold[at])
            total += value[at - tests]
        return total

    def save(self, path: Path, key: str) -> None:
        """Writes the trees with the key of the features that they read.  Raises OSError."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        write_arrays(path, key=np.frombuffer(key.encode(), np.uint8), **arrays)


def load(path: Path, key: str) -> TreeTables:
    """Raises ModelError where the file has no such trees, or trees of other features."""
    arrays = read_arrays(path)
    if arrays is None or set(arrays) != {"key", *(f.name for f in fields(TreeTables))}:
        raise ModelError(f"expected a file of trees at {path}, got none or another one")
    found = arrays["key"].tobytes().decode(errors="replace")
    if found != key:
        raise ModelError(
            f"expected trees of features {key}, got {found} in {path}; train them again"
        )
    with in_words(path):
        tables = TreeTables(arrays["feature"], arrays["threshold"], arrays["value"])
        tests, leaves = tables.feature.shape[1], tables.value.shape[1]
        if tables.threshold.shape != tables.feature.shape or leaves != tests + 1:
            raise Damaged("trees whose arrays do not fit one another")
    return tables


def tables_of(dumped: Sequence[str], depth: int) -> TreeTables:
    """The trees of xgboost's dump in JSON, none deeper than `depth`."""
    trees, tests = len(dumped), 2**depth - 1
    feature = np.zeros((trees, tests), dtype=np.int32)
    threshold = np.zeros((trees, tests), dtype=np.float32)
    value = np.zeros((trees, tests + 1), dtype=np.float32)
    for number, text in enumerate(dumped):
        nodes: list[tuple[int, dict[str, Any]]] = [(0, json.loads(text))]
        while nodes:
            at, node = nodes.pop()
            if at >= tests:
                value[number, at - tests] = node["leaf"]
            elif "leaf" in node:  # both sides of a test that decides nothing
                nodes += [(2 * at + 1, node), (2 * at + 2, node)]
            else:
                feature[number, at] = int(node["split"].removeprefix("f"))
                threshold[number, at] = node["split_condition"]
                below = node["yes"]
                nodes += [
                    (2 * at + (1 if c["nodeid"] == below else 2), c) for c in node["children"]
                ]
    return TreeTables(feature, threshold, value)
