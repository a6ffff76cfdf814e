"""The process of one other runtime: `python -m hlotune.deploy.rivals.worker PACKAGE THREADS`.

Requests come as lines of JSON on the standard input, and each has one answer; what the runtime
prints goes to the error stream.

    {"model", "inputs", "results"}  ->  {"version"}            the results are in a file of NumPy
    {"warm", "calls"}               ->  {"call_s"}             the mean of so many calls
"""

import importlib.metadata
import json
import os
import resource
import signal
import sys
import time
from typing import Any

import numpy as np

from hlotune.deploy.rivals.runtimes import RUNTIMES, Call

LONGEST_REASON = 500


def main() -> None:
    """Answers until the requests end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    package, threads = sys.argv[1], int(sys.argv[2])
    call: Call | None = None
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        try:
            if call is None:
                call = _prepared(package, threads, request)
                answer: dict[str, Any] = {"version": importlib.metadata.version(package)}
            else:
                answer = {"call_s": _timed(call, request["warm"], request["calls"])}
        except Exception as error:  # a runtime may raise anything
            said = " ".join(f"{type(error).__name__}: {error}".split())
            answer = {"failure": said[:LONGEST_REASON]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _prepared(package: str, threads: int, request: dict[str, Any]) -> Call:
    with np.load(request["inputs"]) as arrays:
        given = dict(arrays)
    call = RUNTIMES[package].prepare(request["model"], given, threads)
    results = {str(k): np.asarray(x) for k, x in enumerate(call())}
    np.savez(request["results"], **results)  # type: ignore[arg-type]
    return call


def _timed(call: Call, warm: int, calls: int) -> float:
    for _ in range(warm):
        call()
    start_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start_s) / calls


if __name__ == "__main__":
    main()
