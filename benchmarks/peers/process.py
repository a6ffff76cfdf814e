"""Our side of a worker: a process that is asked one thing at a time, with a time limit."""

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from benchmarks.peers.contestants import FOLDER, Contestant
from hlotune.codegen.runtime.malloc_settings import KEEPING

START_LIMIT_S = 120.0
Kind = Literal["missing", "unsupported", "error", "crash", "timeout", "wrong_result"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a contestant has no time."""

    kind: Kind
    message: str


class Worker:
    """Starts at once; what cannot start is a Refusal in `version`, and in every answer."""

    def __init__(self, contestant: Contestant, threads: int) -> None:
        self.contestant, self.threads = contestant, threads
        self._rest = b""
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
        answer = self._answer(START_LIMIT_S)
        if isinstance(answer, Refusal):
            return Refusal("missing", answer.message)
        return str(answer["version"])

    def ask(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any] | Refusal:
        """An answer, or why there is none; after a crash or a time-out the worker is a new one."""
        if isinstance(self.version, Refusal):
            return self.version
        answer = self._asked(request) or self._answer(limit_s)
        if isinstance(answer, Refusal):
            self.close()
            self._process, self._version = self._started(), None
            return answer
        if "failure" in answer:
            return Refusal(answer["failure"], answer["message"])
        return answer

    def _asked(self, request: Mapping[str, Any]) -> Refusal | None:
        assert self._process and self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return Refusal("crash", f"{self.contestant.name} is gone")
        return None

    def _started(self) -> subprocess.Popen[bytes] | None:
        if not self.contestant.python.exists():
            return None
        self._rest = b""
        log = FOLDER / f"{self.contestant.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            return subprocess.Popen(
                self.contestant.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(self.threads),
            )

    def _answer(self, limit_s: float) -> dict[str, Any] | Refusal:
        if self._process is None:
            return Refusal("missing", f"no environment at {self.contestant.python.parent.parent}")
        assert self._process.stdout
        until = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], until - time.monotonic())
            if not ready:
                return Refusal("timeout", f"no answer within {limit_s:g} s")
            read = os.read(self._process.stdout.fileno(), 1 << 16)
            if not read:
                return Refusal("crash", f"{self.contestant.name} ended: {self._last_words()}")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        log = FOLDER / f"{self.contestant.name}.log"
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "without a word"

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
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
