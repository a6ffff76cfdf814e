"""Program files are parsed in another process first, with limits of time and memory.

MLIR and XLA end their process at some damaged files, and never end at others.  The process that
parses first hands over the module in normal form, as bytecode that it has read back itself; only
that is read here.  The file's bytes reach it as a mapping, not through a pipe.  One process serves
several files and leaves when none comes for a while.  Nothing here imports jax or jaxlib.
"""

import atexit
import errno
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from hlotune.schedules.errors import ProgramError
from hlotune.schedules.processes import python_module, python_path
from hlotune.schedules.targets.cpu import HOST_PLATFORM

COMMAND = python_module("hlotune.hlo.frontends.parse_process")
MOST_BYTES_OF_A_HEADER = 1 << 16
MOST_BYTES_OF_A_PIPE = 1 << 30
"""What a pipe or a device gives is kept in memory, and some devices never end."""
_START_S = 120.0
_WAITING = 6.0
"""Seconds to wait for each second of processor time that the process may take."""
_SLICE_S = 0.5
"""A wait is counted in pieces, so that it stands still while this process is suspended."""
_LAST_WORDS = re.compile(r"(Check failed: |LLVM ERROR: |what\(\): |Assertion ).*")
_OUT_OF_MEMORY = re.compile(r"bad_alloc|out of memory|MemoryError|Cannot allocate memory", re.I)


@dataclass(frozen=True, slots=True)
class Limits:
    """What parsing one file may take."""

    processor_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Parsed:
    """A program in normal form, as MLIR reads it without harm."""

    bytecode: bytes
    names: tuple[str, ...] = ()
    """The names of its arguments, where the file has them."""


def limits_of(file_bytes: int) -> Limits:
    """8 s and 1 GB, and for each 100 MB of the file 2 s and 500 MB more."""
    return Limits(8.0 + 2e-8 * file_bytes, 10**9 + 5 * file_bytes)


def normal_form_of(path: Path) -> bytes:
    """MLIR bytecode of the program that a file holds; raises ProgramError as `parsed` does."""
    return parsed(path).bytecode


def parsed(path: Path, sizes: Mapping[str, int] | None = None) -> Parsed:
    """The program that a file holds.

    Args:
        sizes: of its symbolic dimensions, by name.

    Raises:
        ProgramError: the file cannot be read, holds no program or one that hlotune does not take,
            or takes more time or memory than a file of its size should.
    """
    try:
        opened = _opened(path)
    except FileNotFoundError as error:
        raise ProgramError(f"expected a program file {path}, found none; check the path") from error
    except OSError as error:
        raise ProgramError(
            f"expected a program file, got {error.strerror} for {path}; check the path"
        ) from error
    with opened, shared_process.lock:
        return shared_process.normal_form(path, opened, sizes or {})


def begin() -> None:
    """Starts the process, if there is none, and does not wait until it is ready."""
    with shared_process.lock, suppress(OSError):  # what goes wrong is told to the first file
        shared_process.begin()


def _opened(path: Path) -> IO[bytes]:
    """A file that can be mapped: a pipe or a device is copied into one."""
    opened = path.open("rb")
    if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        return opened
    with opened:
        copy = open(os.memfd_create(path.name), "w+b")  # noqa: SIM115 (the caller closes it)
        while part := opened.read(1 << 20):
            copy.write(part)
            if copy.tell() > MOST_BYTES_OF_A_PIPE:
                copy.close()
                raise OSError(errno.EFBIG, f"more than {MOST_BYTES_OF_A_PIPE >> 20} MB")
        copy.flush()
        return copy


class _Ended(Exception):
    """The process is gone."""


class _Late(Exception):
    """The process has not answered in time."""


@dataclass
class ParseProcess:
    """The process that parses: started on demand, killed when late, started anew when gone."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    _child: subprocess.Popen[bytes] | None = None
    _end: socket.socket | None = None
    _log: IO[bytes] | None = None
    _is_ready: bool = False

    def begin(self) -> None:
        """Raises OSError where the system has no process or memory for it."""
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is not None:
            return
        try:
            self._end, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with its_end:
                self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
                self._child = subprocess.Popen(
                    COMMAND,
                    stdin=its_end.fileno(),
                    stdout=self._log,
                    stderr=self._log,
                    env={**os.environ, "PYTHONPATH": python_path(), "JAX_PLATFORMS": HOST_PLATFORM},
                )
        except OSError:
            self.close()
            raise

    @property
    def process_id(self) -> int | None:
        """None where there is no process."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """Ends the process, if there is one."""
        child, self._child, self._is_ready = self._child, None, False
        if child is not None:
            child.kill()
            child.wait()
        self.disconnect()

    def disconnect(self) -> None:
        """Leaves the process alone, which then ends itself."""
        for held in (self._end, self._log):
            if held is not None:
                held.close()
        self._end = self._log = None

    def normal_form(
        self, path: Path, file: IO[bytes], sizes: Mapping[str, int] = MappingProxyType({})
    ) -> Parsed:
        """Raises ProgramError as `parsed` does."""
        limits = limits_of(os.fstat(file.fileno()).st_size)
        request = {
            "path": str(path),
            "sizes": dict(sizes),
            "processor_s": limits.processor_s,
            "memory_bytes": limits.memory_bytes,
        }
        try:
            header, content, limits = self._asked(path, file, request, limits)
        except OSError as error:
            self.close()
            raise ProgramError(
                f"expected the system to run a process that reads {path}, got {error.strerror}; "
                "free memory or processes, and try again"
            ) from error
        except BaseException:
            self.close()
            raise
        if "refused" in header:
            raise ProgramError(header["refused"])
        if content is None:
            raise too_much_memory(path, limits)
        return Parsed(content, tuple(header.get("names", ())))

    def _asked(
        self, path: Path, file: IO[bytes], request: Mapping[str, Any], limits: Limits
    ) -> tuple[Mapping[str, Any], bytes | None, Limits]:
        """The answer, and the limits that held in the end."""
        for _ in range(2):
            try:
                self._start(path)
                assert self._end is not None
                socket.send_fds(self._end, [json.dumps(request).encode()], [file.fileno()])
                header, content = self._answer(_WAITING * limits.processor_s)
                while "limits" in header:  # the file has more to read in other files
                    limits = Limits(**header["limits"])
                    header, content = self._answer(_WAITING * limits.processor_s)
                return header, content, limits
            except _Late:
                raise too_late(path, limits) from None
            except (_Ended, BrokenPipeError, ConnectionResetError):
                code, said = self._epitaph()
                if code != 0:  # one that had waited for long leaves with 0
                    raise failure(path, limits, code, said) from None
        raise failure(path, limits, 0, "")

    def _start(self, path: Path) -> None:
        """Waits until the process is ready."""
        self.begin()
        if self._is_ready:
            return
        try:
            self._answer(_START_S)
        except (_Ended, _Late) as error:
            _, said = ("", "it did not begin") if isinstance(error, _Late) else self._epitaph()
            last = (said.strip().splitlines() or ["it said nothing"])[-1]
            raise ProgramError(
                f"expected a process that reads {path}, got none: {last}; "
                "check that `import jaxlib.mlir.ir` works in Python"
            ) from None
        self._is_ready = True

    def _answer(self, limit_s: float) -> tuple[Mapping[str, Any], bytes | None]:
        """Raises _Late, _Ended."""
        assert self._end is not None
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        for _ in range(1 + int(limit_s / _SLICE_S)):
            if poll.poll(1e3 * _SLICE_S):
                break
        else:
            raise _Late
        text, files, _, _ = socket.recv_fds(self._end, MOST_BYTES_OF_A_HEADER, 1)
        if not text:
            raise _Ended
        contents = [_content(file) for file in files]
        return json.loads(text), contents[0] if contents else None

    def _epitaph(self) -> tuple[int, str]:
        """How the process ended, and the end of what it said."""
        assert self._child is not None and self._log is not None
        code = self._child.wait()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - (1 << 16)))
        said = self._log.read().decode(errors="replace")
        self.close()
        return code, said


def _content(file: int) -> bytes:
    with open(file, "rb") as opened:
        opened.seek(0)
        return opened.read()


def failure(path: Path, limits: Limits, code: int, said: str) -> ProgramError:
    """The error for a file at which the process ended.

    Args:
        code: exit code, or minus the signal.
        said: what the process wrote.
    """
    if code == -signal.SIGXCPU:
        return too_late(path, limits)
    if code == -signal.SIGKILL or _OUT_OF_MEMORY.search(said):
        return too_much_memory(path, limits)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    found = _LAST_WORDS.search(said)
    words = "".join(c if c.isprintable() else "?" for c in found.group()[:200]) if found else ""
    return ProgramError(
        f"expected a program in {path}, got one at which MLIR ends its process ({how})"
        f"{': ' if words else ''}{words}; the file is damaged, or has what this version of MLIR "
        "does not read: write it again, or leave that out"
    )


def too_late(path: Path, limits: Limits) -> ProgramError:
    return ProgramError(
        f"expected a program of the size of {path} to be read within {limits.processor_s:.3g} s, "
        "got one that takes longer; the file is damaged, or its calls multiply: write it again"
    )


def too_much_memory(path: Path, limits: Limits) -> ProgramError:
    return ProgramError(
        f"expected a program of the size of {path} to be read within "
        f"{limits.memory_bytes / 1e9:.3g} GB of memory, got one that needs more; the file is "
        "damaged, or the machine has too little free: write it again, or free memory"
    )


shared_process = ParseProcess()
_forked_from: list[ParseProcess] = []
"""In a forked process, the parent's parser, which the parent is to end."""


def _forget() -> None:
    """Forgets the parser in a forked process: process, socket and lock belong to the parent."""
    global shared_process
    shared_process.disconnect()
    _forked_from.append(shared_process)
    shared_process = ParseProcess()


def _close() -> None:
    shared_process.close()


os.register_at_fork(after_in_child=_forget)
atexit.register(_close)
