"""Which runs this user began on this machine: those alone may name Python code to run again.

A database may come from anybody, and says of each run which program it tuned.  To go on with a run
by its record would run Python that a stranger has named.  So the beginning of a run is noted in the
user's own folder for caches, where no database writes.
"""

import json
import platform
from contextlib import suppress
from pathlib import Path

from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import DatabaseError
from hlotune.tuning_logs.default_path import cache_directory


def remember(run: str, source: str) -> None:
    """Notes that a run of this program begins.

    Where that cannot be written nothing is noted, and `tune resume` asks for the program.
    """
    with suppress(OSError, DatabaseError):
        path = _note(run)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with whole(path) as part:
            part.write_text(json.dumps(_said(source)), encoding="utf-8")


def forget(run: str) -> None:
    """Removes the note of a run that has finished."""
    with suppress(OSError, DatabaseError):
        _note(run).unlink(missing_ok=True)


def is_own(run: str, source: str) -> bool:
    """Whether this user began the run here, with the code that the source names here and now."""
    try:
        noted = json.loads(_note(run).read_text(encoding="utf-8"))
    except (OSError, ValueError, DatabaseError):
        return False
    return bool(noted == _said(source))


def _note(run: str) -> Path:
    """Raises DatabaseError where there is no home folder, or the run's id is no name of a file."""
    if not run.isalnum():
        raise DatabaseError(f"expected the id of a run, letters and digits, got {run!r:.80}")
    return cache_directory() / "hlotune" / "runs" / f"{run}.json"


def _said(source: str) -> dict[str, str]:
    """A relative name means another file in another folder, and a module may be another there."""
    return {"machine": platform.node(), "source": source, "folder": str(Path.cwd())}
