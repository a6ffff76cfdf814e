"""A tuned program as one file, which this machine's kind can load and run again without a database.

A zip archive, whose members are stored as they are:

    manifest.json    format, program, target, numerics, structure of arguments and results,
                     and the SHA-256 of every other member
    program.mlirbc   the program with its calls of kernels, a portable StableHLO artifact
    kernels/KEY      the machine code of a kernel, as `Built.to_bytes` writes it
    packed/N         the bytes of packed constant N

Nothing in it is executed or unpickled before its hash, and the machine, have been found right.
"""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.stages import Lowered

from hlotune.codegen.built import Built
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.replacing import bound, combined
from hlotune.hlo import mlir
from hlotune.hlo.callable import JittedProgram, function_of
from hlotune.measure.targets import require_host
from hlotune.schedules.errors import BuildError, ProgramError
from hlotune.schedules.files import whole
from hlotune.schedules.numerics import Numerics

FORMAT = 1
MANIFEST, PROGRAM, KERNELS, PACKED = "manifest.json", "program.mlirbc", "kernels/", "packed/"
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all members: equal programs make equal files."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Artifact:
    """A tuned program from a file: a jitted function of the original's signature."""

    name: str
    numerics: Numerics
    target: str
    """Fingerprint of the machine that it was tuned on, which this one has."""
    kernels: tuple[str, ...]
    """Hashes of the machine code of its kernels."""
    packed_bytes: int
    _function: JittedProgram

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """As of `jax.jit`: the program's text, and what is compiled of it ahead of calls.

        That has a copy of its own of packed constants.
        """
        return self._function.lower(*arguments, **named)


def save_artifact(tuned: TunedFunction, path: str | Path) -> int:
    """Writes a tuned program to a file, and returns its size in bytes.

    The file appears whole or not at all.

    Raises:
        ProgramError: it is no tuned function; it takes or gives containers other than tuples,
            lists, and dicts of texts; or the file cannot be written.
    """
    if not isinstance(tuned, TunedFunction):
        raise ProgramError(
            f"expected a tuned function, got {type(tuned).__name__}; give what hlotune.apply "
            "makes of the program"
        )
    path = Path(path)
    members = _members(tuned)
    manifest = _manifest(tuned) | {"sha256": {n: _hash(data) for n, data in members.items()}}
    text = json.dumps(manifest, indent=2, sort_keys=True).encode()
    try:
        with whole(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, data in {MANIFEST: text, **members}.items():
                archive.writestr(zipfile.ZipInfo(name, _DATE), data)
    except OSError as error:
        raise ProgramError(
            f"expected to write the tuned program to {path}, got {error.strerror}; "
            "name another path, or free some space"
        ) from error
    return path.stat().st_size


def load_artifact(path: str | Path) -> Artifact:
    """Reads what `save_artifact` wrote, and binds its kernels in this process.

    Raises:
        ProgramError: the file is missing, damaged, no artifact, or one of a newer format.
        TargetError: it was tuned on another kind of machine.
        BuildError: a kernel's machine code cannot be loaded.
    """
    path = Path(path)
    manifest, members = _read(path)
    target = require_host(manifest["target"])
    kernels = [_built(path, name, data) for name, data in members.items() if KERNELS in name]
    for built in kernels:
        bound(built)
    packed = [np.frombuffer(members[f"{PACKED}{n}"], np.uint8) for n in range(manifest["packed"])]
    takes, gives = (_tree(manifest[name]) for name in ("arguments", "results"))
    return Artifact(
        name=manifest["program"],
        numerics=manifest["numerics"],
        target=target.fingerprint,
        kernels=tuple(built.key for built in kernels),
        packed_bytes=sum(p.nbytes for p in packed),
        _function=function_of(
            mlir.parse(members[PROGRAM]),
            takes,
            gives,
            manifest.get("names", ()),  # files of before have none
            hidden_values=packed,
        ),
    )


def _members(tuned: TunedFunction) -> dict[str, bytes]:
    whole = combined(tuned.program, tuned.replacements)
    builts = {r.built.key: r.built for r in tuned.replacements if r.built}
    return {
        PROGRAM: mlir.parse(whole.bytecode).artifact(),
        **{f"{KERNELS}{key}": built.to_bytes() for key, built in sorted(builts.items())},
        **{f"{PACKED}{n}": value.tobytes() for n, value in enumerate(whole.hidden)},
    }


def _manifest(tuned: TunedFunction) -> dict[str, Any]:
    return {
        "hlotune_artifact": FORMAT,
        "program": tuned.program.name,
        "key": tuned.program.key,
        "target": tuned.target.fingerprint,
        "machine": tuned.target.title,
        "numerics": tuned.numerics,
        "packed": sum(len(r.packed) for r in tuned.replacements),
        "arguments": _structure(tuned.program.in_tree, "arguments"),
        "names": tuned.program.names,
        "results": _structure(tuned.program.out_tree, "results"),
    }


def _structure(tree: Any, what: str) -> Any:
    """A pytree as JSON, its leaves numbered; None where a program takes flat arrays."""
    if tree is None:
        return None
    found = _encoded(jax.tree.unflatten(tree, range(tree.num_leaves)))
    if _tree(json.loads(json.dumps(found))) != tree:
        raise ProgramError(
            f"expected {what} in tuples, lists and dicts of texts, got {tree}; "
            "wrap the function in one that takes and gives these"
        )
    return found


def _encoded(value: Any) -> Any:
    """Containers as lists with their kind in front; what is none of ours becomes a leaf."""
    if value is None:
        return ["none"]
    if type(value) in (tuple, list):
        return [type(value).__name__, *map(_encoded, value)]
    if type(value) is dict:
        return ["dict", {str(k): _encoded(v) for k, v in value.items()}]
    return ["leaf"]


def _tree(data: Any) -> Any:
    return None if data is None else jax.tree.structure(_decoded(data))


def _decoded(data: Any) -> Any:
    kind, *parts = data
    if kind == "dict":
        return {k: _decoded(v) for k, v in parts[0].items()}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(map(_decoded, parts))
    return None if kind == "none" else 0


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the other members, their hashes checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read(MANIFEST))
            newer = manifest["hlotune_artifact"] > FORMAT
            members = {} if newer else {n: archive.read(n) for n in manifest["sha256"]}
    except OSError as error:
        raise ProgramError(
            f"expected a tuned program at {path}, got {error.strerror}; check the path"
        ) from error
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise ProgramError(
            f"expected a tuned program that `tune apply` wrote, got {path}, which is none or is "
            f"cut short ({error}); write it again"
        ) from error
    _check_format(path, manifest)
    _check_hashes(path, manifest["sha256"], members)
    return manifest, members


def _check_format(path: Path, manifest: Mapping[str, Any]) -> None:
    if manifest["hlotune_artifact"] > FORMAT:
        raise ProgramError(
            f"expected a tuned program of format {FORMAT} or older, got {path} of format "
            f"{manifest['hlotune_artifact']}; upgrade hlotune"
        )


def _check_hashes(path: Path, hashes: Mapping[str, str], members: Mapping[str, bytes]) -> None:
    damaged = [name for name, data in members.items() if _hash(data) != hashes[name]]
    if damaged:
        raise ProgramError(
            f"expected {path} as `tune apply` wrote it, got other bytes in {', '.join(damaged)}; "
            "write it again"
        )


def _built(path: Path, name: str, data: bytes) -> Built:
    built = Built.from_bytes(data)
    if built.key != name.removeprefix(KERNELS):
        raise BuildError(
            f"expected in {path} the machine code {name.removeprefix(KERNELS)}, got {built.key}; "
            "write it again"
        )
    return built


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
