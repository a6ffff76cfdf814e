"""Copies of a tuned program's file with other members, or another directory of them."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hlotune.deploy.artifact import MANIFEST

Members = dict[str, bytes]
Change = Callable[[Members], object]


def changed(
    file: Path, folder: Path, change: Change = lambda m: None, compression: int = zipfile.ZIP_STORED
) -> Path:
    """A copy whose members were changed."""
    with zipfile.ZipFile(file) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    path = folder / "changed.hlotune"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def with_directory(
    file: Path, folder: Path, change: Callable[[list[zipfile.ZipInfo]], object]
) -> Path:
    """A copy whose directory of members says something else than their bytes."""
    path = changed(file, folder)
    with zipfile.ZipFile(path, "a") as archive:
        change(archive.filelist)
        archive._didModify = True  # type: ignore[attr-defined]
    return path


def with_manifest(**values: Any) -> Change:
    def change(members: Members) -> None:
        members[MANIFEST] = json.dumps(json.loads(members[MANIFEST]) | values).encode()

    return change


def without_field(name: str) -> Change:
    def change(members: Members) -> None:
        fields = json.loads(members[MANIFEST])
        del fields[name]
        members[MANIFEST] = json.dumps(fields).encode()

    return change


def honest(**values: bytes) -> Change:
    """Puts other bytes into members, named by their beginnings, and the hashes of these."""

    def change(members: Members) -> None:
        fields = json.loads(members[MANIFEST])
        for start, data in values.items():
            name = first(members, start)
            members[name] = data
            fields["sha256"][name] = hashlib.sha256(data).hexdigest()
        members[MANIFEST] = json.dumps(fields).encode()

    return change


def with_kernel(**values: Any) -> Change:
    """The same machine code, with other fields beside it."""

    def change(members: Members) -> None:
        magic, header, code = members[first(members, "kernels")].split(b"\n", 2)
        fields = json.dumps(json.loads(header) | values).encode()
        honest(kernels=b"\n".join((magic, fields, code)))(members)

    return change


def packed(argument: Any, size: Any, entry: Any = "prepack_0") -> dict[str, Any]:
    return {"argument": argument, "bytes": size, "entry": entry}


def renamed(before: str, after: str) -> Change:
    """Names a member otherwise, in the manifest too."""

    def change(members: Members) -> None:
        name = first(members, before)
        members[after] = members.pop(name)
        fields = json.loads(members[MANIFEST])
        fields["sha256"][after] = fields["sha256"].pop(name)
        members[MANIFEST] = json.dumps(fields).encode()

    return change


def first(members: Members, start: str) -> str:
    return next(name for name in members if name.startswith(start))


def flipped(start: str) -> Change:
    """Flips a bit of a member."""

    def change(members: Members) -> None:
        name = first(members, start)
        members[name] = members[name][:-1] + bytes([members[name][-1] ^ 1])

    return change
