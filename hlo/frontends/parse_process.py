"""The process that parses program files first: `python -m hlotune.hlo.frontends.parse_process`.

`checked_parse.py` starts it and says what it is for.  Its standard input is a socket; a request
comes with the file, and the answer goes back with another one.
"""

import json
import math
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from hlotune.hlo.frontends.checked_parse import MOST_BYTES_OF_A_HEADER, Limits, Parsed
from hlotune.hlo.frontends.normal_form import parsed_file
from hlotune.hlo.mlir import module as mlir
from hlotune.schedules.errors import ProgramError

IDLE_S = 10.0
"""The process leaves when no file comes for so long."""
_LONGEST_REASON = 8000
"""Characters of an error; the rest would not fit into a header."""


def main() -> None:
    """Answers requests until the other end is gone, or silent for `IDLE_S`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=0) as end:
        end.send(json.dumps({"ready": True}).encode())
        end.settimeout(IDLE_S)
        while True:
            try:
                text, files, _, _ = socket.recv_fds(end, MOST_BYTES_OF_A_HEADER, 1)
            except TimeoutError:
                return
            if not text:
                return
            _answer(end, json.loads(text), files[0])


def _answer(end: socket.socket, request: Mapping[str, Any], file: int) -> None:
    limits = Limits(request["processor_s"], request["memory_bytes"])

    def allow(processor_s: float, size: int) -> None:
        more = Limits(
            limits.processor_s + processor_s + 2e-8 * size, limits.memory_bytes + 5 * size
        )
        end.send(json.dumps({"limits": asdict(more)}).encode())
        set_limits(more)

    try:
        with _limited(limits) as set_limits:
            parsed = _checked(file, request["path"], request["sizes"], allow)
            answer = os.memfd_create("normal form")
            with open(answer, "wb", closefd=False) as written:
                written.write(parsed.bytecode)
        socket.send_fds(end, [_header(parsed)], [answer])
        os.close(answer)
    except MemoryError:
        end.send(b"{}")
    except Exception as error:  # whatever a damaged file makes of our own code is one error, too
        end.send(json.dumps({"refused": _reason(error, request["path"])}).encode())
    finally:
        os.close(file)


def _header(parsed: Parsed) -> bytes:
    """Names that would not fit into a header are left out."""
    header = json.dumps({"names": parsed.names}).encode()
    return header if len(header) < MOST_BYTES_OF_A_HEADER else b"{}"


def _checked(
    file: int, path: str, sizes: Mapping[str, int], allow: Callable[[float, int], None]
) -> Parsed:
    """The file's program in normal form, which was read back as the parent will."""
    parsed = parsed_file(_content(file), path, sizes, allow)
    mlir.graph(mlir.parse(parsed.bytecode))
    return parsed


def _content(file: int) -> bytes:
    if os.fstat(file).st_size == 0:  # nothing can be mapped
        return b""
    with mmap(file, 0, access=ACCESS_READ) as mapped:
        return mapped[:]


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, ProgramError):
        return str(error)[:_LONGEST_REASON]
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    said = "".join(c if c.isprintable() else "?" for c in said)
    return (
        f"expected a program in {path}, got one that hlotune fails to read ({said}); the file is "
        "damaged, or has what hlotune does not take: write it again, or leave that out"
    )


@contextmanager
def _limited(limits: Limits) -> Iterator[Callable[[Limits], None]]:
    """Ends the process where the block takes more time; more memory is refused to it.

    Gives a function that sets other limits for the block, which count from its beginning.
    """
    before = {which: resource.getrlimit(which) for which in _LIMITED}
    used = {resource.RLIMIT_CPU: time.process_time(), resource.RLIMIT_DATA: _data_bytes()}

    def set_limits(to: Limits) -> None:
        more = {resource.RLIMIT_CPU: to.processor_s, resource.RLIMIT_DATA: to.memory_bytes}
        for which, (_, hard) in before.items():
            soft = math.ceil(used[which] + more[which])
            resource.setrlimit(which, (soft if hard < 0 else min(soft, hard), hard))

    try:
        set_limits(limits)
        yield set_limits
    finally:
        for which, limit in before.items():
            resource.setrlimit(which, limit)


_LIMITED = (resource.RLIMIT_CPU, resource.RLIMIT_DATA)


def _data_bytes() -> int:
    """Memory of the process that counts against RLIMIT_DATA."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    return 1024 * int(status.partition("VmData:")[2].split()[0])


if __name__ == "__main__":
    main()
