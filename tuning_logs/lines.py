"""The form of records as lines of JSON, without a database: what writes some needs no SQLite."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hlotune.hlo.kernel import Kernel
from hlotune.measure.trial import Trial
from hlotune.schedules.targets.kinds import stored
from hlotune.schedules.targets.target import Properties, Target, Toolchain
from hlotune.tuning_logs import rows
from hlotune.tuning_logs.finals import Final
from hlotune.tuning_logs.rows import Row

FORMAT = 1
"""The version of the lines, as `"hlotune": 1`; a reader skips lines of a newer one."""

RUN_COLUMNS = ("id", "cache", "threads", "numerics", "options", "seed", "started")
"""What a record of a trial or final tells of its run."""

JSON_COLUMNS = frozenset(
    {"schedule", "samples_s", "default_s", "tuned_s", "options", "summary", "notes"}
    | {"identity", "properties", "versions"}
)


def decoded(row: Row) -> dict[str, Any]:
    """JSON columns as JSON; what does not parse stays text, and is for the reader to skip."""
    return {k: _loaded(v) if k in JSON_COLUMNS and v is not None else v for k, v in row.items()}


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A run that is written as lines where it is measured: its records name no program."""

    target: Target
    toolchain: Toolchain
    properties: Properties
    run: Row
    """Its columns `RUN_COLUMNS`, as a row has them."""

    def trial(self, trial: Trial, label: str, number: int) -> dict[str, Any]:
        """The record of a trial, as `tune db import` reads it."""
        where = {**self.run, "run": self.run["id"], **self._keys}
        row = rows.trial_row(trial, {**where, "id": self.run["id"]}, batch=0, number=number)
        return self._record("trial", row, trial.candidate.kernel, label)

    def final(self, final: Final, kernel: Kernel, label: str) -> dict[str, Any]:
        """The record of what was decided for a kernel."""
        row = {**rows.final_row(str(self.run["id"]), kernel, final), **self._keys}
        return self._record("final", row, kernel, label)

    @property
    def _keys(self) -> Row:
        return {"target": self.target.fingerprint, "toolchain": self.toolchain.key}

    def _record(
        self, kind: str, row: Mapping[str, Any], kernel: Kernel, label: str
    ) -> dict[str, Any]:
        return {
            "hlotune": FORMAT,
            "record": kind,
            **decoded(dict(row)),
            "kernel": {"text": kernel.text, "label": label},
            "target": {"identity": stored(self.target), "properties": asdict(self.properties)},
            "toolchain": asdict(self.toolchain),
            "run": decoded({**self.run, "notes": None}),
        }
