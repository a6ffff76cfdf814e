"""Files that appear whole or not at all: who reads them never meets half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write, so that the file appears under its name when the block ends without an error.

    Links are followed.  What is no plain file, a device or a pipe, is written as it is: another
    file in its place would take it away from everybody.

    Raises OSError where the file cannot be put there.
    """
    if path.exists() and not path.is_file():  # /dev/stdout may lead to a name that is no path
        yield path
        return
    path = Path(os.path.realpath(path))
    part = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield part
        part.replace(path)
    finally:
        with suppress(OSError):  # where the folder is none, there is nothing to take away
            part.unlink(missing_ok=True)
