"""Zip archives of stored members: they are checked before any memory is taken for what they hold.

Nothing is decompressed, so that reading a file never takes more memory than the file has bytes.
"""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import ProgramError
from hlotune.tuning_logs.text import escaped, is_plain

AGAIN = "write the file again with `tune apply`"
"""What to do about each kind of damage."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""The date of all members: equal members make equal files."""
_ENCRYPTED = 1
"""Bit of a member's flags."""
_NO_ARCHIVE = (zipfile.BadZipFile, NotImplementedError, ValueError)
"""What Python's zipfile raises where the directory of an archive is damaged."""
_CUT_SHORT = (*_NO_ARCHIVE, EOFError, RuntimeError)
"""The same, where the header or the bytes of a member are."""


def write_stored(path: Path, members: Mapping[str, bytes]) -> None:
    """Writes members as they are; the file appears whole or not at all.

    Raises OSError where the file cannot be written.
    """
    with whole(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), data)


def read_stored(path: Path) -> dict[str, bytes]:
    """The members of an archive, by name.

    Raises:
        ProgramError: the file is missing, is no archive, or has members that are compressed, stand
            twice, or have sizes that do not fit into the file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check(path, members, path.stat().st_size)
            return {m.filename: _bytes_of(path, archive, m) for m in members}
    except OSError as error:
        raise ProgramError(
            f"expected a tuned program at {path}, got {error.strerror}; check the path"
        ) from error
    except _NO_ARCHIVE as error:
        if isinstance(error, ProgramError):
            raise
        raise ProgramError(
            f"expected a tuned program that `tune apply` wrote, got {path}, which is none or is "
            f"cut short ({error}); {AGAIN}"
        ) from error


def _check(path: Path, members: Sequence[zipfile.ZipInfo], file_bytes: int) -> None:
    names = set[str]()
    for m in members:
        if not is_plain(m.filename):
            raise ProgramError(
                f"expected the members of {path} as `tune apply` names them, got "
                f"{escaped(m.filename)}; {AGAIN}"
            )
        compressed = m.compress_type != zipfile.ZIP_STORED or m.compress_size != m.file_size
        if compressed or m.flag_bits & _ENCRYPTED:
            raise ProgramError(
                f"expected the members of {path} stored as they are, got {m.filename} compressed "
                f"or encrypted ({m.compress_size} bytes for {m.file_size}); {AGAIN}"
            )
        if m.filename in names:
            raise ProgramError(
                f"expected each member of {path} once, got {m.filename} twice; {AGAIN}"
            )
        names.add(m.filename)
    claimed = sum(m.file_size for m in members)
    if claimed > file_bytes:
        raise ProgramError(
            f"expected the members of {path} to fit into its {file_bytes} bytes, got sizes of "
            f"{claimed} bytes together; {AGAIN}"
        )


def _bytes_of(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        data = archive.read(member)
    except _CUT_SHORT as error:
        raise ProgramError(
            f"expected {path} as `tune apply` wrote it, got {member.filename} damaged ({error}); "
            f"{AGAIN}"
        ) from error
    if len(data) != member.file_size:
        raise ProgramError(
            f"expected {member.file_size} bytes of {member.filename} in {path}, got {len(data)}; "
            f"{AGAIN}"
        )
    return data
