"""The children of a run, and what is asked of them."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.device.cases import Case, as_json
from benchmarks.device.child import Child, ChildFailed
from benchmarks.device.records import Row
from hlotune.measure.machine.gpu_clocks import GpuClocks

MEASURING, COMPILING, PEER, MODELS = (
    f"benchmarks.device.{m}" for m in ("measuring", "compiling", "peer", "models")
)
ALLOCATOR = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
START_S, PREPARE_S, TRIAL_S, ROUND_S = 60.0, 60.0, 8.0, 8.0
"""Longest times of one answer."""
ERROR_CHARACTERS = 800
BROKEN = "CUDA_ERROR", "INTERNAL:"
"""Errors after which a process cannot use its device any more."""


class Crew:
    """One child measures, some compile, one times PyTorch, one tunes whole models; all may be
    replaced at any time."""

    def __init__(self, folder: Path, compilers: int, interpret: bool):
        folder.mkdir(parents=True, exist_ok=True)
        self.interpret = interpret
        self.scratch = Path(tempfile.mkdtemp(prefix="hlotune_device_"))
        log = folder / "children.log"
        self.measuring = Child(MEASURING, log, ALLOCATOR)
        self.compiling = [Child(COMPILING, log, ALLOCATOR) for _ in range(compilers)]
        self.peer = Child(PEER, log)
        self.models = Child(MODELS, log, ALLOCATOR)
        self._clocks = GpuClocks()
        self._prepared: dict[Child, str] = {}

    def start(self) -> dict[str, Any]:
        """Starts all that JAX needs at once; facts and peaks of the device."""
        for child in self.compiling:
            child.send({"do": "start"})
        facts = self.measuring.ask({"do": "machine", "peaks": not self.interpret}, START_S)
        for child in self.compiling:
            child.answer(START_S)
        return {**facts, "clocks": self._clocks.read()}

    def stop(self) -> None:
        for child in (self.measuring, self.peer, self.models, *self.compiling):
            child.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def program(self, child: Child, case: Case, how: str, timeout_s: float) -> Row:
        """A rival's outcome; one that failed has an error, and is not right."""
        return self._outcome(child, case, {"do": "program", "how": how}, timeout_s)

    def trial(self, case: Case, question: Mapping[str, Any]) -> Row:
        """A candidate's outcome."""
        return self._outcome(self.measuring, case, question, TRIAL_S)

    def hold(self, case: Case, question: Mapping[str, Any], name: str) -> bool:
        """Whether a candidate was loaded for rounds."""
        with contextlib.suppress(ChildFailed):
            self._prepare(case, self.measuring)
            self.measuring.ask({**question, "hold": name}, TRIAL_S)
            return True
        return False

    def round(self, child: Child, how: str) -> Row:
        """One burst of what a child holds.

        Raises:
            ChildFailed: where it does not hold it any more.
        """
        return self._watched(child, {"do": "round", "how": how}, ROUND_S)

    def holds(self, child: Child, case: Case) -> bool:
        """Whether the child is still the one that was prepared for the case."""
        return child.running and self._prepared.get(child) == case.name

    def _outcome(
        self, child: Child, case: Case, question: Mapping[str, Any], timeout_s: float
    ) -> Row:
        try:
            self._prepare(case, child)
            return self._watched(child, question, timeout_s)
        except ChildFailed as failure:
            if any(sign in str(failure) for sign in BROKEN):
                child.stop()
                self._prepared.pop(child, None)
            return {"right": False, "error": str(failure)[-ERROR_CHARACTERS:]}

    def _prepare(self, case: Case, child: Child) -> None:
        if not self.holds(child, case):
            self._prepared.pop(child, None)
            child.ask({"do": "kernel", "kernel": as_json(case.kernel)}, START_S + PREPARE_S)
            self._prepared[child] = case.name

    def _watched(self, child: Child, question: Mapping[str, Any], timeout_s: float) -> Row:
        """The answer, with the clocks seen meanwhile."""
        seen: list[dict[str, float]] = []
        answer = child.ask(question, timeout_s, lambda: seen.append(self._clocks.read()))
        seen.append(self._clocks.read())
        return {**answer, "clocks": ranges(seen)}


def ranges(seen: list[dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Smallest and largest of each figure."""
    names = sorted({name for figures in seen for name in figures})
    known = {name: [f[name] for f in seen if name in f] for name in names}
    return {name: (min(values), max(values)) for name, values in known.items()}


def short(facts: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in facts.items() if name != "clocks"})
