"""Runs another runtime in a process of its own; each request to it has a limit of time."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hlotune.deploy.rivals.line_process import LineProcess, NoAnswer
from hlotune.deploy.rivals.runtimes import Runtime
from hlotune.schedules.processes import python_module, python_path

LIMIT_S = 120.0
"""Seconds that loading a model with its first call may take, and that one sample may take."""


class RivalError(Exception):
    """A runtime rejects a model, or its process ended; the message says which and why."""


class RivalProcess:
    """The process of a runtime that runs one model on one set of arrays.

    Raises RivalError where the runtime is not installed, rejects the model, ends, or takes longer
    than `limit_s`.
    """

    def __init__(
        self,
        runtime: Runtime,
        model: Path,
        arrays: Mapping[str, NDArray[Any]],
        threads: int,
        limit_s: float = LIMIT_S,
    ) -> None:
        if runtime.absent:
            raise RivalError(f"{runtime.name} is {runtime.absent}")
        self.runtime, self.limit_s = runtime, limit_s
        command = python_module("hlotune.deploy.rivals.worker", runtime.package, str(threads))
        self._errors = (model.parent / f"{runtime.package}.log").open("w+b")
        environment = {**os.environ, "PYTHONPATH": python_path()}
        self._process = LineProcess(command, environment, self._errors)
        try:
            self.version, self.results = self._begun(model, arrays)
        except BaseException:
            self.close()
            raise

    def _begun(
        self, model: Path, arrays: Mapping[str, NDArray[Any]]
    ) -> tuple[str, Sequence[NDArray[Any]]]:
        inputs, results = (
            model.parent / f"{self.runtime.package}.{what}.npz" for what in ("inputs", "results")
        )
        np.savez(inputs, **arrays)  # type: ignore[arg-type]
        said = self._ask({"model": str(model), "inputs": str(inputs), "results": str(results)})
        with np.load(results) as found:
            return str(said["version"]), [found[str(k)] for k in range(len(found.files))]

    def sample_s(self, warm: int, calls: int) -> float:
        """Mean seconds per call over `calls` calls, which follow `warm` calls that do not count."""
        return float(self._ask({"warm": warm, "calls": calls})["call_s"])

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            answer = self._process.ask(request, self.limit_s)
        except NoAnswer as none:
            name = self.runtime.name
            if none.timed_out:
                raise RivalError(f"{name} gave no answer within {self.limit_s:g} s") from None
            raise self._ended() from None
        if "failure" in answer:
            raise RivalError(f"{self.runtime.name} does not take the model: {answer['failure']}")
        return answer

    def _ended(self) -> RivalError:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        return RivalError(
            f"the process of {self.runtime.name} ended with {code}; it said last: {last[:200]}"
        )

    def close(self) -> None:
        self._process.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
