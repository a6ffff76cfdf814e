"""Several models of one kind of input as one: the mean of what they say, in units of its spread."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hlotune.costmodel import files
from hlotune.costmodel.inputs import Inputs, Reads, count, require_rows


class Member(Protocol):
    """A cost model, as far as an ensemble needs one."""

    def fit(
        self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]
    ) -> None: ...
    def predict(self, inputs: Inputs) -> NDArray[np.float32]: ...
    def save(self, path: Path) -> None: ...
    def load(self, path: Path) -> None: ...


class Ensemble:
    """Members by name; all read summaries.

    What a member says counts in units of the spread it had over the rows of the last `fit`.
    """

    reads: Reads = "summary"

    def __init__(self, members: Mapping[str, Member]) -> None:
        self._members = members
        self._spreads: NDArray[np.float64] = np.ones(len(members))
        self.knows = False

    def fit(self, inputs: Inputs, scores: NDArray[np.float32], groups: NDArray[np.int32]) -> None:
        for member in self._members.values():
            member.fit(inputs, scores, groups)
        spreads = np.array([np.std(m.predict(inputs)) for m in self._members.values()])
        self._spreads = np.where(spreads > 0, spreads, 1.0)
        self.knows = self.knows or bool(spreads.any())

    def predict(self, inputs: Inputs) -> NDArray[np.float32]:
        require_rows(inputs, self.reads)
        if not self.knows:
            return np.zeros(count(inputs), np.float32)
        said = np.array([m.predict(inputs) for m in self._members.values()])
        mean: NDArray[np.float32] = (said / self._spreads[:, None]).mean(axis=0).astype(np.float32)
        return mean

    def save(self, path: Path) -> None:
        if not self.knows:
            raise ValueError(
                f"expected a model that has learned, got an empty one; fit it before {path}"
            )
        arrays = {"spreads": self._spreads}
        with tempfile.TemporaryDirectory() as folder:
            for name, member in self._members.items():
                file = Path(folder) / name
                member.save(file)
                arrays[name] = np.frombuffer(file.read_bytes(), np.uint8)
        files.write(path, files.Header("ensemble", files.features_key(self.reads)), arrays)

    def load(self, path: Path) -> None:
        with (
            files.arrays_of(path, "ensemble", self.reads) as arrays,
            tempfile.TemporaryDirectory() as folder,
        ):
            for name, member in self._members.items():
                file = Path(folder) / name
                file.write_bytes(arrays[name].tobytes())
                member.load(file)
            self._spreads, self.knows = arrays["spreads"], True
