"""The side of one library: a process that prepares operations and times calls when it is asked.

Requests come in as lines of JSON, one answer goes out for each; before the first the worker tells
its library's version.  Whatever a library prints goes to the error stream.

    {"do": "prepare", "label", "case", "kind", "operation", "form", "inputs", "result"}
    {"do": "time", "label", "warm_s", "sample_s"}  ->  {"call_s", "calls"}
    {"do": "drop"}
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any, Protocol

import numpy as np

from benchmarks.operations import Array, Convolution, Operation, Product

KINDS: dict[str, type[Convolution | Product]] = {"Convolution": Convolution, "Product": Product}
LEAST_CALLS = 3
"""The calls of a sample whose calls are short."""
REST_LIMIT_S = 0.1
NAP_S = 1e-3
TASKS = Path("/proc/self/task")
END_WITH_PARENT = 1
"""Linux's name for it is PR_SET_PDEATHSIG."""


class Unsupported(Exception):
    """The library has no such operation, or not in this form: no failure of its own."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Something to call.  Results are in the operation's own layout, bf16 as f32."""

    call: Callable[[], object]
    """Returns when the result is there."""
    result: Callable[[], Array]


class Library(Protocol):
    """One library; bf16 operands come as f32 whose values bf16 can have."""

    @property
    def version(self) -> str: ...
    def prepare(
        self, case: str, operation: Operation, form: str, weights: Array, x: Array
    ) -> Prepared:
        """Raises Unsupported."""


def serve(library: Library) -> None:
    """Answers until the requests end."""
    served(Session(library))


def served(session: "Session") -> None:
    """Answers until the requests end; what libraries print goes to the error stream.

    The process ends with the one that started it, even where it was told to stop meanwhile.
    """
    ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answered(session, sys.stdin, answers)


def answered(session: "Session", requests: IO[str], answers: IO[str]) -> None:
    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say({"version": session.library.version})
    for line in requests:
        say(session.answer(json.loads(line)))


@dataclass(slots=True)
class Session:
    library: Library
    prepared: dict[str, Prepared] = field(default_factory=dict)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        asked = {"prepare": self.prepare, "time": self.time, "drop": self.drop}
        try:
            return asked[request["do"]](request)
        except Unsupported as error:
            return {"failure": "unsupported", "message": str(error)}
        except Exception as error:  # any library may raise anything
            return {"failure": "error", "message": f"{type(error).__name__}: {error}"[:400]}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        operation = operation_of(request["kind"], request["operation"])
        with np.load(request["inputs"]) as inputs:
            weights, x = inputs["weights"], inputs["x"]
        start = time.perf_counter()
        made = self.library.prepare(request["case"], operation, request["form"], weights, x)
        made.call()
        prepare_s = time.perf_counter() - start
        np.save(Path(request["result"]), np.ascontiguousarray(made.result()))
        self.prepared[request["label"]] = made
        rest()
        return {"prepare_s": prepare_s}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["label"] not in self.prepared:
            return {"failure": "crash", "message": "the process that had prepared it has ended"}
        call = self.prepared[request["label"]].call
        samples = timed(call, request["warm_s"], request["sample_s"])
        rest()
        return {"call_s": median(samples), "calls": len(samples)}

    def drop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.prepared.clear()
        return {}


def operation_of(kind: str, fields: dict[str, Any]) -> Operation:
    """An operation from JSON, where tuples are lists."""
    made: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return KINDS[kind](**made)


def timed(call: Callable[[], object], warm_s: float, sample_s: float) -> list[float]:
    """Seconds of blocking calls, one by one, until they fill `sample_s`.

    The calls before, for at least `warm_s`, bring the operands back into the caches and wake the
    library's threads.
    """
    start = time.perf_counter()
    while time.perf_counter() - start < warm_s:
        call()
    samples: list[float] = []
    while sum(samples) < sample_s or (len(samples) < LEAST_CALLS and samples[0] < sample_s):
        before = time.perf_counter()
        call()
        samples.append(time.perf_counter() - before)
    return samples


def rest(is_awake: Callable[[], bool] | None = None, limit_s: float = REST_LIMIT_S) -> None:
    """Returns when the other threads of this process sleep.

    Some libraries' look for work for up to thirty milliseconds after a call: whoever has the next
    turn would share a processor with them.
    """
    asked = is_awake or others_run
    end = time.perf_counter() + limit_s
    while asked() and time.perf_counter() < end:
        time.sleep(NAP_S)


def others_run() -> bool:
    """Whether a thread beside the caller's runs, or waits for a processor, as Linux tells.

    Their processor time would not do: the system adds it up only every few milliseconds.
    """
    own = str(threading.get_native_id())
    return any(_runs(task) for task in _names(TASKS) if task != own)


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.exists() else []


def _runs(task: str) -> bool:
    try:
        stat = (TASKS / task / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:  # it has ended
        return False
    return stat.rpartition(")")[2].split()[0] == "R"
