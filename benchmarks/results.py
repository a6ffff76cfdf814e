"""Tables: printed, and kept under `build/` with the conditions that they were measured under."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hlotune.cli.printing import print_table
from hlotune.measure.targets import toolchain
from hlotune.schedules.target import Properties, Target

FOLDER = Path("build")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells are text; a column stands right where its name starts with `>`."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    """Lines under the table: what the figures mean, and what they leave out."""


def conditions(target: Target, properties: Properties) -> dict[str, Any]:
    """Under which something is going to be measured; ask before measuring, for the load."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": target.name,
        "fingerprint": target.fingerprint,
        "threads": target.threads,
        "peak_flop_per_s": dict(properties.flops_per_s),
        "toolchain": asdict(toolchain()),
        "load_average": os.getloadavg()[0],
    }


def publish(table: Table, under: Mapping[str, Any], data: Sequence[object]) -> None:
    """Prints a table, and writes it with all that it was made from to `build/NAME.json`."""
    print(described(under))
    print_table(table.columns, table.rows)
    for note in table.notes:
        print(note)
    FOLDER.mkdir(exist_ok=True)
    whole = {"version": 1, **asdict(table), "conditions": dict(under), "data": list(data)}
    path = FOLDER / f"{table.name}.json"
    path.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"written to {path}")


def described(under: Mapping[str, Any]) -> str:
    """Conditions in one line."""
    tools, peak = under["toolchain"], under["peak_flop_per_s"]["f32"]
    return (
        f"{under['machine']}, {under['threads']} threads, measured f32 peak {peak / 1e9:.1f} "
        f"GFLOP/s; jaxlib {tools['jaxlib']}, LLVM {tools['llvm']}, codegen {tools['codegen']}; "
        f"{under['started']}, load before {under['load_average']:.2f}"
    )


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def geometric_mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))
