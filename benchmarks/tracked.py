"""Results that the checkout keeps: a line of JSON a case, in a file for each kind of core.

`docs/lab/results/kernels_znver4.jsonl` has what was measured of kernels on a Zen 4, and the tables
that are made of it have the same ending.  A case has one line, which its next measurement replaces,
so that a run may take a part of the cases on any day; what stood there before is in the history.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hlotune.cli.printing import finite
from hlotune.schedules.atomic_files import whole
from hlotune.schedules.errors import ProgramError

RESULTS = Path("docs/lab/results")
DIGITS, LONGEST = 5, 200
"""Digits of a number in a line, as many as tables show at most, and characters of a text."""


def file_of(name: str, core: str, folder: Path = RESULTS) -> Path:
    return folder / f"{name}_{core}.jsonl"


def cores(name: str, folder: Path = RESULTS) -> Iterator[tuple[str, Path]]:
    """Every kind of core that something was measured on, with its file."""
    for path in sorted(folder.glob(f"{name}_*.jsonl")):
        yield path.stem.removeprefix(f"{name}_"), path


def read(path: Path, key: str) -> dict[str, dict[str, Any]]:
    """The fields of each line, by its name, which stands under `key`.  Where git has merged two
    lines of a name (`.gitattributes`), that of the later run counts."""
    if not path.exists():
        return {}
    found: dict[str, dict[str, Any]] = {}
    for fields in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        before = found.setdefault(fields[key], fields)
        if fields["conditions"]["started"] >= before["conditions"]["started"]:
            found[fields[key]] = fields
    return found


def put(path: Path, key: str, fields: Mapping[str, Any]) -> None:
    """Writes a line in the place of the one of the same name, or behind all others.

    Raises ProgramError where the file is of a machine with another number of threads.
    """
    found = read(path, key)
    for other in found.values():
        there, here = other["conditions"]["threads"], fields["conditions"]["threads"]
        if there != here:
            raise ProgramError(
                f"expected results of {here} threads in {path}, got {there}; "
                "keep these in another folder, by --results"
            )
    found[str(fields[key])] = _short(finite(fields))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as part:
        texts = (json.dumps(x, allow_nan=False) for x in found.values())
        part.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def _short(value: Any) -> Any:
    """The same with numbers and texts of some length, and without what is empty in a mapping."""
    if isinstance(value, Mapping):
        short = {k: _short(v) for k, v in value.items()}
        return {k: v for k, v in short.items() if v is not None and v not in ("", {}, [])}
    if isinstance(value, list | tuple):
        return [_short(v) for v in value]
    if isinstance(value, str):
        return value[:LONGEST]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def spanning(under: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The conditions of the newest line, with what the others had: when the oldest was measured,
    which codegen made them, and the largest load."""
    newest, oldest = (f(under, key=lambda c: str(c["started"])) for f in (max, min))
    made_by = sorted({str(c["toolchain"]["codegen"]) for c in under}, key=lambda x: (len(x), x))
    return {
        **newest, "oldest": oldest["started"], "codegens": made_by,
        "load_average": max(c["load_average"] for c in under),
    }  # fmt: skip
