"""What was measured, kept by case: a line of JSON a pass, each pass made by fresh processes.

A line has the key of what took part: the machine, versions, and schedules.  Lines of another key
stay in the file and count no more.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import FOLDER, Weights
from benchmarks.peers.process import Refusal
from benchmarks.peers.records import OwnTime, Status
from benchmarks.peers.rounds import Outcome, Turns

CASES = FOLDER / "cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    case: str
    key: str
    conditions: Mapping[str, Any]
    status: Mapping[Weights, Status]
    own: Mapping[Weights, OwnTime | None]
    outcomes: Mapping[str, Outcome]
    """By contestant and form."""


def key_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def keep(found: Pass, folder: Path = CASES) -> None:
    """Appends; a line that a crash cut short is skipped when it is read."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{found.case}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(to_json(found)) + "\n")


def kept(case: str, folder: Path = CASES) -> list[Pass]:
    """All passes of the key of the last one."""
    path = folder / f"{case}.jsonl"
    if not path.exists():
        return []
    found = [p for line in path.read_text(encoding="utf-8").splitlines() if (p := _read(line))]
    return [p for p in found if p.key == found[-1].key]


def to_json(found: Pass) -> dict[str, Any]:
    outcomes = {
        label: {"call_s": o.call_s, "calls": o.calls}
        if isinstance(o, Turns)
        else {"failure": o.kind, "message": o.message}
        for label, o in found.outcomes.items()
    }
    return {**asdict(found), "outcomes": outcomes}


def _read(line: str) -> Pass | None:
    try:
        fields = json.loads(line)
        outcomes = {label: _outcome(o) for label, o in fields.pop("outcomes").items()}
        own = {w: OwnTime(**o) if o else None for w, o in fields.pop("own").items()}
        return Pass(**fields, own=own, outcomes=outcomes)
    except (ValueError, KeyError, TypeError):
        return None


def _outcome(fields: Mapping[str, Any]) -> Outcome:
    if "failure" in fields:
        return Refusal(fields["failure"], fields["message"])
    return Turns(tuple(fields["call_s"]), fields["calls"])
