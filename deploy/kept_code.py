"""Machine code of kernels that programs call, kept in the user's cache.

To build a kernel takes about a tenth of a second, and a program has dozens.  A file only saves that
time.  It is used where its code is what a record names as verified and the folder is the user's
alone; where it is missing or damaged, the kernel is built, and where it cannot be written, nothing
is said.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path

from hlotune.codegen.built import Built
from hlotune.hlo.kernel import Kernel
from hlotune.measure.machine.targets import toolchain
from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import BuildError, DatabaseError
from hlotune.schedules.steps.schedule import Schedule
from hlotune.schedules.targets.target import Target
from hlotune.tuning_logs.default_path import cache_directory

MOST_FILES = 1000
"""Where a folder has more, those that were used longest ago are removed; a file has some 50 KB."""
BACKEND = "llvm"
"""Building for other backends takes no time worth a file."""
OTHERS_WRITE = 0o022


def kept(kernel: Kernel, schedule: Schedule, target: Target, code: str | None) -> Built | None:
    """The code of a schedule whose hash is `code` (`Built.key`); None where it is not kept."""
    path = _file(kernel, schedule, target)
    if path is None or code is None:
        return None
    try:
        if not _is_private(path.parent):
            return None
        digest, _, stored = path.read_bytes().partition(b"\n")
        if hashlib.sha256(stored).hexdigest().encode() != digest:
            return None
        built = Built.from_bytes(stored)
        os.utime(path)
    except (OSError, BuildError):
        return None
    return built if built.key == code and built.backend == BACKEND else None


def keep(kernel: Kernel, schedule: Schedule, target: Target, built: Built) -> None:
    """Keeps code that is right."""
    path = _file(kernel, schedule, target)
    if path is None or built.backend != BACKEND:
        return
    stored = built.to_bytes()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with whole(path) as part:
            part.write_bytes(hashlib.sha256(stored).hexdigest().encode() + b"\n" + stored)
        _remove_oldest(path.parent)


def _file(kernel: Kernel, schedule: Schedule, target: Target) -> Path | None:
    """The file of a kernel's schedule; None where there is no home folder."""
    what = (kernel.key, schedule.to_json(), target.fingerprint, toolchain().key)
    name = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    with suppress(DatabaseError):
        return cache_directory() / "hlotune" / "code" / name
    return None


def _is_private(folder: Path) -> bool:
    """Whether nobody else can write into a folder, as far as the system tells."""
    found = folder.stat()
    mine = not hasattr(os, "getuid") or found.st_uid == os.getuid()
    return mine and (os.name == "nt" or not found.st_mode & OTHERS_WRITE)


def _remove_oldest(folder: Path) -> None:
    files = [(x.stat().st_mtime, x.path) for x in os.scandir(folder) if x.is_file()]
    for _, path in sorted(files)[: max(0, len(files) - MOST_FILES)]:
        with suppress(OSError):
            os.unlink(path)
