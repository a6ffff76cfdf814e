"""Whole runs of the tuner on databases of their own, each made once."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hlotune.costmodel.pretrained import start
from hlotune.measure.machine.targets import toolchain
from hlotune.search.result import TuneResult
from hlotune.tuning_logs.database import Database

Tune = Callable[[Path], TuneResult]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is through."""

    database: Path
    counted_s: float
    """What is in a budget: all but waiting for other tuners, and being suspended."""
    trials: int


def place(folder: Path, *names: object, model: str = "trees") -> Path:
    """File of a run's database; runs of another version or another trained model have others."""
    digest = start(model).digest or "untrained"
    return folder / (".".join(map(str, (*names, model, toolchain().key[:6], digest[:6]))) + ".db")


def once(path: Path, tune: Tune) -> Run:
    """The run in a database, which is made where there is none.

    One that was interrupted is begun anew: what it has left says nothing about its seconds.
    """
    found = finished(path)
    if found is not None:
        return found
    path.parent.mkdir(parents=True, exist_ok=True)
    for part in path.parent.glob(f"{path.name}*"):
        part.unlink()
    if tune(path).interrupted:
        raise KeyboardInterrupt
    made = finished(path)
    if made is None:
        raise RuntimeError(f"expected a finished run in {path}, got none; remove the file")
    return made


def finished(path: Path) -> Run | None:
    if not path.exists():
        return None
    with Database(path, create=False) as database:
        found = database.query(
            """select summary, (select count(*) from trials where run = runs.id) as trials
            from runs where finished is not null order by started limit 1"""
        )
    summary: dict[str, Any] = json.loads(found[0]["summary"]) if found else {}
    if not summary:
        return None
    apart_s = sum(float(summary.get(name, 0.0)) for name in ("waited_s", "away_s"))
    return Run(path, float(summary["wall_s"]) - apart_s, int(found[0]["trials"]))
