"""Our side of a worker: a process that is asked one thing at a time, with a time limit."""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from benchmarks.peers.contestants import FOLDER, Contestant
from hlotune.codegen.runtime.malloc_settings import KEEPING
from hlotune.deploy.rivals.line_process import LineProcess, NoAnswer

START_LIMIT_S = 120.0
Kind = Literal["missing", "unsupported", "error", "crash", "timeout", "wrong_result"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a contestant has no time."""

    kind: Kind
    message: str


class Worker:
    """Starts at once; what cannot start is a Refusal in `version`, and in every answer."""

    def __init__(self, contestant: Contestant, threads: int, *, pauses: bool = False) -> None:
        """`pauses`: the process stands still while nothing is asked, so that threads of it which
        look for work disturb nobody."""
        self.contestant, self.threads, self.pauses = contestant, threads, pauses
        self._process = self._started()
        self._version: str | Refusal | None = None
        """None until the first line of the worker was read."""

    @property
    def version(self) -> str | Refusal:
        """Waits for the worker's first line."""
        if self._version is None:
            self._version = self._read_version()
        return self._version

    def _read_version(self) -> str | Refusal:
        if self._process is None:
            folder = self.contestant.python.parent.parent
            return Refusal("missing", f"no environment at {folder}")
        answer = self._answer(lambda process: process.read(START_LIMIT_S), START_LIMIT_S)
        if isinstance(answer, Refusal):
            return Refusal("missing", answer.message)
        return str(answer["version"])

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | Refusal:
        """An answer, or why there is none; after a crash or a time-out the worker is a new one."""
        if isinstance(self.version, Refusal):
            return self.version
        self._signal(signal.SIGCONT)
        answer = self._answer(lambda process: process.ask(request, limit_s), limit_s)
        self._signal(signal.SIGSTOP)
        if isinstance(answer, Refusal):
            self.close()
            self._process, self._version = self._started(), None
            return answer
        if "failure" in answer:
            return Refusal(answer["failure"], answer["message"])
        return answer

    def _answer(
        self, asked: Callable[[LineProcess], dict[str, Any]], limit_s: float
    ) -> dict[str, Any] | Refusal:
        assert self._process is not None
        try:
            return asked(self._process)
        except NoAnswer as none:
            if none.timed_out:
                return Refusal("timeout", f"no answer within {limit_s:g} s")
            return Refusal("crash", f"{self.contestant.name} ended: {self._last_words()}")

    def _signal(self, number: signal.Signals) -> None:
        """Signals the process where it pauses."""
        if self.pauses and self._process is not None:
            self._process.signal(number)

    def _started(self) -> LineProcess | None:
        if not self.contestant.python.exists():
            return None
        log = FOLDER / f"{self.contestant.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            return LineProcess(self.contestant.command, environment(self.threads), errors)

    def _last_words(self) -> str:
        log = FOLDER / f"{self.contestant.name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without a word"

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def environment(threads: int) -> dict[str, str]:
    """The caller's, with the number of threads by all the names that libraries read it from.

    Memory that a call frees stays with its process, whoever's it is: else a library's time is that
    of its kernel in one process, and in the next that of new pages as well.
    """
    names = ("PEER_THREADS", "OMP_NUM_THREADS", "TVM_NUM_THREADS")
    root = Path(__file__).parent.parent.parent
    told = {
        **dict.fromkeys(names, str(threads)),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(root),
        "PYTHONWARNINGS": "ignore",
        **KEEPING,
        "TORCHINDUCTOR_CACHE_DIR": str(FOLDER.resolve() / "inductor"),
    }
    return {**os.environ, **told}
