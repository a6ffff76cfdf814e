"""Tables: printed, and kept under `build/` with the conditions that they were measured under."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hlotune.cli.printing import finite, print_table
from hlotune.measure.machine.targets import toolchain
from hlotune.measure.timing.comparison import Ratio
from hlotune.schedules.targets.cpu import CpuTarget, titled
from hlotune.schedules.targets.target import Properties

FOLDER = Path("build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are text; a column stands right where its name starts with `>`."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Lines under the table: what the figures mean, and what they leave out."""


def conditions(target: CpuTarget, properties: Properties | None) -> dict[str, Any]:
    """The conditions under which something is going to be measured; ask before measuring, for the
    load.

    A table without figures of speed has no properties.
    """
    peaks = {} if properties is None else dict(properties.flops_per_s)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": target.name,
        "processor": target.isa,
        "fingerprint": target.fingerprint,
        "threads": target.threads,
        "peak_flop_per_s": peaks,
        "toolchain": asdict(toolchain()),
        "load_average": os.getloadavg()[0],
    }


def publish(table: Table, under: Mapping[str, Any], data: Sequence[object]) -> None:
    """Prints a table, and writes it with all that it was made from to `build/NAME.json`.

    What an earlier run left there moves to `build/NAME.STARTED.json`.  Numbers that JSON has not
    become null.
    """
    print(described(under))
    print_table(table.columns, table.rows)
    for note in table.notes:
        print(note)
    FOLDER.mkdir(exist_ok=True)
    whole = {"version": 1, **asdict(table), "conditions": dict(under), "data": list(data)}
    path, part = FOLDER / f"{table.name}.json", FOLDER / f"{table.name}.json.part"
    part.write_text(json.dumps(finite(whole), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    set_aside(path, under)
    part.replace(path)
    print(f"written to {path}")


def set_aside(path: Path, under: Mapping[str, Any]) -> None:
    """Keeps the table of another run: this one's may have fewer rows, or end early."""
    if not path.exists():
        return
    started = json.loads(path.read_text(encoding="utf-8"))["conditions"]["started"]
    if started != under["started"]:
        name = re.sub(r"[^0-9T]", "", started.partition("+")[0])
        path.replace(path.with_suffix(f".{name}.json"))


def described(under: Mapping[str, Any]) -> str:
    """Conditions in one line; those of an older file do not tell LLVM's name of the processor.
    Where they span lines of several runs (`tracked.spanning`), it says between when.
    """
    tools, peak = under["toolchain"], under.get("peak_flop_per_s", {}).get("f32")
    machine = titled(under["machine"], under.get("processor"))
    measured = "" if peak is None else f", measured f32 peak {peak / 1e9:.1f} GFLOP/s"
    return (
        f"{machine}, {under['threads']} threads{measured}; jaxlib {tools['jaxlib']}, "
        f"LLVM {tools['llvm']}, codegen {_codegen(under)}; {_when(under)}"
    )


def _codegen(under: Mapping[str, Any]) -> str:
    made_by = under.get("codegens", [under["toolchain"]["codegen"]])
    return made_by[0] if len(made_by) == 1 else f"{made_by[0]} to {made_by[-1]}"


def _when(under: Mapping[str, Any]) -> str:
    started, load = under["started"], f"{under['load_average']:.2f}"
    if under.get("oldest", started) == started:
        return f"{started}, load before {load}"
    return f"measured between {under['oldest']} and {started}, load before at most {load}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def proven(found: Ratio) -> str:
    """What the interval of a ratio says, default over tuned."""
    if found.is_faster:
        return "faster"
    return "slower" if found.high < 1 else "nothing"


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the geometric mean of some runs, by Student's distribution of their
    logarithms.

    Everything from one run alone, and where one is infinite or nothing.
    """
    logs = np.log(ratios)
    if len(logs) < 2 or not np.isfinite(logs).all():
        return 0.0, inf
    reach = float(stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs)))
    return float(np.exp(logs.mean() - reach)), float(np.exp(logs.mean() + reach))


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))
