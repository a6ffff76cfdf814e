"""A worker whose builds do what the name of the algorithm says.  Run as a script."""

import os
import signal
import sys
import time

from hlotune.codegen.built import Built
from hlotune.measure.workers.channel import Message
from hlotune.measure.workers.wire import to_candidate
from hlotune.measure.workers.worker import serve


def build(request: Message) -> Message:
    algorithm = to_candidate(request.header["candidate"]).schedule.algorithm
    print("LLVM says something on standard output")
    if algorithm == "hang":
        time.sleep(1000)
    elif algorithm == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif algorithm == "exit":
        print("out of cheese", file=sys.stderr, flush=True)
        os._exit(7)
    elif algorithm == "nonsense":
        return Message({"is": "built"}, b"no object")
    return Message({"is": "built"}, Built(algorithm.encode(), 0, (), 0, os.getpid()).to_bytes())


if __name__ == "__main__":
    serve({"build": build})
