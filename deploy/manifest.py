"""The manifest that a file of a tuned program contains, checked field by field.

The manifest is JSON. Where a field is missing, or has another type or range than it was written
with, reading it is a ProgramError that names the field, what was expected and what came.
"""

import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from hlotune.deploy import key_fields
from hlotune.deploy.archive import AGAIN
from hlotune.deploy.structures import is_structure, structure_of, tree_of
from hlotune.hlo.calling.keys import Keys
from hlotune.schedules.errors import ProgramError
from hlotune.schedules.numerics import NUMERICS, Numerics

FORMAT = 1
VARIANTS_FORMAT = 2
"""The format of a file with several programs: a list of manifests of format `FORMAT`."""
_LATER: Mapping[str, Any] = {
    "names": [],
    "donated": [],
    "keys": key_fields.NO_FIELDS,
    "weak": [],
}
"""Fields that older files lack, with the values that they stand for there."""
_SHOWN = 60
"""The number of characters of a wrong value that an error message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The fields of `manifest.json`, with the structures as pytrees."""

    program: str
    key: str
    target: str
    """The fingerprint of the machine that the program was tuned on."""
    machine: str
    """The name of that machine, for people to read."""
    numerics: Numerics
    packed: int
    """The number of packed constants."""
    arguments: Any
    """The pytree of the arguments, `(args, {})`; None where the program takes flat arrays."""
    results: Any
    """The pytree of the results; None where the program returns flat arrays."""
    names: tuple[str, ...]
    """The names of the arguments; an argument without a name has ""."""
    donated: tuple[int, ...]
    """The positions, in flat order, of arguments whose memory each call gives away."""
    keys: Keys
    """The leaves that are typed random keys."""
    weak: tuple[int, ...]
    """The positions, in flat order, of results whose types give way to others."""
    sha256: Mapping[str, str]
    """The SHA-256 hash of each other member of the archive, by the member's name."""

    def to_json(self) -> bytes:
        """The bytes of `manifest.json`.

        Raises ProgramError where arguments or results have other containers than tuples, lists and
        dicts of texts.
        """
        fields = {
            "hlotune_artifact": FORMAT,
            "program": self.program,
            "key": self.key,
            "target": self.target,
            "machine": self.machine,
            "numerics": self.numerics,
            "packed": self.packed,
            "arguments": structure_of(self.arguments, "arguments"),
            "results": structure_of(self.results, "results"),
            "names": self.names,
            "donated": self.donated,
            "keys": key_fields.fields_of(self.keys),
            "weak": self.weak,
            "sha256": dict(self.sha256),
        }
        return json.dumps(fields, indent=2, sort_keys=True).encode()


def variants_json(manifests: Sequence[Manifest]) -> bytes:
    """The bytes of `manifest.json` of a file that has several programs."""
    variants = [json.loads(m.to_json()) for m in manifests]
    whole = {"hlotune_artifact": VARIANTS_FORMAT, "variants": variants}
    return json.dumps(whole, indent=2, sort_keys=True).encode()


def manifests_of(path: Path, text: bytes) -> tuple[bool, list[Manifest]]:
    """Whether a file has the format of variants, and the manifests of its programs.

    Raises:
        ProgramError: the text is not JSON, is of a newer format, lacks a field, or has a field of
            another type or range.
    """
    fields = _fields_of(path, text)
    if fields["hlotune_artifact"] == FORMAT:
        return False, [_manifest(path, fields)]
    variants = fields.get("variants")
    plain = isinstance(variants, list) and all(isinstance(v, dict) for v in variants)
    if not plain or not variants or any(v.get("hlotune_artifact") != FORMAT for v in variants):
        raise ProgramError(
            f"expected variants in the manifest of {path} to be a list of programs, got "
            f"{_shown(variants)}; {AGAIN}"
        )
    return True, [_manifest(path, {**_LATER, **variant}) for variant in variants]


def _manifest(path: Path, fields: Mapping[str, Any]) -> Manifest:
    for name, (what, allows) in _FIELDS.items():
        if name not in fields:
            raise ProgramError(f"expected {name} in the manifest of {path}, got none; {AGAIN}")
        if not allows(fields[name]):
            raise ProgramError(
                f"expected {name} in the manifest of {path} to be {what}, got "
                f"{_shown(fields[name])}; {AGAIN}"
            )
    if (fields["arguments"] is None) != (fields["results"] is None):
        raise ProgramError(
            f"expected structures of both arguments and results in the manifest of {path}, or of "
            f"neither, got one; {AGAIN}"
        )
    if len(fields["names"]) > (count := _argument_count(fields["arguments"])):
        raise ProgramError(
            f"expected names of at most {count} arguments in the manifest of {path}, got "
            f"{len(fields['names'])}; {AGAIN}"
        )
    return Manifest(
        **{name: fields[name] for name in ("program", "key", "target", "machine", "numerics")},
        packed=fields["packed"],
        arguments=tree_of(fields["arguments"]),
        results=tree_of(fields["results"]),
        names=tuple(fields["names"]),
        donated=tuple(fields["donated"]),
        keys=key_fields.keys_of(fields["keys"]),
        weak=tuple(fields["weak"]),
        sha256=fields["sha256"],
    )


def _fields_of(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProgramError(
            f"expected JSON as the manifest of {path}, got {_shown(text)} ({error}); {AGAIN}"
        ) from error
    version = found.get("hlotune_artifact") if isinstance(found, dict) else None
    if not _is_count(version) or version == 0:
        raise ProgramError(
            f"expected the format of a tuned program, 1 to {VARIANTS_FORMAT}, in the manifest of "
            f"{path}, got {_shown(version)}; {AGAIN}"
        )
    if cast(int, version) > VARIANTS_FORMAT:
        raise ProgramError(
            f"expected a tuned program of format {VARIANTS_FORMAT} or older, got {path} of format "
            f"{_shown(version)}; upgrade hlotune"
        )
    return {**_LATER, **found}


def _argument_count(arguments: Any) -> int:
    return 0 if arguments is None else len(arguments[1]) - 1


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_hex(digits: int) -> Callable[[object], bool]:
    known = set(string.hexdigits.lower())
    return lambda value: isinstance(value, str) and len(value) == digits and set(value) <= known


def _are_names(value: object) -> bool:
    if not isinstance(value, list) or not all(isinstance(n, str) for n in value):
        return False
    named = [n for n in value if n]
    return len(named) == len(set(named))


def _are_positions(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_count, value)) and len(set(value)) == len(value)


def _are_hashes(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_hex(64), value.values()))


def _are_arguments(value: Any) -> bool:
    """Whether a value is None, or the structure of `(args, {})`."""
    if value is None:
        return True
    pair = is_structure(value) and value[0] == "tuple" and value[2:] == [["dict", {}]]
    return bool(pair and value[1][0] == "tuple")


def _are_results(value: object) -> bool:
    return value is None or is_structure(value)


_FIELDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "program": ("a text", _is_text),
    "key": ("32 hex digits", _is_hex(32)),
    "target": ("a fingerprint of 16 hex digits", _is_hex(16)),
    "machine": ("a text", _is_text),
    "numerics": (f"one of {', '.join(NUMERICS)}", lambda value: value in NUMERICS),
    "packed": ("a number of constants, 0 or more", _is_count),
    "arguments": ("null, or containers of leaves as `(args, {})` has them", _are_arguments),
    "results": ("null, or containers of leaves", _are_results),
    "names": ("a list of different texts", _are_names),
    "donated": ("a list of different numbers, 0 or more", _are_positions),
    "keys": ("names of generators by leaves of arguments and results", key_fields.are_fields),
    "weak": ("a list of different numbers, 0 or more", _are_positions),
    "sha256": ("hashes of 64 hex digits by the names of members", _are_hashes),
}
"""The values that each field may have, in words and as a test."""
