"""What runs in a worker process: `python -m hlotune.measure.workers.worker build` or `... device`.

A worker answers one request after another.  It ends at once when its parent is gone, even in the
middle of a request, and leaves Ctrl-C to the parent.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import IO

from hlotune.measure.workers.channel import Handler, Message, pack, read_message
from hlotune.schedules.garbage import searched_seldom


def serve(handlers: Mapping[str, Handler]) -> None:
    """Answers requests by their field `do`, for ever: the process ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = _private_output()
    requests: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, requests), daemon=True).start()
    _send(replies, Message({"ready": True}))
    while True:
        request = requests.get()
        _send(replies, handlers[request.header["do"]](request))


def _private_output() -> IO[bytes]:
    """The pipe to the parent, moved out of the reach of whoever prints: file 1 becomes file 2."""
    sys.stdout.flush()
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return pipe


def _receive(stream: IO[bytes], requests: "queue.SimpleQueue[Message]") -> None:
    while (message := read_message(stream)) is not None:
        requests.put(message)
    os._exit(0)


def _send(replies: IO[bytes], message: Message) -> None:
    replies.write(pack(message))
    replies.flush()


def main(role: str) -> None:
    searched_seldom()
    if role == "build":  # its handlers need no jax
        from hlotune.measure.workers.build_handler import handlers
    elif role == "device":
        from hlotune.measure.workers.device_handler import handlers
    else:
        raise SystemExit(
            f"expected the role build or device, got {role!r}; workers are started by hlotune"
        )
    try:
        serve(handlers())
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a candidate may have left threads behind that would never end


if __name__ == "__main__":
    main(sys.argv[1])
