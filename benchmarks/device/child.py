"""A process that answers questions, one JSON line each; it may die or hang without harm."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POLL_S = 0.1
STDERR_BYTES = 1500
"""So much of what a dead child wrote last is kept."""


class ChildFailed(Exception):
    """The child died, did not answer in time, or answered with an error."""


class Child:
    """Runs `python -m MODULE`; it starts at the first question, and again after a failure."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str] | None = None):
        self._module, self._log = module, log
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.asked_s = 0.0
        """When the last question was asked."""
        self.starts = 0
        """How many processes it was so far."""

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ask(
        self, question: Mapping[str, Any], timeout_s: float, watch: Callable[[], None] | None = None
    ) -> dict[str, Any]:
        """Its answer; `watch` is called every tenth of a second meanwhile.

        Raises:
            ChildFailed: in any other case; the child is then gone, unless it said so itself.
        """
        self.send(question)
        return self.answer(timeout_s, watch)

    def send(self, question: Mapping[str, Any]) -> None:
        """Asks without waiting; a child that is gone is found out by `answer`."""
        process = self._started()
        assert process.stdin is not None
        self.asked_s = time.monotonic()
        with contextlib.suppress(OSError):
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()

    def answer(self, timeout_s: float, watch: Callable[[], None] | None = None) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while not self.ready(POLL_S):
            if watch is not None:
                watch()
            if time.monotonic() > deadline:
                raise ChildFailed(self._last_words(f"did not answer in {timeout_s:.0f} s"))
        process = self._started()
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ChildFailed(self._last_words("died"))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ChildFailed(answer["error"])
        return answer

    def ready(self, timeout_s: float) -> bool:
        """Whether an answer, or the end of the child, can be read."""
        process = self._started()
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            return bool(selector.select(timeout_s))

    def stop(self) -> None:
        """Kills the child and what it started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self.starts += 1
            path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", self._module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), **self._environment},
                    bufsize=0,
                    start_new_session=True,
                )
        return self._process

    def _last_words(self, what: str) -> str:
        """Ends the child; what it wrote last."""
        code = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(POLL_S)
        self.stop()
        words = self._log.read_bytes()[-STDERR_BYTES:].decode(errors="replace")
        ended = "killed" if code is None else f"exit status {code}"
        return f"{self._module} {what} ({ended}): {words}"


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers the questions on standard input until it ends; other prints go to stderr."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        try:
            made = answer(json.loads(line))
        except Exception as error:  # the parent keeps it as the failure of one candidate
            made = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:800]}"}
        out.write(json.dumps(made).encode() + b"\n")
