"""A worker process seen from outside: requests and replies over its standard streams.

A frame is two little-endian integers (bytes of the header, bytes of the blob), the header in
JSON, the blob.  Nothing that comes from a worker is ever executed or unpickled.
"""

import json
import os
import select
import signal
import struct
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from hlotune.measure.machine.suspend_timeout import Late, Patience
from hlotune.measure.trial import Failure, FailureKind
from hlotune.schedules.processes import python_path

Header = Mapping[str, Any]
_SIZES = struct.Struct("<IQ")
_MOST_BYTES = 1 << 32
_START_S = 120.0
"""A worker that has not said that it is ready by then never will."""
_SET_BY_JAX = ("TF_CPP_MIN_LOG_LEVEL", "TPU_SKIP_MDS_QUERY")
"""Variables that importing jax puts into the environment of this process, and of a worker."""


@dataclass(frozen=True, slots=True)
class Message:
    header: Header
    blob: bytes = b""


Handler = Callable[[Message], Message]
"""Answers a request in a worker.  An exception ends the worker; the parent reports a crash."""


def pack(message: Message) -> bytes:
    header = json.dumps(message.header).encode()
    return _SIZES.pack(len(header), len(message.blob)) + header + message.blob


def read_message(stream: IO[bytes]) -> Message | None:
    """The next message of a blocking stream; None where the stream ends."""
    sizes = stream.read(_SIZES.size)
    if len(sizes) < _SIZES.size:
        return None
    header_bytes, blob_bytes = _SIZES.unpack(sizes)
    header, blob = stream.read(header_bytes), stream.read(blob_bytes)
    if len(header) + len(blob) < header_bytes + blob_bytes:
        return None
    return Message(json.loads(header), blob)


class Ended(Exception):
    """The other end of the channel is gone."""


@dataclass
class Channel:
    """Requests to a process: started on demand, killed when late, started anew when dead.

    Not for use by several threads at once.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _log: IO[bytes] | None = None
    _is_ready: bool = False
    """Whether the process has said so."""
    _begun_under: Mapping[str, str] = field(default_factory=dict)
    """The environment that the process was given, but for its path and what jax adds."""

    def request(self, message: Message, timeout_s: float) -> Message | Failure:
        """The worker's answer, or why there is none.

        `timeout` and `crash` are the request's doing; `device` is a mishap of the machine: no
        process, no memory, no files.
        """
        ready = False
        try:
            self._started()
            ready = True
            patience = Patience(timeout_s)
            self._write(pack(message), patience)
            return self._read(patience)
        except Late:
            self.close()
            if not ready:
                return Failure("device", f"no worker was ready within {_START_S:g} s")
            return Failure("timeout", f"no answer within {timeout_s:g} s; the worker was stopped")
        except ValueError as error:  # a candidate may have written nonsense over everything
            self.close()
            kind: FailureKind = "crash" if ready else "device"
            return Failure(kind, f"the worker's answer made no sense ({error})")
        except OSError as error:
            self.close()
            return Failure("device", f"the system refused a worker something it needs ({error})")
        except Ended:
            died = self._epitaph()
            return died if ready else Failure("device", f"before it was ready, {died.message}")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the process, if there is one.  The next request starts another."""
        process, self._process, self._is_ready = self._process, None, False
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    @property
    def is_begun(self) -> bool:
        """Whether there is a process, ready or not."""
        return self._process is not None

    def begin(self) -> None:
        """Starts the process, if there is none, and does not wait for it.

        One that was begun under another environment is started anew.  What goes wrong is told to
        the next request.
        """
        if self._process is not None and self._begun_under != self._environment():
            self.close()
        try:
            self._begin()
        except OSError:
            self.close()

    def settle(self) -> None:
        """Waits until a process that was begun has imported what it needs, or never will."""
        try:
            self._started()
        except (Late, Ended, OSError, ValueError):
            self.close()

    def _environment(self) -> dict[str, str]:
        given = {k: v for k, v in os.environ.items() if k not in _SET_BY_JAX}
        return {**given, **self.environment}

    def _begin(self) -> None:
        if self._process is not None:
            return
        self._begun_under = self._environment()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": python_path(), **self.environment},
            bufsize=0,
        )
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    def _started(self) -> None:
        self._begin()
        if not self._is_ready:
            self._read(Patience(_START_S))
            self._is_ready = True

    def _write(self, data: bytes, patience: Patience) -> None:
        assert self._process is not None and self._process.stdin is not None
        view, end = memoryview(data), self._process.stdin.fileno()
        while view:
            _wait(end, select.POLLOUT, patience)
            try:
                view = view[os.write(end, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise Ended from None

    def _read(self, patience: Patience) -> Message:
        sizes = _SIZES.unpack(self._read_exactly(_SIZES.size, patience))
        if max(sizes) > _MOST_BYTES:
            raise ValueError(f"expected a frame of at most {_MOST_BYTES} bytes, got {sizes}")
        header, blob = (self._read_exactly(n, patience) for n in sizes)
        return Message(json.loads(header), blob)

    def _read_exactly(self, count: int, patience: Patience) -> bytes:
        assert self._process is not None and self._process.stdout is not None
        end, parts, missing = self._process.stdout.fileno(), list[bytes](), count
        while missing:
            _wait(end, select.POLLIN, patience)
            part = os.read(end, min(missing, 1 << 20))
            if not part:
                raise Ended
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _epitaph(self) -> Failure:
        """How the process ended, and the last thing that it said.

        Nobody but the system kills a worker whose channel is open: it is out of memory.
        """
        assert self._process is not None and self._log is not None
        code: int | None = None
        try:
            code = self._process.wait(timeout=5.0)
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        except subprocess.TimeoutExpired:
            how = "it closed its streams"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - 500))
        said = [x for x in self._log.read().decode(errors="replace").splitlines() if x.strip()]
        self.close()
        message = f"the worker died ({how})" + (f": {said[-1]}" if said else "")
        if code == -signal.SIGKILL:
            return Failure("device", f"{message}; the system kills when memory runs out")
        return Failure("crash", message)


def _wait(end: int, event: int, patience: Patience) -> None:
    """Until a stream is ready, or closed; unlike `select`, `poll` takes any number of file.

    Raises Late.
    """
    poll = select.poll()
    poll.register(end, event)
    patience.wait(lambda seconds: poll.poll(1e3 * seconds))
