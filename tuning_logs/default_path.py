"""Where the database is that nobody named: a rule for the command line and for `hlotune.jit`."""

import os
import sys
from pathlib import Path


def database_path(chosen: str | Path | None) -> Path:
    """What was chosen, else HLOTUNE_DB, else a file in the user's cache."""
    if chosen is not None:
        return Path(chosen)
    if named := os.environ.get("HLOTUNE_DB"):
        return Path(named).expanduser()
    return cache_directory() / "hlotune" / "tuning.db"


def cache_directory() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    name = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return Path(os.environ.get(name) or Path.home() / ".cache")
