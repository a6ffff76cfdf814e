"""A tuned program as one file, which this machine's kind can load and run again without a database.

A zip archive, whose members are stored as they are:

    manifest.json    format, program, target, numerics, structure of arguments and results,
                     and the SHA-256 of every other member
    program.mlirbc   the program with its calls of kernels, a portable StableHLO artifact
    kernels/KEY      the machine code of a kernel that the program calls, as `Built.to_bytes`
                     writes it; of a GPU or a TPU the program itself has the kernels
    packed/N         the bytes of packed constant N

A file of several variants of a program, for several sizes of its dimensions, has a list of such
manifests, and its members are named by their hashes, `contents/SHA256`, so that what variants have
in common is there once.

A file holds machine code, which runs in the process that loads the file: whoever loads one trusts
who wrote it, as with a shared library.  Hashes and checks find damage; they are no signature.
Nothing in a file is executed or unpickled before all of it, and the machine, have been found right.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jax.stages import Lowered

from hlotune.codegen.built import Built
from hlotune.codegen.runtime import dispatcher
from hlotune.codegen.runtime.abi import TARGET
from hlotune.codegen.runtime.merged_calls import Bytes, merge_calls
from hlotune.deploy.agreement import check_calls, check_members, check_signature
from hlotune.deploy.apply import TunedFunction
from hlotune.deploy.archive import AGAIN, read_stored, write_stored
from hlotune.deploy.by_shapes import ByShapes, Kinds, kinds_of, require_different
from hlotune.deploy.key_fields import check_keys
from hlotune.deploy.manifest import Manifest, manifests_of, variants_json
from hlotune.deploy.replacement import combined, loaded_here
from hlotune.hlo.calling.callable import JittedProgram, function_of
from hlotune.hlo.frontends.program import Program
from hlotune.hlo.mlir import custom_calls
from hlotune.hlo.mlir import module as mlir
from hlotune.hlo.mlir.stored_values import with_weights
from hlotune.measure.machine.devices import target_with
from hlotune.schedules.errors import BuildError, ProgramError
from hlotune.schedules.large_pages import lasting
from hlotune.schedules.numerics import Numerics

MANIFEST, PROGRAM, KERNELS, PACKED = "manifest.json", "program.mlirbc", "kernels/", "packed/"
CONTENTS = "contents/"


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
    _function: JittedProgram | ByShapes

    def __call__(self, /, *arguments: Any, **named: Any) -> Any:
        return self._function(*arguments, **named)

    def lower(self, /, *arguments: Any, **named: Any) -> Lowered:
        """Lowers as `jax.jit` does: gives the program's text, and what can be compiled from it
        ahead of calls.

        That has a copy of its own of packed constants.
        """
        return self._function.lower(*arguments, **named)


def save_artifact(tuned: TunedFunction | Sequence[TunedFunction], path: str | Path) -> int:
    """Writes a tuned program to a file, or several for different shapes or types of arguments.

    The file appears whole or not at all.  Returns its size in bytes.

    Raises:
        ProgramError: it is no tuned function; there are none, or two of several are for the same
            shapes and types or take other arguments; values of its program were elided; it takes
            or gives containers other than tuples, lists, and dicts of texts; or the file cannot be
            written.
    """
    variants: list[Any] = list(tuned) if isinstance(tuned, list | tuple) else [tuned]
    for one in variants:
        _check(one)
    _require_same_arguments(variants)
    require_different([kinds_of(one.program.graph.argument_types) for one in variants])
    parts = [_parts(one) for one in variants]
    path = Path(path)
    if len(parts) == 1:
        ((manifest, members),) = parts
        whole = {MANIFEST: manifest.to_json(), **members}
    else:
        whole = {MANIFEST: variants_json([manifest for manifest, _ in parts])}
        for manifest, members in parts:
            whole |= {f"{CONTENTS}{manifest.sha256[name]}": m for name, m in members.items()}
    try:
        write_stored(path, whole)
    except OSError as error:
        raise ProgramError(
            f"expected to write the tuned program to {path}, got {error.strerror}; "
            "name another path, or free some space"
        ) from error
    return path.stat().st_size


def _require_same_arguments(variants: Sequence[TunedFunction]) -> None:
    if not variants:
        raise ProgramError(
            "expected a tuned function, or several for different shapes, got an empty list of "
            "them; give what hlotune.apply returned"
        )
    first, *others = (one.program for one in variants)
    for other in others:
        if (other.names, other.in_tree) != (first.names, first.in_tree):
            raise ProgramError(
                "expected variants of one program, got programs of different arguments, "
                f"{first.name} of ({', '.join(first.names)}) and {other.name} of "
                f"({', '.join(other.names)}); save each program to a file of its own"
            )


def _check(tuned: object) -> None:
    if not isinstance(tuned, TunedFunction):
        raise ProgramError(
            f"expected a tuned function, got {type(tuned).__name__}; give what hlotune.apply "
            "makes of the program"
        )
    require_values(tuned.program)


def _parts(tuned: TunedFunction) -> tuple[Manifest, dict[str, bytes]]:
    members = _members(tuned)
    return _manifest(tuned, {name: _hash(data) for name, data in members.items()}), members


def require_values(program: Program) -> None:
    """Raises ProgramError for a program in which invented values stand for its own."""
    if missing := program.notes.missing_values:
        raise ProgramError(
            f"expected a program with all its values, got {missing[0]}; write the program again "
            "with its constants"
        )


def load_artifact(path: str | Path) -> Artifact:
    """Reads what `save_artifact` wrote, and binds its kernels in this process.

    The file holds machine code, which runs in this process: load no file that you would not load
    as a shared library.

    Raises:
        ProgramError: the file is missing, is no artifact, is one of a newer format, or is damaged.
        TargetError: it was tuned on another kind of machine.
        BuildError: a kernel's machine code cannot be loaded here.
    """
    path = Path(path)
    members = read_stored(path)
    if MANIFEST not in members:
        raise ProgramError(f"expected {MANIFEST} in {path}, got none; {AGAIN}")
    are_variants, manifests = manifests_of(path, members.pop(MANIFEST))
    if not are_variants:
        return _loaded(path, manifests[0], members, {})[0]
    placed: dict[str, Bytes] = {}
    listed = {f"{CONTENTS}{digest}" for m in manifests for digest in m.sha256.values()}
    check_members(path, members.keys(), listed, "the file")
    found = [
        _loaded(path, m, {n: members[f"{CONTENTS}{d}"] for n, d in m.sha256.items()}, placed)
        for m in manifests
    ]
    require_different([kinds for _, kinds in found])
    return _joined([artifact for artifact, _ in found], [k for _, k in found], manifests[0])


def _joined(found: Sequence[Artifact], kinds: Sequence[Kinds], first: Manifest) -> Artifact:
    """Variants as one, which calls the one for the arguments that it is given."""
    functions: Any = {k: a._function for k, a in zip(kinds, found, strict=True)}
    return replace(
        found[0],
        kernels=tuple(dict.fromkeys(key for a in found for key in a.kernels)),
        packed_bytes=sum(a.packed_bytes for a in found),
        _function=ByShapes(functions, first.names),
    )


def _loaded(
    path: Path, manifest: Manifest, members: Mapping[str, bytes], placed: dict[str, Bytes]
) -> tuple[Artifact, Kinds]:
    """One program of a file, and the shapes and element types of its arguments.

    `placed` are packed constants in memory by their hashes; those that are new are added.
    """
    _check_hashes(path, manifest, members)
    target = target_with(manifest.target)
    builts = [_built(path, n, data) for n, data in members.items() if n.startswith(KERNELS)]
    names = (f"{PACKED}{n}" for n in range(manifest.packed))
    packed = [_placed(manifest.sha256[n], members[n], placed) for n in names]
    module = mlir.parse(members[PROGRAM])
    signature = mlir.signature(module)
    check_signature(path, manifest, signature, [p.nbytes for p in packed])
    count = len(signature.arguments) - len(packed)
    check_keys(path, manifest.keys, signature.arguments[:count], signature.results)
    check_calls(path, builts, custom_calls.calls(module, TARGET))
    for built in builts:
        dispatcher.bind(built.key, loaded_here(built))
    artifact = Artifact(
        name=manifest.program,
        numerics=manifest.numerics,
        target=target.fingerprint,
        kernels=tuple(built.key for built in builts),
        packed_bytes=sum(p.nbytes for p in packed),
        _function=function_of(
            module,
            manifest.arguments,
            manifest.results,
            manifest.names,
            hidden_values=merge_calls(module, packed),
            platform=target.platform,
            donated=manifest.donated,
            keys=manifest.keys,
            weak=manifest.weak,
        ),
    )
    return artifact, kinds_of(signature.arguments[:count])


def _placed(digest: str, data: bytes, placed: dict[str, Bytes]) -> Bytes:
    if digest not in placed:
        placed[digest] = lasting(np.frombuffer(data, np.uint8))
    return placed[digest]


def _members(tuned: TunedFunction) -> dict[str, bytes]:
    whole = combined(tuned.program, tuned.replacements)
    module = with_weights(whole.module, tuned.program.weights)
    called = {c.config.get("key") for c in custom_calls.calls(module, TARGET)}
    made = [r.built for r in tuned.replacements if r.built]
    builts = {built.key: built for built in made if built.key in called}
    return {
        PROGRAM: module.artifact(),
        **{f"{KERNELS}{key}": built.to_bytes() for key, built in sorted(builts.items())},
        **{f"{PACKED}{n}": value.tobytes() for n, value in enumerate(whole.hidden)},
    }


def _manifest(tuned: TunedFunction, hashes: Mapping[str, str]) -> Manifest:
    return Manifest(
        program=tuned.program.name,
        key=tuned.program.key,
        target=tuned.target.fingerprint,
        machine=tuned.target.title,
        numerics=tuned.numerics,
        packed=sum(len(r.packed) for r in tuned.replacements),
        arguments=tuned.program.in_tree,
        results=tuned.program.out_tree,
        names=tuned.program.names,
        donated=tuned.program.donated,
        keys=tuned.program.keys,
        weak=tuned.program.weak,
        sha256=hashes,
    )


def _check_hashes(path: Path, manifest: Manifest, members: Mapping[str, bytes]) -> None:
    """Raises ProgramError where members are missing or too many, or have other bytes."""
    kernels = {name for name in manifest.sha256 if name.startswith(KERNELS)}
    packed = {f"{PACKED}{n}" for n in range(min(manifest.packed, len(manifest.sha256)))}
    check_members(path, manifest.sha256.keys(), {PROGRAM, *packed, *kernels}, "the manifest's list")
    check_members(path, members.keys(), manifest.sha256.keys(), "the file")
    damaged = [name for name, data in members.items() if _hash(data) != manifest.sha256[name]]
    if damaged:
        raise ProgramError(
            f"expected {path} as `tune apply` wrote it, got other bytes in {', '.join(damaged)}; "
            f"{AGAIN}"
        )


def _built(path: Path, name: str, data: bytes) -> Built:
    try:
        built = Built.from_bytes(data)
    except BuildError as error:
        raise ProgramError(
            f"expected a kernel as {name} of {path}, got bytes that are none: {error}"
        ) from error
    if built.key != name.removeprefix(KERNELS):
        raise ProgramError(
            f"expected in {path} the machine code {name.removeprefix(KERNELS)}, got {built.key}; "
            f"{AGAIN}"
        )
    return built


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
