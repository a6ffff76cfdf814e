"""Where the database is that nobody named: a rule for the command line and for `hlotune.jit`."""

import os
import sys
from pathlib import Path

from hlotune.schedules.errors import DatabaseError


def database_path(chosen: str | Path | None) -> Path:
    """The path that was chosen, else HLOTUNE_DB, else a file in the user's cache.

    Raises DatabaseError where HLOTUNE_DB begins with `~` and a user that is not known, or where it
    is not set and there is no home folder.
    """
    if chosen is not None:
        return Path(chosen)
    if named := os.environ.get("HLOTUNE_DB"):
        try:
            return Path(named).expanduser()
        except RuntimeError as error:
            raise DatabaseError(
                f"expected HLOTUNE_DB to name a file, got {named!r}, and nobody knows the home "
                "folder that it begins with; give the path in full"
            ) from error
    return cache_directory() / "hlotune" / "tuning.db"


def cache_directory() -> Path:
    """The folder of the user for files that can be made again.

    Raises DatabaseError where there is no home folder.
    """
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches"
    name = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    named = os.environ.get(name)
    return Path(named) if named else _home() / ".cache"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise DatabaseError(
            "expected a home folder, where hlotune keeps what nobody named a place for, found none "
            "for this user; name a database (--database, HLOTUNE_DB), or set HOME"
        ) from error
