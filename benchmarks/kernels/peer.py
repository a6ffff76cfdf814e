"""The side of one library for cases of kernels: as `benchmarks/peers/worker.py`, of many results.

    {"do": "prepare", "label", "case", "form", "inputs", "types", "model", "result"}
    {"do": "time", ...}, {"do": "drop"}

Inputs and results are files of NumPy; bf16 is f32 there.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.peers.worker import Prepared as One
from benchmarks.peers.worker import Session, rest, served

Array = Any


@dataclass(frozen=True, slots=True)
class Prepared:
    call: Callable[[], object]
    """Returns when the results are there."""
    results: Callable[[], Sequence[Array]]
    """The results; those of the first call where arguments are donated.  bf16 comes as f32."""
    note: str = ""
    """What has to be said of it, such as that XLA keeps it."""


class KernelLibrary(Protocol):
    @property
    def version(self) -> str: ...
    def prepare(
        self, case: str, form: str, inputs: Sequence[Array], types: Sequence[str], model: str
    ) -> Prepared:
        """Raises Unsupported."""


@dataclass(slots=True)
class KernelSession(Session):
    """Prepares cases of kernels; times and drops them as any session does."""

    library: Any
    """A KernelLibrary."""

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        inputs: list[Array] = []
        if request["types"]:
            with np.load(request["inputs"]) as file:
                inputs = [file[f"arr_{k}"] for k in range(len(request["types"]))]
        start = time.perf_counter()
        made: Prepared = self.library.prepare(
            request["case"], request["form"], inputs, request["types"], request["model"]
        )
        results = made.results()
        prepare_s = time.perf_counter() - start
        np.savez(Path(request["result"]), *map(np.ascontiguousarray, results))
        # the results of updates of large networks are gigabytes: they end with this request
        self.prepared[request["label"]] = One(made.call, lambda: np.empty(0))
        rest()
        return {"prepare_s": prepare_s, "note": made.note}


def serve(library: KernelLibrary) -> None:
    """Answers until the requests end."""
    served(KernelSession(library))
