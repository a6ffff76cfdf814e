"""The table of a machine's results: each case's best times, and what they are of the rivals'."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.device.cases import RIVALS, from_json
from benchmarks.device.records import Row


def table(rows: Sequence[Row]) -> str:
    """Markdown: microseconds in rounds, the ratio to XLA's default, rates of the best."""
    timed = [r for r in rows if r["what"] == "rounds"]
    cases = list(dict.fromkeys(r["case"] for r in timed))
    head = ["case", "hlotune", *RIVALS, "over xla", "TFLOP/s", "TB/s", "schedule"]
    lines = [head, ["---"] * len(head), *(_line(c, timed) for c in cases)]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    ratios = [r for r in (_ratio(c, timed) for c in cases) if r is not None]
    if not ratios:
        return text
    mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
    return f"{text}\n\nGeometric mean over XLA's default: {mean:.3f}, of {len(ratios)} cases."


def best(case: str, how: str, rows: Sequence[Row]) -> Row | None:
    """The fastest of the last rounds of a case."""
    found = [r for r in rows if r["case"] == case and r["how"] == how]
    return min(found, key=lambda r: float(r["seconds"]), default=None)


def lead(case: str, rows: Sequence[Row]) -> float:
    """The fastest rival's time over ours, by rounds; 0 where either is missing."""
    timed = [r for r in rows if r["what"] == "rounds"]
    ours = best(case, "hlotune", timed)
    rivals = [r["seconds"] for how in RIVALS if (r := best(case, how, timed)) is not None]
    return 0.0 if ours is None or not rivals else float(min(rivals) / ours["seconds"])


def _ratio(case: str, rows: Sequence[Row]) -> float | None:
    ours, default = best(case, "hlotune", rows), best(case, "xla_default", rows)
    return None if ours is None or default is None else default["seconds"] / ours["seconds"]


def _line(case: str, rows: Sequence[Row]) -> list[str]:
    ours, ratio = best(case, "hlotune", rows), _ratio(case, rows)
    times = [_microseconds(best(case, how, rows)) for how in ("hlotune", *RIVALS)]
    if ours is None:
        return [case, *times, "", "", "", ""]
    kernel = from_json(ours["kernel"])
    rate, traffic = kernel.flops / ours["seconds"] / 1e12, kernel.bytes / ours["seconds"] / 1e12
    over = "" if ratio is None else f"{ratio:.2f}"
    return [case, *times, over, f"{rate:.0f}", f"{traffic:.2f}", _schedule(ours)]


def _microseconds(row: dict[str, Any] | None) -> str:
    return "" if row is None else f"{row['seconds'] * 1e6:.1f}"


def _schedule(row: Row) -> str:
    return f"{row['sketch']} " + " ".join(f"{n}={v}" for n, v in row["knobs"].items())
